"""Runs a graph in numpy float32, one short function per op: the readable model, and the truth for compiled programs.

Called by the loader for `--engine reference` and by tests. Keeps its own paged KV cache in f32; dequantises weights at first use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.arch.cache_groups import groups_of
from engine.arch.spec import Attention as AttentionSpec
from engine.arch.spec import Mla, ModelSpec
from engine.arch.spec import Rope as RopeSpec
from engine.errors import Cancelled, EngineError, ModelChanged
from engine.graph.ops import (
    Add,
    Attention,
    Buffer,
    Delta,
    Embed,
    Experts,
    GatedAct,
    Graph,
    KvStore,
    LatentAttention,
    LatentStore,
    Linear,
    Norm,
    Op,
    OutRows,
    Rope,
    Route,
    SigmoidGate,
    Split,
)
from engine.graph.reference_delta import DeltaState, DeltaStates, convolve, delta_rule, gated_norm, gates, split_inputs
from engine.graph.reference_experts import experts, gated, route, sigmoid, softmax
from engine.graph.reference_latent import attend as attend_latent
from engine.graph.rotation import rope_frequencies, temperatures
from engine.quants.reference import dequantise

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]

BLOCK = 32
"""Tokens per KV block, unless told otherwise."""


class Batch(Protocol):
    """The rows of one step: see `engine.runtime.step.StepBatch`, which is what callers pass."""

    @property
    def token_ids(self) -> I32:
        """[n_rows]."""

    @property
    def positions(self) -> I32:
        """[n_rows]."""

    @property
    def seq_of_row(self) -> I32:
        """[n_rows]."""

    @property
    def block_tables(self) -> tuple[I32, ...]:
        """An array of block ids a sequence, [n_groups, n_blocks] or [n_blocks] for all cache groups."""

    @property
    def states(self) -> I32 | None:
        """[n_seqs, 4]: the state slot to read, to write, another one or -1, and the rows after which that one is written."""

    @property
    def out_rows(self) -> I32:
        """[n_out]."""


class TensorSource(Protocol):
    """A tensor as `engine.gguf.info.TensorInfo` describes it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """GGUF order."""

    @property
    def type_name(self) -> str:
        """Name of the quant format."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""

    @property
    def shard(self) -> int:
        """Which of the shards holds it."""

    @property
    def offset(self) -> int:
        """First byte in that shard."""


class ShardSource(Protocol):
    """One file of a model."""

    @property
    def path(self) -> Path:
        """Where it lies."""


class WeightFile(Protocol):
    """What `engine.gguf.info.GgufFile` offers to the reference run."""

    @property
    def tensors(self) -> Mapping[str, TensorSource]:
        """By name."""

    @property
    def shards(self) -> tuple[ShardSource, ...]:
        """In order."""


class ReferenceModel:
    """A model in numpy. `step` has the surface of the compiled executor."""

    def __init__(
        self, file: WeightFile, spec: ModelSpec, graph: Graph, *, block: int = BLOCK, stop: Callable[[], bool] = bool
    ) -> None:
        """stop: asked before each op; True ends the step in Cancelled."""
        self._file = file
        self._spec = spec
        self._graph = graph
        self._block = block
        self._stop = stop
        self._weights: dict[str, F32] = {}
        self._cache: dict[tuple[str, int], F32] = {}
        self.states = DeltaStates()
        self._groups = groups_of(spec)

    def step(self, batch: Batch) -> F32:
        """Logits [n_out, n_vocab] f32 of the rows that the batch names.

        Raises:
            Cancelled: `stop` said so.
            EngineError: a value that is not finite.
        """
        values: dict[str, F32] = {}
        # Overflow and inf - inf are found at the end, in the logits; exp(-x) of silu may overflow, and its limit is right.
        with np.errstate(over="ignore", invalid="ignore"):
            for op in self._graph.ops:
                if self._stop():
                    raise Cancelled("the step was stopped")
                _RUN[type(op)](self, op, batch, values)
        logits = values[self._graph.logits.name]
        if not np.isfinite(logits).all():
            raise EngineError("the model computed values that are not finite; try another file")
        return logits

    def weight(self, name: str) -> F32:
        """The tensor `name` in f32, numpy order: [n_out, n_in] for a linear layer."""
        if name not in self._weights:
            info = self._file.tensors[name]
            # Read, not mapped: a file that is cut short meanwhile is an error and not a signal.
            path = self._file.shards[info.shard].path
            raw = np.fromfile(path, np.uint8, info.nbytes, offset=info.offset)
            if len(raw) != info.nbytes:
                raise ModelChanged(f"{path.name} became shorter or unreadable while it was in use; load it again")
            self._weights[name] = dequantise(info.type_name, raw).reshape(tuple(reversed(info.shape)))
        return self._weights[name]

    def cache(self, which: str, layer: int, n_heads: int, dim: int, n_blocks: int) -> F32:
        """The pool of keys or values of a layer, [>= n_blocks, block, n_heads, dim]; grown as needed."""
        pool = self._cache.get((which, layer))
        if pool is None or len(pool) < n_blocks:
            grown = np.zeros((max(n_blocks, 8, 0 if pool is None else 2 * len(pool)), self._block, n_heads, dim), np.float32)
            if pool is not None:
                grown[: len(pool)] = pool
            self._cache[which, layer] = pool = grown
        return pool

    def table(self, table: I32, layer: int) -> I32:
        """The block ids that a layer reads, of a sequence's tables."""
        return table if table.ndim == 1 else table[self._groups[layer]]

    @property
    def block(self) -> int:
        """Tokens per KV block."""
        return self._block

    def kv_heads(self, layer: int) -> int:
        """KV heads of a layer."""
        mixer = self._spec.blocks[layer].mixer
        if isinstance(mixer, Mla):
            return 1
        assert isinstance(mixer, AttentionSpec)
        return mixer.n_kv_heads

    def close(self) -> None:
        """Drops weights and cache."""
        self._weights.clear()
        self._cache.clear()
        self.states = DeltaStates()


def _embed(model: ReferenceModel, op: Embed, batch: Batch, values: dict[str, F32]) -> None:
    rows = model.weight(op.weight)[batch.token_ids]
    values[op.out.name] = rows if op.scale == 1.0 else rows * np.float32(op.scale)


def _norm(model: ReferenceModel, op: Norm, batch: Batch, values: dict[str, F32]) -> None:
    x = _heads(values, op.x, op.n_heads)
    scale = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(op.norm.eps))
    values[op.out.name] = _flat(x * scale * model.weight(op.norm.weight))


def _linear(model: ReferenceModel, op: Linear, batch: Batch, values: dict[str, F32]) -> None:
    width, first = op.out.width, op.first or 0
    y = values[op.x.name] @ model.weight(op.weight).reshape(-1, op.x.width)[first : first + width].T
    if op.bias is not None:
        bias = model.weight(op.bias)
        y = y + (bias if len(bias) == width else bias[first : first + width])
    values[op.out.name] = softcap(y, op.softcap)


def _rope(model: ReferenceModel, op: Rope, batch: Batch, values: dict[str, F32]) -> None:
    values[op.x.name] = _flat(_turned(model, op.rope, batch, _heads(values, op.x, op.n_heads)))


def _turned(model: ReferenceModel, rope: RopeSpec, batch: Batch, x: F32) -> F32:
    """x, [n_rows, n_heads, width], with the first n_rot values of each head rotated."""
    factors = None if rope.factors is None else model.weight(rope.factors)
    angles = batch.positions[:, None, None] * rope_frequencies(rope, factors)
    cos = (np.cos(angles) * rope.attn_factor).astype(np.float32)
    sin = (np.sin(angles) * rope.attn_factor).astype(np.float32)
    n = rope.n_rot
    first, second = (slice(0, n, 2), slice(1, n, 2)) if rope.kind == "norm" else (slice(0, n // 2), slice(n // 2, n))
    out, a, b = x.copy(), x[..., first], x[..., second]
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out


def _kv_store(model: ReferenceModel, op: KvStore, batch: Batch, values: dict[str, F32]) -> None:
    for which, buffer in (("k", op.k), ("v", op.v)):
        _store(model, which, op.layer, batch, _heads(values, buffer, model.kv_heads(op.layer)))


def _store(model: ReferenceModel, which: str, layer: int, batch: Batch, x: F32) -> None:
    """Writes x, [n_rows, n_heads, width], at the rows' slots."""
    tables = [model.table(table, layer) for table in batch.block_tables]
    pool = model.cache(which, layer, x.shape[1], x.shape[2], max(int(table.max()) for table in tables) + 1)
    for row, (seq, position) in enumerate(zip(batch.seq_of_row, batch.positions, strict=True)):
        pool[tables[seq][position // model.block], position % model.block] = x[row]


def _latent_store(model: ReferenceModel, op: LatentStore, batch: Batch, values: dict[str, F32]) -> None:
    x = values[op.x.name]
    c, k_pe = x[:, : op.rank], x[:, None, op.rank :]
    normed = c / np.sqrt(np.mean(c * c, axis=-1, keepdims=True) + np.float32(op.norm.eps)) * model.weight(op.norm.weight)
    row = np.concatenate((normed, _turned(model, op.rope, batch, k_pe)[:, 0]), axis=1)
    _store(model, "latent", op.layer, batch, row[:, None])


def _latent_attention(model: ReferenceModel, op: LatentAttention, batch: Batch, values: dict[str, F32]) -> None:
    nope = op.mla.head_dim - op.mla.rope.n_rot
    q = _heads(values, op.q, op.mla.n_heads).copy()
    q[..., nope:] = _turned(model, op.mla.rope, batch, q[..., nope:])
    out = np.empty((len(q), op.mla.n_heads, op.mla.v.n_out), np.float32)
    for seq, tables in enumerate(batch.block_tables):
        rows = np.flatnonzero(batch.seq_of_row == seq)
        if len(rows) == 0:
            continue
        table = model.table(tables, op.layer)
        n_past = int(batch.positions[rows].max()) + 1
        pool = model.cache("latent", op.layer, 1, op.mla.latent, 0)
        latent = pool[table[: -(-n_past // model.block)]].reshape(-1, op.mla.latent)[:n_past]
        out[rows] = attend_latent(model, op, q[rows], latent, batch.positions[rows])
    values[op.out.name] = _flat(out)


def _attention(model: ReferenceModel, op: Attention, batch: Batch, values: dict[str, F32]) -> None:
    q = _heads(values, op.q, op.n_heads)
    if op.temperature is not None:
        q = q * temperatures(op.temperature, batch.positions)[:, None, None]
    out = np.empty((len(q), op.n_heads, op.v_dim), np.float32)
    sinks = None if op.sinks is None else model.weight(op.sinks)
    for seq, whole in enumerate(batch.block_tables):
        rows = np.flatnonzero(batch.seq_of_row == seq)
        if len(rows) == 0:
            continue
        positions, reach = batch.positions[rows].astype(np.int64), op.window or 1 << 40
        first, n_past = max(0, int(positions.min()) - reach + 1) // model.block, int(positions.max()) + 1
        used = model.table(whole, op.layer)[first : -(-n_past // model.block)]
        at = first * model.block + np.arange(len(used) * model.block)
        keys = model.cache("k", op.layer, op.n_kv_heads, op.head_dim, 0)[used].reshape(-1, op.n_kv_heads, op.head_dim)
        vals = model.cache("v", op.layer, op.n_kv_heads, op.v_dim, 0)[used].reshape(-1, op.n_kv_heads, op.v_dim)
        hidden = (at > positions[:, None]) | (at <= positions[:, None] - reach)
        for head in range(op.n_heads):
            kv = head // (op.n_heads // op.n_kv_heads)
            scores = softcap(q[rows, head] @ keys[:, kv].T * np.float32(op.scale), op.softcap)
            scores[hidden] = -np.inf
            out[rows, head] = softmax(scores, None if sinks is None else float(sinks[head])) @ vals[:, kv]
    values[op.out.name] = _flat(out)


def _split(model: ReferenceModel, op: Split, batch: Batch, values: dict[str, F32]) -> None:
    halves = np.split(_heads(values, op.x, op.n_heads), 2, axis=-1)
    values[op.first.name], values[op.second.name] = (_flat(half) for half in halves)


def _sigmoid_gate(model: ReferenceModel, op: SigmoidGate, batch: Batch, values: dict[str, F32]) -> None:
    values[op.out.name] = np.divide(values[op.x.name], 1.0 + np.exp(-values[op.gate.name]), dtype=np.float32)


def _delta(model: ReferenceModel, op: Delta, batch: Batch, values: dict[str, F32]) -> None:
    shape, eps = op.shape, op.norm.eps
    taps, dt, a = model.weight(op.conv), model.weight(op.dt).reshape(-1), model.weight(op.a).reshape(-1)
    out = np.empty((len(batch.positions), shape.n_v_heads, shape.dim), np.float32)
    for seq in range(len(batch.block_tables)):
        rows = np.flatnonzero(batch.seq_of_row == seq)
        if len(rows) == 0:
            continue
        read, write, mark, n_marked = (seq, seq, -1, 0) if batch.states is None else batch.states[seq].tolist()
        state = model.states.read(op.layer, read, batch.positions[rows[0]] == 0, shape)
        inputs = split_inputs(shape, *(values[buffer.name][rows] for buffer in (op.x, op.z, op.beta, op.alpha)))
        y, past = convolve(inputs.u, state.past, taps)
        decay, rate = gates(inputs, dt, a)
        marks = () if mark < 0 else (n_marked,)
        o, matrices = delta_rule(shape, y, decay, rate, state.matrices, eps, marks)
        out[rows] = gated_norm(o, inputs.z, model.weight(op.norm.weight), eps)
        if mark >= 0:
            _, then = convolve(inputs.u[:n_marked], state.past, taps)
            model.states.write(op.layer, mark, DeltaState(then, matrices[0]))
        model.states.write(op.layer, write, DeltaState(past, matrices[-1]))
    values[op.out.name] = _flat(out)


def _gated_act(model: ReferenceModel, op: GatedAct, batch: Batch, values: dict[str, F32]) -> None:
    values[op.out.name] = gated(op.act, values[op.gate.name], values[op.up.name])


def _route(model: ReferenceModel, op: Route, batch: Batch, values: dict[str, F32]) -> None:
    bias = None if op.routing.bias is None else model.weight(op.routing.bias)
    chosen, weights = route(values[op.x.name], op.routing, bias, op.chosen.width)
    values[op.chosen.name] = chosen.astype(np.float32)
    values[op.weights.name] = weights


def _experts(model: ReferenceModel, op: Experts, batch: Batch, values: dict[str, F32]) -> None:
    values[op.out.name] = experts(model.weight, op, values[op.x.name], values[op.chosen.name], values[op.weights.name])


def _add(model: ReferenceModel, op: Add, batch: Batch, values: dict[str, F32]) -> None:
    y = values[op.y.name] if op.share is None else values[op.y.name] * sigmoid(values[op.share.name])
    values[op.x.name] = values[op.x.name] + y


def _out_rows(model: ReferenceModel, op: OutRows, batch: Batch, values: dict[str, F32]) -> None:
    values[op.out.name] = values[op.x.name][batch.out_rows]


def softcap(x: F32, cap: float) -> F32:
    """cap * tanh(x / cap); x where cap is 0."""
    return x if cap == 0.0 else np.float32(cap) * np.tanh(x / np.float32(cap))


def _heads(values: Mapping[str, F32], buffer: Buffer, n_heads: int) -> F32:
    x = values[buffer.name]
    return x.reshape(len(x), n_heads, x.shape[-1] // n_heads)


def _flat(x: F32) -> F32:
    return x.reshape(len(x), math.prod(x.shape[1:]))


_RUN: dict[type[Op], Callable[..., None]] = {
    Embed: _embed,
    Norm: _norm,
    Linear: _linear,
    Rope: _rope,
    KvStore: _kv_store,
    Attention: _attention,
    LatentStore: _latent_store,
    LatentAttention: _latent_attention,
    Split: _split,
    SigmoidGate: _sigmoid_gate,
    Delta: _delta,
    GatedAct: _gated_act,
    Route: _route,
    Experts: _experts,
    Add: _add,
    OutRows: _out_rows,
}
