"""The deepseek2 family: latent attention and many small experts, as in DeepSeek V2 to R1, Kimi-K2, Moonlight, GLM-4.7-Flash.

The first blocks are dense, the others mixtures with experts that every row passes. Files come in two layouts: `attn_kv_b` as it
was trained, or split into `attn_k_b` (transposed, for attention over latent rows) and `attn_v_b`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.arch.experts import MAX_EXPERTS, moe_ffn, routing, shared_expert
from engine.arch.hparams import Header
from engine.arch.parts import Frame, decoder, dense_ffn, frame, norm, rope
from engine.arch.registry import family
from engine.arch.spec import BlockSpec, DenseFfn, HeadMatrices, Linear, Mla, ModelSpec, MoeFfn, Norm, Rope
from engine.errors import GgufError, UnsupportedModel


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of latent attention. head_dim: of a query, nope + n_rot values."""

    rank: int
    head_dim: int
    v_dim: int
    n_rot: int

    @property
    def nope(self) -> int:
        return self.head_dim - self.n_rot


@family("deepseek2")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of a deepseek2 file.

    Raises:
        UnsupportedModel: a RoPE or temperature scaling that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    if header.number("attention.temperature_scale", 0.0, low=0.0, high=1e6):
        raise UnsupportedModel(
            f"{header.key('attention.temperature_scale')} is set; this version does not sharpen attention by position"
        )
    common = frame(header)
    sizes = _sizes(header)
    turn, scale = _turn(header, sizes)
    n_dense = header.integer("leading_dense_block_count", 0, high=common.n_layers)
    mixture = header.integer("expert_count", 0, high=MAX_EXPERTS) > 0
    blocks = tuple(
        BlockSpec(
            index=index,
            norm=norm(header, f"blk.{index}.attn_norm", common.n_embd, common.eps),
            mixer=_attention(header, common, sizes, index, turn, scale),
            ffn_norm=norm(header, f"blk.{index}.ffn_norm", common.n_embd, common.eps),
            ffn=_ffn(header, common, index, dense=index < n_dense or not mixture),
        )
        for index in range(common.n_layers)
    )
    return decoder(header, common, blocks)


def _sizes(header: Header) -> _Sizes:
    """The `_mla` keys describe heads as trained; files from before attn_kv_b was split have them under the plain names."""
    suffix = "_mla" if header.key("attention.key_length_mla") in header.metadata else ""
    head_dim = header.integer(f"attention.key_length{suffix}", low=4, high=2048)
    n_rot = header.integer("rope.dimension_count", low=2, high=1024)
    if n_rot >= head_dim:
        raise GgufError(
            f"{header.key('rope.dimension_count')} is {n_rot}, it must be less than the {head_dim} values of a query head "
            f"(attention.key_length{suffix}); the metadata contradicts itself"
        )
    return _Sizes(
        rank=header.integer("attention.kv_lora_rank", low=1, high=8192),
        head_dim=head_dim,
        v_dim=header.integer(f"attention.value_length{suffix}", low=1, high=2048),
        n_rot=n_rot,
    )


def _turn(header: Header, sizes: _Sizes) -> tuple[Rope, float]:
    """The rotation, and what scores are multiplied with: 1 / sqrt(head_dim), and under YaRN the square of its magnitude.

    The model was trained with mscale on cosines and sines and mscale_all_dim in the scores, which are equal in every release;
    `yarn_log_multiplier` is a tenth of it. Files without the key come from a time when the magnitude went into both places.
    """
    turn = rope(header, "norm", sizes.n_rot)
    scale = sizes.head_dim**-0.5
    if turn.yarn is None:
        return turn, scale
    mscale = header.number("rope.scaling.yarn_log_multiplier", 0.0, low=0.0, high=1e3) / 0.1
    grown = 0.1 * (mscale or 1.0) * math.log(max(turn.yarn.factor, 1.0)) + 1.0
    given = header.number("rope.scaling.attn_factor", 1.0, low=0.0, high=1e3) or 1.0
    return replace(turn, attn_factor=given * (1.0 if mscale else grown)), scale * grown * grown


def _attention(header: Header, common: Frame, sizes: _Sizes, index: int, turn: Rope, scale: float) -> Mla:
    at, n_heads, n_embd = f"blk.{index}", common.n_heads[index], common.n_embd
    n_q = n_heads * sizes.head_dim
    absorb, k, v = _latent_matrices(header, sizes, at, n_heads)
    q_a: Linear | None = None
    q_norm: Norm | None = None
    if header.has(f"{at}.attn_q.weight"):
        q = header.linear(f"{at}.attn_q", n_embd, n_q)
    else:
        q_rank = header.integer("attention.q_lora_rank", low=1)
        q_a = header.linear(f"{at}.attn_q_a", n_embd, q_rank)
        q_norm = norm(header, f"{at}.attn_q_a_norm", q_rank, common.eps)
        q = header.linear(f"{at}.attn_q_b", q_rank, n_q)
    return Mla(
        q=q,
        kv_a=header.linear(f"{at}.attn_kv_a_mqa", n_embd, sizes.rank + sizes.n_rot),
        kv_norm=norm(header, f"{at}.attn_kv_a_norm", sizes.rank, common.eps),
        absorb=absorb,
        k=k,
        v=v,
        out=header.linear(f"{at}.attn_output", n_heads * sizes.v_dim, n_embd),
        n_heads=n_heads,
        rank=sizes.rank,
        scale=scale,
        rope=turn,
        q_a=q_a,
        q_norm=q_norm,
    )


def _latent_matrices(header: Header, sizes: _Sizes, at: str, n_heads: int) -> tuple[HeadMatrices, HeadMatrices, HeadMatrices]:
    """What brings unrotated queries to latent rows, and latent rows to keys and to values."""
    rank, nope, v_dim = sizes.rank, sizes.nope, sizes.v_dim
    if header.has(f"{at}.attn_k_b.weight"):
        k_b = header.tensor(f"{at}.attn_k_b.weight", nope, rank, n_heads)
        v_b = header.tensor(f"{at}.attn_v_b.weight", rank, v_dim, n_heads)
        return (
            HeadMatrices(k_b, nope, rank, n_heads, step=rank),
            HeadMatrices(k_b, rank, nope, n_heads, step=rank, transposed=True),
            HeadMatrices(v_b, rank, v_dim, n_heads, step=v_dim),
        )
    step = nope + v_dim
    kv_b = header.tensor(f"{at}.attn_kv_b.weight", rank, n_heads * step)
    return (
        HeadMatrices(kv_b, nope, rank, n_heads, step=step, transposed=True),
        HeadMatrices(kv_b, rank, nope, n_heads, step=step),
        HeadMatrices(kv_b, rank, v_dim, n_heads, step=step, first=nope),
    )


def _ffn(header: Header, common: Frame, index: int, *, dense: bool) -> DenseFfn | MoeFfn:
    if dense:
        return dense_ffn(header, common.n_embd, index, header.per_layer("feed_forward_length", common.n_layers)[index])
    n_ff = header.integer("expert_feed_forward_length", low=1)
    n_shared = header.integer("expert_shared_count", 0, high=1024)
    shared = shared_expert(header, common.n_embd, index, n_ff * n_shared) if n_shared else None
    return moe_ffn(header, common.n_embd, index, n_ff, routing(header, index, "softmax"), shared=shared)
