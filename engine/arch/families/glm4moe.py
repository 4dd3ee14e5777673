"""The glm4moe family (GLM-4.5, 4.6): a few dense blocks, then mixtures of experts beside a shared one.

NeoX RoPE of part of a head, biases on queries, keys and values, in the larger models norms per head; the router compares sigmoids
plus a bias of each expert. Blocks for guessing further tokens stand at the end and are not run.
"""

from __future__ import annotations

from engine.arch.experts import moe_ffn, routing, shared_expert
from engine.arch.hparams import MAX_BLOCKS, Header
from engine.arch.parts import Frame, attention, decoder, dense_ffn, frame, norm
from engine.arch.registry import family
from engine.arch.spec import BlockSpec, DenseFfn, ModelSpec, MoeFfn


@family("glm4moe")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of a glm4moe file.

    Raises:
        UnsupportedModel: a RoPE scaling or gating that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    blocks = []
    for index in range(common.n_layers):
        at = f"blk.{index}"
        blocks.append(
            BlockSpec(
                index=index,
                norm=norm(header, f"{at}.attn_norm", common.n_embd, common.eps),
                mixer=attention(header, common, index, "neox", qk_norm=header.has(f"{at}.attn_q_norm.weight"), partial=True),
                ffn_norm=norm(header, f"{at}.post_attention_norm", common.n_embd, common.eps),
                ffn=_ffn(header, common, index),
            )
        )
    return decoder(header, common, tuple(blocks))


def _ffn(header: Header, common: Frame, index: int) -> DenseFfn | MoeFfn:
    if index < header.integer("leading_dense_block_count", 0, high=MAX_BLOCKS):
        return dense_ffn(header, common.n_embd, index, header.of_layer("feed_forward_length", index))
    n_ff = header.of_layer("expert_feed_forward_length", index)
    n_shared = header.integer("expert_shared_count", 0, high=1024)
    shared = shared_expert(header, common.n_embd, index, n_ff * n_shared) if n_shared else None
    return moe_ffn(header, common.n_embd, index, n_ff, routing(header, index, "sigmoid"), shared=shared)
