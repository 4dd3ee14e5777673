"""The llama family: Llama 1 to 3, Mistral, Mixtral, SmolLM2 and whatever else carries `general.architecture = llama`.

Mistral 3 (Mistral Small 3.1 and later, Ministral 3) is a llama whose queries grow with the logarithm of the position.

Pre-norm blocks, grouped-query attention, interleaved RoPE (the converter permuted q and k rows), SwiGLU or a mixture of it.
"""

from __future__ import annotations

from dataclasses import replace

from engine.arch.experts import MAX_EXPERTS, moe_ffn
from engine.arch.hparams import Header
from engine.arch.parts import attention, decoder, dense_ffn, frame, norm
from engine.arch.registry import family
from engine.arch.spec import Attention, BlockSpec, ModelSpec, Temperature


@family("llama")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of a llama file.

    Raises:
        UnsupportedModel: a RoPE scaling that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    widths = header.per_layer("feed_forward_length", common.n_layers)
    ffn = moe_ffn if header.integer("expert_count", 0, high=MAX_EXPERTS) > 0 else dense_ffn
    blocks = tuple(
        BlockSpec(
            index=index,
            norm=norm(header, f"blk.{index}.attn_norm", common.n_embd, common.eps),
            mixer=attention(header, common, index, "norm"),
            ffn_norm=norm(header, f"blk.{index}.ffn_norm", common.n_embd, common.eps),
            ffn=ffn(header, common.n_embd, index, n_ff),
        )
        for index, n_ff in enumerate(widths)
    )
    return decoder(header, common, blocks)


@family("mistral3")
def build_mistral3(header: Header) -> ModelSpec:
    """The ModelSpec of a mistral3 file. Raises like `build`."""
    spec = build(header)
    beta = header.number("attention.temperature_scale", 0.0, low=0.0, high=100.0)
    if beta == 0.0:
        return spec
    trained = header.integer("rope.scaling.original_context_length", spec.context_length, low=1, high=1 << 30)
    factor = Temperature(beta, trained)
    blocks = []
    for block in spec.blocks:
        assert isinstance(block.mixer, Attention)
        blocks.append(replace(block, mixer=replace(block.mixer, temperature=factor)))
    return replace(spec, blocks=tuple(blocks))
