"""The gpt-oss family: layers with a window and without take turns, each head has a sink, and every matrix has a bias.

NeoX RoPE stretched by YaRN, a mixture of experts in every block whose weights are the softmax over the chosen logits, and a gated
activation that is clamped.
"""

from __future__ import annotations

from dataclasses import replace

from engine.arch.experts import moe_ffn, routing
from engine.arch.hparams import Header
from engine.arch.parts import Frame, attention, decoder, frame, norm
from engine.arch.registry import family
from engine.arch.spec import BlockSpec, ClampedSwiglu, ModelSpec
from engine.arch.windows import layer_windows

PERIOD = 2


@family("gpt-oss")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of a gpt-oss file.

    Raises:
        UnsupportedModel: a RoPE scaling that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    windows = layer_windows(header, common.n_layers, PERIOD)
    return decoder(header, common, tuple(_block(header, common, index, window) for index, window in enumerate(windows)))


def _block(header: Header, common: Frame, index: int, window: int | None) -> BlockSpec:
    at, n_ff = f"blk.{index}", header.integer("expert_feed_forward_length", low=1)
    return BlockSpec(
        index=index,
        norm=norm(header, f"{at}.attn_norm", common.n_embd, common.eps),
        mixer=replace(
            attention(header, common, index, "neox"),
            window=window,
            sinks=header.tensor(f"{at}.attn_sinks.weight", common.n_heads[index]),
        ),
        ffn_norm=norm(header, f"{at}.post_attention_norm", common.n_embd, common.eps),
        ffn=moe_ffn(header, common.n_embd, index, n_ff, routing(header, index, "softmax_chosen"), act=ClampedSwiglu()),
    )
