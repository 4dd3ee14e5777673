"""Hunyuan with experts (A13B): heads are normed after they turned; softmax routers and a shared expert in every block."""

from __future__ import annotations

from dataclasses import replace

from engine.arch.experts import moe_ffn, routing, shared_expert
from engine.arch.hparams import Header
from engine.arch.parts import attention, decoder, frame, norm
from engine.arch.registry import family
from engine.arch.spec import BlockSpec, ModelSpec


@family("hunyuan-moe")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of a hunyuan-moe file.

    Raises:
        UnsupportedModel: a RoPE scaling or gating that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    blocks = []
    for index in range(common.n_layers):
        at = f"blk.{index}"
        n_shared = header.integer("expert_shared_feed_forward_length", header.width(f"{at}.ffn_down_shexp.weight"), low=1)
        blocks.append(
            BlockSpec(
                index=index,
                norm=norm(header, f"{at}.attn_norm", common.n_embd, common.eps),
                mixer=replace(attention(header, common, index, "neox", qk_norm=True), norm_last=True),
                ffn_norm=norm(header, f"{at}.ffn_norm", common.n_embd, common.eps),
                ffn=moe_ffn(
                    header,
                    common.n_embd,
                    index,
                    header.of_layer("expert_feed_forward_length", index),
                    routing(header, index, "softmax", norm_weights=True),
                    shared=shared_expert(header, common.n_embd, index, n_shared),
                ),
            )
        )
    return decoder(header, common, tuple(blocks))
