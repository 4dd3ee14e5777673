"""The parts that families share, read from a header: attention, feed-forward networks, rotations, and what surrounds blocks.

A family says which of them its blocks have; every tensor that is named here is known to exist with the right shape.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from engine.arch.hparams import MAX_BLOCKS, Header
from engine.arch.spec import Attention, BlockSpec, DenseFfn, Linear, ModelSpec, Norm, Rope, RopeKind, Yarn
from engine.errors import GgufError, UnsupportedModel

MAX_HEADS = 4096
_OF_BLOCK = re.compile(r"blk\.(\d{1,9})\.([^.]+)")


@dataclass(frozen=True, slots=True)
class Frame:
    """What all blocks of a decoder have in common, and the heads of each."""

    n_embd: int
    n_layers: int
    eps: float
    n_heads: tuple[int, ...]
    n_kv_heads: tuple[int, ...]
    """0 where a block of a hybrid has no attention."""


def frame(header: Header, *, hybrid: bool = False) -> Frame:
    """The frame of the model; blocks that only guess further tokens are left out.

    hybrid: some blocks have no attention, which some converters write as no heads of keys. Raises GgufError: bad metadata.
    """
    n_layers = header.integer("block_count", low=1, high=MAX_BLOCKS) - header.n_extra
    if n_layers < 1:
        raise GgufError(
            f"{header.key('block_count')} leaves no block beside {header.n_extra} for guessing further tokens "
            f"({header.key('nextn_predict_layers')}); the metadata contradicts itself"
        )
    n_heads = header.per_layer("attention.head_count", n_layers, high=MAX_HEADS)
    return Frame(
        n_embd=header.integer("embedding_length", low=1),
        n_layers=n_layers,
        eps=header.number("attention.layer_norm_rms_epsilon", low=0.0, high=1.0),
        n_heads=n_heads,
        n_kv_heads=_kv_heads(header, n_heads, 0 if hybrid else 1),
    )


def decoder(header: Header, common: Frame, blocks: tuple[BlockSpec, ...]) -> ModelSpec:
    """The whole model around its blocks; the head is the embedding where the file has no other. Raises GgufError."""
    _check_no_block_is_left(header, common.n_layers + header.n_extra)
    n_vocab = header.n_vocab()
    embed = header.tensor("token_embd.weight", common.n_embd, n_vocab)
    tied = Linear(embed, common.n_embd, n_vocab)
    return ModelSpec(
        architecture=header.architecture,
        n_vocab=n_vocab,
        n_embd=common.n_embd,
        context_length=header.integer("context_length", low=1, high=1 << 30),
        embed=embed,
        blocks=blocks,
        out_norm=norm(header, "output_norm", common.n_embd, common.eps),
        head=header.linear("output", common.n_embd, n_vocab) if header.has("output.weight") else tied,
    )


def _check_no_block_is_left(header: Header, n_blocks: int) -> None:
    """Refuses a file with more blocks than it says: a model that stops halfway answers nonsense. Those that guess further tokens
    (`nextn`) may stand behind the others uncounted."""
    beyond = [match for match in map(_OF_BLOCK.match, header.tensors) if match is not None and int(match[1]) >= n_blocks]
    guessing = {int(match[1]) for match in beyond if match[2] == "nextn"}
    left = min((int(match[1]) for match in beyond if int(match[1]) not in guessing), default=None)
    if left is not None:
        raise GgufError(
            f"{header.key('block_count')} is {n_blocks}, but the file holds blk.{left} too; the metadata contradicts itself"
        )


def norm(header: Header, name: str, width: int, eps: float) -> Norm:
    """The RMS norm `name`.weight [width]. Raises GgufError."""
    return Norm(header.tensor(f"{name}.weight", width), eps)


def attention(
    header: Header,
    common: Frame,
    index: int,
    kind: RopeKind,
    *,
    qk_norm: bool = False,
    partial: bool = False,
    gated: bool = False,
) -> Attention:
    """Grouped-query attention of block `index`.

    qk_norm: queries and keys are normed per head before they turn. partial: part of a head may turn, see `rope`. gated: q gives a
    gate for each output too, head by head behind the queries.

    Raises:
        UnsupportedModel: a scaling of RoPE that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    at, n_embd = f"blk.{index}", common.n_embd
    n_heads, n_kv_heads = common.n_heads[index], common.n_kv_heads[index]
    if n_kv_heads < 1:
        raise GgufError(
            f"{header.key('attention.head_count_kv')} is 0 for layer {index}, which has attention; "
            "the metadata contradicts itself"
        )
    head_dim = header.integer("attention.key_length", _default_head_dim(header, n_embd, n_heads), low=1, high=4096)
    v_dim = header.integer("attention.value_length", head_dim, low=1, high=4096)
    if gated and v_dim != head_dim:
        raise GgufError(
            f"{header.key('attention.value_length')} is {v_dim}, but gates come in heads of {head_dim} (attention.key_length); "
            "the metadata contradicts itself"
        )
    q, k, v = _projections(
        header, at, n_embd, (n_heads * head_dim * (2 if gated else 1), n_kv_heads * head_dim, n_kv_heads * v_dim)
    )
    return Attention(
        q=q,
        k=k,
        v=v,
        out=header.linear(f"{at}.attn_output", n_heads * v_dim, n_embd),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        v_dim=v_dim,
        scale=header.number("attention.scale", 0.0, low=0.0, high=1e4) or head_dim**-0.5,
        rope=rope(header, kind, head_dim, partial=partial),
        q_norm=norm(header, f"{at}.attn_q_norm", head_dim, common.eps) if qk_norm else None,
        k_norm=norm(header, f"{at}.attn_k_norm", head_dim, common.eps) if qk_norm else None,
        gated=gated,
    )


def _projections(header: Header, at: str, n_embd: int, widths: tuple[int, int, int]) -> tuple[Linear, Linear, Linear]:
    """Queries, keys and values: three tensors, or one whose rows they share in this order. Biases alike."""
    names = (f"{at}.attn_q", f"{at}.attn_k", f"{at}.attn_v")
    if not header.has(f"{at}.attn_qkv.weight"):
        q, k, v = (header.linear(name, n_embd, width) for name, width in zip(names, widths, strict=True))
        return q, k, v
    shared, first, found = header.linear(f"{at}.attn_qkv", n_embd, sum(widths)), 0, []
    for name, width in zip(names, widths, strict=True):
        own = header.tensor(f"{name}.bias", width) if header.has(f"{name}.bias") else None
        found.append(Linear(shared.weight, n_embd, width, shared.bias or own, first))
        first += width
    return found[0], found[1], found[2]


def dense_ffn(header: Header, n_embd: int, index: int, n_ff: int, suffix: str = "") -> DenseFfn:
    """The SwiGLU network of block `index`, n_ff wide; suffix: of the names of its tensors. Raises GgufError."""
    at = f"blk.{index}"
    return DenseFfn(
        gate=header.linear(f"{at}.ffn_gate{suffix}", n_embd, n_ff),
        up=header.linear(f"{at}.ffn_up{suffix}", n_embd, n_ff),
        down=header.linear(f"{at}.ffn_down{suffix}", n_ff, n_embd),
    )


def rope(header: Header, kind: RopeKind, head_dim: int, *, partial: bool = False) -> Rope:
    """The rotation of heads: plain, by the factors that the file brings, scaled linearly, or YaRN.

    partial: only the first rope.dimension_count values of a head may turn; else all of them must.

    Raises:
        UnsupportedModel: another scaling. GgufError: contradicting metadata.
    """
    n_rot = header.integer("rope.dimension_count", head_dim, low=2, high=4096)
    if n_rot > head_dim or n_rot % 2 or not (partial or n_rot == head_dim):
        what = f"at most the {head_dim} values of a head" if partial else f"whole heads of {head_dim}"
        raise GgufError(f"{header.key('rope.dimension_count')} is {n_rot}, {header.architecture} rotates {what} (an even number)")
    scaling = header.text("rope.scaling.type", "linear", ("none", "linear", "yarn", "longrope"))
    if scaling == "longrope":
        raise UnsupportedModel(f"{header.key('rope.scaling.type')} is longrope; this version runs none, linear and yarn")
    # Files from before August 2023 hold the factor under rope.scale_linear; a factor of 0 means "not scaled".
    old = header.number("rope.scale_linear", 1.0, low=0.0, high=1e6)
    factor = header.number("rope.scaling.factor", old, low=0.0, high=1e6) or 1.0
    yarn = _yarn(header, factor) if scaling == "yarn" else None
    return Rope(
        kind=kind,
        n_rot=n_rot,
        # YaRN divides by the logarithm of the base.
        freq_base=header.number("rope.freq_base", 10000.0, low=1e-3 if yarn is None else 1.001, high=1e12),
        freq_scale=1.0 / factor if scaling == "linear" else 1.0,
        factors=header.tensor("rope_freqs.weight", n_rot // 2) if header.has("rope_freqs.weight") else None,
        attn_factor=(header.number("rope.scaling.attn_factor", 1.0, low=0.0, high=1e3) or 1.0)
        * (1.0 if yarn is None else _yarn_magnitude(header, factor)),
        yarn=yarn,
    )


def _yarn(header: Header, factor: float) -> Yarn:
    if header.number("rope.scaling.yarn_ext_factor", -1.0, low=-1.0, high=1.0) not in (-1.0, 1.0):
        raise UnsupportedModel(
            f"{header.key('rope.scaling.yarn_ext_factor')} is neither 1 nor absent; this version runs YaRN whole"
        )
    trained = header.integer("context_length", low=1, high=1 << 30)
    return Yarn(
        factor=factor,
        original_context=header.integer("rope.scaling.original_context_length", trained, low=1, high=1 << 30),
        beta_fast=header.number("rope.scaling.yarn_beta_fast", 32.0, low=1e-3, high=1e6),
        beta_slow=header.number("rope.scaling.yarn_beta_slow", 1.0, low=1e-3, high=1e6),
        # A key of ours, written by `convert`: other engines pass over it and round.
        rounded=header.flag("rope.scaling.yarn_truncate", True),
    )


def _yarn_magnitude(header: Header, factor: float) -> float:
    """What YaRN multiplies cosines and sines with, so that attention stays as sharp as in the context of training."""

    def grown(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1.0 else 1.0

    # Without the key: grown(1) / grown(0).
    return grown(1.0) / grown(header.number("rope.scaling.yarn_log_multiplier", 0.0, low=0.0, high=1e3))


def _kv_heads(header: Header, n_heads: tuple[int, ...], low: int) -> tuple[int, ...]:
    name = "attention.head_count_kv"
    kv_heads = header.per_layer(name, len(n_heads), low=low, high=MAX_HEADS) if header.key(name) in header.metadata else n_heads
    for n, n_kv in zip(n_heads, kv_heads, strict=True):
        if n_kv and n % n_kv:
            raise GgufError(f"{header.key(name)} {n_kv} does not divide the {n} heads; the metadata contradicts itself")
    return kv_heads


def _default_head_dim(header: Header, n_embd: int, n_heads: int) -> int | None:
    if n_embd % n_heads and header.key("attention.key_length") not in header.metadata:
        raise GgufError(
            f"{header.key('embedding_length')} {n_embd} is no multiple of {header.key('attention.head_count')} {n_heads} "
            f"and {header.key('attention.key_length')} is missing; the metadata contradicts itself"
        )
    return n_embd // n_heads or None
