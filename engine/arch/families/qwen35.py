"""The qwen3next, qwen35 and qwen35moe families: three blocks of gated DeltaNet, then one of gated attention, and so on.

Attention turns a part of each head, norms queries and keys per head, and multiplies its output with gates that lie behind the
queries. qwen3next pairs value heads with key heads in groups and has older layouts of its projections; qwen35 tiles them.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.arch.experts import moe_ffn, shared_expert
from engine.arch.hparams import Header
from engine.arch.parts import Frame, attention, decoder, dense_ffn, frame, norm
from engine.arch.parts_delta import delta_net, recurrent_layers
from engine.arch.registry import family
from engine.arch.spec import BlockSpec, DenseFfn, ModelSpec, MoeFfn


@family("qwen35")
def build_dense(header: Header) -> ModelSpec:
    """The ModelSpec of a dense qwen35 file.

    Raises:
        UnsupportedModel: a RoPE scaling or a width that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header, hybrid=True)
    widths = header.per_layer("feed_forward_length", common.n_layers)
    ffns = [dense_ffn(header, common.n_embd, index, n_ff) for index, n_ff in enumerate(widths)]
    return _decoder(header, common, ffns, tiled=True)


@family("qwen35moe")
def build_moe(header: Header) -> ModelSpec:
    """The ModelSpec of a qwen35moe file: experts in every block, and a shared one with a gate. Raises like `build_dense`."""
    return _mixture(header, tiled=True)


@family("qwen3next")
def build_next(header: Header) -> ModelSpec:
    """The ModelSpec of a qwen3next file. Raises like `build_dense`."""
    return _mixture(header, tiled=False)


def _mixture(header: Header, *, tiled: bool) -> ModelSpec:
    common = frame(header, hybrid=True)
    widths = header.per_layer("expert_feed_forward_length", common.n_layers)
    n_shared = header.integer("expert_shared_feed_forward_length", low=1)
    ffns = [
        moe_ffn(header, common.n_embd, index, n_ff, shared=shared_expert(header, common.n_embd, index, n_shared, gated=True))
        for index, n_ff in enumerate(widths)
    ]
    return _decoder(header, common, ffns, tiled=tiled)


def _decoder(header: Header, common: Frame, ffns: Sequence[DenseFfn | MoeFfn], *, tiled: bool) -> ModelSpec:
    recurrent = recurrent_layers(header, common.n_kv_heads)
    blocks = (_block(header, common, index, ffn, recurrent[index], tiled) for index, ffn in enumerate(ffns))
    return decoder(header, common, tuple(blocks))


def _block(header: Header, common: Frame, index: int, ffn: DenseFfn | MoeFfn, recurrent: bool, tiled: bool) -> BlockSpec:
    at = f"blk.{index}"
    return BlockSpec(
        index=index,
        norm=norm(header, f"{at}.attn_norm", common.n_embd, common.eps),
        mixer=delta_net(header, common.n_embd, index, common.eps, tiled=tiled)
        if recurrent
        else attention(header, common, index, "neox", qk_norm=True, partial=True, gated=True),
        ffn_norm=norm(header, f"{at}.post_attention_norm", common.n_embd, common.eps),
        ffn=ffn,
    )
