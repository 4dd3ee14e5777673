"""MiniMax M2: queries and keys are normed over all heads at once, part of a head turns; sigmoid routers with a bias."""

from __future__ import annotations

from dataclasses import replace

from engine.arch.experts import moe_ffn, routing
from engine.arch.hparams import Header
from engine.arch.parts import Frame, attention, decoder, frame, norm
from engine.arch.registry import family
from engine.arch.spec import Attention, BlockSpec, ModelSpec


@family("minimax-m2")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of a minimax-m2 file.

    Raises:
        UnsupportedModel: a RoPE scaling or gating that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    blocks = tuple(
        BlockSpec(
            index=index,
            norm=norm(header, f"blk.{index}.attn_norm", common.n_embd, common.eps),
            mixer=_attention(header, common, index),
            ffn_norm=norm(header, f"blk.{index}.ffn_norm", common.n_embd, common.eps),
            ffn=moe_ffn(
                header,
                common.n_embd,
                index,
                header.of_layer("expert_feed_forward_length", index),
                routing(header, index, "sigmoid", norm_weights=True),
            ),
        )
        for index in range(common.n_layers)
    )
    return decoder(header, common, blocks)


def _attention(header: Header, common: Frame, index: int) -> Attention:
    part = attention(header, common, index, "neox", partial=True)
    return replace(
        part,
        q_norm=norm(header, f"blk.{index}.attn_q_norm", part.q.n_out, common.eps),
        k_norm=norm(header, f"blk.{index}.attn_k_norm", part.k.n_out, common.eps),
        whole_norm=True,
    )
