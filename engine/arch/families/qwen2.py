"""The qwen2 family, dense and with a mixture of experts: biases on queries, keys and values, NeoX RoPE, SwiGLU.

In the mixture the weights of the chosen experts stay as the softmax gave them, and every row passes a shared expert with a gate.
"""

from __future__ import annotations

from engine.arch.experts import moe_ffn, routing, shared_expert
from engine.arch.hparams import Header
from engine.arch.parts import Frame, attention, decoder, dense_ffn, frame, norm
from engine.arch.registry import family
from engine.arch.spec import BlockSpec, DenseFfn, ModelSpec, MoeFfn


@family("qwen2")
def build_dense(header: Header) -> ModelSpec:
    """The ModelSpec of a dense qwen2 file.

    Raises:
        UnsupportedModel: a RoPE scaling that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    widths = header.per_layer("feed_forward_length", common.n_layers)
    ffns = (dense_ffn(header, common.n_embd, index, n_ff) for index, n_ff in enumerate(widths))
    return decoder(header, common, tuple(_block(header, common, index, ffn) for index, ffn in enumerate(ffns)))


@family("qwen2moe")
def build_moe(header: Header) -> ModelSpec:
    """The ModelSpec of a qwen2moe file. Raises like `build_dense`.

    Files from before the widths of experts were written have them in the tensors only.
    """
    common = frame(header)
    blocks = []
    for index in range(common.n_layers):
        at = f"blk.{index}"
        n_ff = header.of_layer("expert_feed_forward_length", index, header.width(f"{at}.ffn_down_exps.weight"))
        n_shared = header.integer("expert_shared_feed_forward_length", header.width(f"{at}.ffn_down_shexp.weight"), low=1)
        shared = shared_expert(header, common.n_embd, index, n_shared, gated=True)
        ffn = moe_ffn(header, common.n_embd, index, n_ff, routing(header, index, "softmax"), shared=shared)
        blocks.append(_block(header, common, index, ffn))
    return decoder(header, common, tuple(blocks))


def _block(header: Header, common: Frame, index: int, ffn: DenseFfn | MoeFfn) -> BlockSpec:
    at = f"blk.{index}"
    return BlockSpec(
        index=index,
        norm=norm(header, f"{at}.attn_norm", common.n_embd, common.eps),
        mixer=attention(header, common, index, "neox"),
        ffn_norm=norm(header, f"{at}.ffn_norm", common.n_embd, common.eps),
        ffn=ffn,
    )
