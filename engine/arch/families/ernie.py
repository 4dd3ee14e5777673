"""ERNIE 4.5 with experts: interleaved RoPE, a few dense blocks, then softmax routers with a bias, beside a shared expert."""

from __future__ import annotations

from engine.arch.experts import moe_ffn, routing, shared_expert
from engine.arch.hparams import MAX_BLOCKS, Header
from engine.arch.parts import Frame, attention, decoder, dense_ffn, frame, norm
from engine.arch.registry import family
from engine.arch.spec import BlockSpec, DenseFfn, ModelSpec, MoeFfn


@family("ernie4_5-moe")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of an ernie4_5-moe file.

    Raises:
        UnsupportedModel: a RoPE scaling or gating that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    blocks = tuple(
        BlockSpec(
            index=index,
            norm=norm(header, f"blk.{index}.attn_norm", common.n_embd, common.eps),
            mixer=attention(header, common, index, "norm"),
            ffn_norm=norm(header, f"blk.{index}.ffn_norm", common.n_embd, common.eps),
            ffn=_ffn(header, common, index),
        )
        for index in range(common.n_layers)
    )
    return decoder(header, common, blocks)


def _ffn(header: Header, common: Frame, index: int) -> DenseFfn | MoeFfn:
    every = header.integer("interleave_moe_layer_step", 1, low=1, high=MAX_BLOCKS)
    if index < header.integer("leading_dense_block_count", 0, high=MAX_BLOCKS) or (index + 1) % every:
        return dense_ffn(header, common.n_embd, index, header.of_layer("feed_forward_length", index))
    # The width of the shared expert under its key is that of one of several in some files; the tensor knows.
    n_shared = header.width(f"blk.{index}.ffn_down_shexp.weight")
    return moe_ffn(
        header,
        common.n_embd,
        index,
        header.of_layer("expert_feed_forward_length", index),
        routing(header, index, "softmax", norm_weights=True),
        shared=None if n_shared is None else shared_expert(header, common.n_embd, index, n_shared),
    )
