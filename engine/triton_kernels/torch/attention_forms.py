"""Attention in torch, in f32: the kernels of a lane that position heads, attend over the paged cache and multiply by heads."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.arch.spec import Mla, RopeKind
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels.tensors import Acts, Cache, Matrix, NormWeight, StepInputs
from engine.triton_kernels.torch.cached import store, tokens
from engine.triton_kernels.torch.dequantise import dequantise


class AttentionForms:
    """Methods of `engine.triton_kernels.kernels.Kernels`. Sequences are gone through one by one, which waits for the device."""

    def position(
        self,
        step: StepInputs,
        q: Tensor | None,
        k: Tensor | None,
        v: Tensor | None,
        heads: Heads,
        turn_q: Turn,
        turn_k: Turn,
        norm_q: NormWeight | None,
        norm_k: NormWeight | None,
        rope_table: Tensor | None,
        q_scale: Tensor | None,
        cache: Cache | None,
    ) -> None:
        """See LanePosition."""
        if q is not None:
            queries = q.unflatten(1, (heads.n_heads, heads.q_step))[..., : heads.head_dim]
            turned = _turned(step, queries, turn_q, norm_q, rope_table)
            if q_scale is not None:
                turned = turned * q_scale[step.positions[: len(q)].long()][:, None, None]
            queries.copy_(turned)
        if k is not None:
            keys = k.unflatten(1, (heads.n_kv_heads, heads.head_dim))
            keys.copy_(_turned(step, keys, turn_k, norm_k, rope_table))
            if cache is not None:
                store(step, cache, cache.keys, cache.k_scales, keys)
        if v is not None and cache is not None and cache.values is not None:
            store(step, cache, cache.values, cache.v_scales, v.unflatten(1, (heads.n_kv_heads, heads.v_dim)))

    def attend(
        self,
        step: StepInputs,
        q: Tensor,
        cache: Cache,
        heads: Heads,
        sinks: Tensor | None,
        gate: Tensor | None,
        out: Tensor,
        *,
        rows: bool,
    ) -> None:
        """See LaneAttend."""
        assert cache.values is not None
        queries = q.unflatten(1, (heads.n_heads, heads.q_step))[..., : heads.head_dim]
        result = out.unflatten(1, (heads.n_heads, heads.v_dim))
        for chosen, table, seen in _sequences(step, cache, len(q), heads.window):
            keys = tokens(cache.keys, cache.k_scales, table, seen.any(0))
            values = tokens(cache.values, cache.v_scales, table, seen.any(0))
            result[chosen] = _attended(queries[chosen].transpose(0, 1), keys, values, seen, heads, sinks).transpose(0, 1)
        if gate is not None:
            gates = gate.unflatten(1, (heads.n_heads, heads.q_step))[..., heads.head_dim : heads.head_dim + heads.v_dim]
            result.mul_(gates.sigmoid())

    def attend_whole(
        self,
        step: StepInputs,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        heads: Heads,
        turn_q: Turn,
        turn_k: Turn,
        norm_q: NormWeight | None,
        norm_k: NormWeight | None,
        rope_table: Tensor | None,
        q_scale: Tensor | None,
        cache: Cache,
        sinks: Tensor | None,
        gate: Tensor | None,
        out: Tensor,
        acts: Acts | None,
    ) -> bool:
        """Nothing is gained by it here."""
        return False

    def heads(self, x: Tensor, matrix: Matrix, x_head: int, out_head: int, out: Tensor) -> None:
        """See LaneHeads."""
        for h, weight in enumerate(_matrices(matrix)):
            out[:, h * out_head : h * out_head + matrix.n_out] = x[:, h * x_head : h * x_head + matrix.n_in] @ weight.T

    def latent_position(
        self, step: StepInputs, q: Tensor, row: Tensor, norm: NormWeight, rope_table: Tensor, mla: Mla, cache: Cache
    ) -> None:
        """See LaneLatentPosition."""
        ends = q.unflatten(1, (mla.n_heads, mla.head_dim))[..., -mla.rope.n_rot :]
        ends.copy_(_rotated(step, ends, mla.rope.kind, rope_table))
        c, k_pe = row[:, None, : mla.rank], row[:, None, mla.rank : mla.latent]
        stored = torch.cat([_normed(c, norm), _rotated(step, k_pe, mla.rope.kind, rope_table)], -1)
        store(step, cache, cache.keys, cache.k_scales, stored)

    def latent_attend(
        self, step: StepInputs, absorbed: Tensor, q: Tensor, mla: Mla, cache: Cache, out: Tensor, *, rows: bool
    ) -> None:
        """See LaneLatentAttend."""
        ends = q.unflatten(1, (mla.n_heads, mla.head_dim))[..., -mla.rope.n_rot :]
        queries = torch.cat([absorbed.unflatten(1, (mla.n_heads, mla.rank)), ends], -1)
        result = out.unflatten(1, (mla.n_heads, mla.rank))
        for chosen, table, seen in _sequences(step, cache, len(q), None):
            latent = tokens(cache.keys, cache.k_scales, table, seen.any(0))
            weights = _weights(queries[chosen].transpose(0, 1) @ latent.transpose(1, 2) * mla.scale, seen, None)
            result[chosen] = (weights @ latent[..., : mla.rank]).transpose(0, 1)

    def latent_heads(self, step: StepInputs, q: Tensor, mla: Mla, cache: Cache, k: Matrix, v: Matrix, out: Tensor) -> None:
        """See LaneLatentHeads."""
        queries = q.unflatten(1, (mla.n_heads, mla.head_dim))
        result = out.unflatten(1, (mla.n_heads, v.n_out))
        for chosen, table, seen in _sequences(step, cache, len(q), None):
            latent = tokens(cache.keys, cache.k_scales, table, seen.any(0))[0]
            c, k_pe = latent[:, : mla.rank], latent[:, mla.rank :]
            for h, (keys_of, values_of) in enumerate(zip(_matrices(k), _matrices(v), strict=True)):
                keys = torch.cat([c @ keys_of.T, k_pe], -1)
                weights = _weights(queries[chosen, h] @ keys.T * mla.scale, seen, None)
                result[chosen, h] = weights @ (c @ values_of.T)


def _matrices(matrix: Matrix) -> Iterator[Tensor]:
    """f32 [n_out, n_in] of each head."""
    return (dequantise(matrix, index=h) for h in range(matrix.n_matrices))


def _normed(x: Tensor, norm: NormWeight) -> Tensor:
    """RMS norm over the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps) * norm.weight


def _rotated(step: StepInputs, x: Tensor, kind: RopeKind, table: Tensor) -> Tensor:
    """x [n_rows, n_heads, width] with the first n_rot values of each head turned by their row's position."""
    half = table.shape[1] // 2
    cos, sin = table[step.positions[: len(x)].long()][:, None].split(half, -1)
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if kind == "norm" else (slice(0, half), slice(half, 2 * half))
    turned, a, b = x.clone(), x[..., first], x[..., second]
    turned[..., first] = a * cos - b * sin
    turned[..., second] = a * sin + b * cos
    return turned


def _turned(step: StepInputs, x: Tensor, turn: Turn, norm: NormWeight | None, table: Tensor | None) -> Tensor:
    """x [n_rows, n_heads, head_dim], normed and rotated as `turn` says."""

    def normed(x: Tensor) -> Tensor:
        if norm is None:
            return x
        return _normed(x.flatten(1), norm).view(x.shape) if turn.whole else _normed(x, norm)

    x = x if turn.norm_last else normed(x)
    if turn.rope is not None and table is not None:
        x = _rotated(step, x, turn.rope.kind, table)
    return normed(x) if turn.norm_last else x


def _sequences(step: StepInputs, cache: Cache, n_rows: int, window: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of each sequence: its rows, the blocks that they reach, and who sees whom, [its rows, tokens of these blocks]."""
    seqs, positions, block = step.seq_of_row[:n_rows], step.positions[:n_rows], cache.keys.shape[2]
    for seq in seqs.unique().tolist():
        chosen = (seqs == seq).nonzero().squeeze(1)
        at, reach = positions[chosen].long().unsqueeze(1), window or 1 << 40
        first, end = max(0, int(at.min()) - reach + 1) // block, int(at.max()) // block + 1
        token = torch.arange(first * block, end * block, device=at.device)
        yield chosen, step.block_tables[cache.group, seq, first:end], (token <= at) & (token > at - reach)


def _weights(scores: Tensor, seen: Tensor, sinks: Tensor | None) -> Tensor:
    """The softmax of scores [..., rows, tokens]; sinks, one a head, take part without a token."""
    scores = scores.masked_fill(~seen, -torch.inf)
    largest = scores.amax(-1, keepdim=True)
    if sinks is not None:
        largest = torch.maximum(largest, sinks[:, None, None])
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + (sinks[:, None, None] - largest).exp()
    return weights / total


def _attended(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor, heads: Heads, sinks: Tensor | None) -> Tensor:
    """[n_heads, rows, v_dim] of q [n_heads, rows, head_dim]; keys, values [n_kv_heads, tokens, width]."""
    each = heads.n_heads // heads.n_kv_heads
    grouped = q.unflatten(0, (heads.n_kv_heads, each)).flatten(1, 2)
    scores = (grouped @ keys.transpose(1, 2) * heads.scale).unflatten(1, (each, -1)).flatten(0, 1)
    if heads.softcap:
        scores = heads.softcap * torch.tanh(scores / heads.softcap)
    weights = _weights(scores, seen, sinks).unflatten(0, (heads.n_kv_heads, each)).flatten(1, 2)
    found: Tensor = (weights @ values).unflatten(1, (each, -1)).flatten(0, 1)
    return found
