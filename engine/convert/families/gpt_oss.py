"""gpt-oss: gate and up lie row by row between each other in the checkpoint and are taken apart; experts in MXFP4 stay as they
are, only their nibbles change places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.convert.build import Model
from engine.convert.parts import ATTENTION, POST_NORM, expert_keys, frame, rope, rope_values
from engine.convert.safetensors import F32

_BLOCK = 32


def build(model: Model) -> None:
    """Fills the model. Raises: ConversionError."""
    config = model.config
    frame(model)
    rope(model, rope_values(config), config.head_dim)
    expert_keys(model)
    model.keys(attention__sliding_window=config.integer("sliding_window"))
    for layer in range(config.n_layers):
        model.renamed(layer, ATTENTION | POST_NORM | {"mlp.router": "ffn_gate_inp"})
        model.rows(f"blk.{layer}.attn_sinks.weight", f"{model.at(layer)}self_attn.sinks")
        _experts(model, layer)


def _experts(model: Model, layer: int) -> None:
    at, to = f"{model.at(layer)}mlp.experts.", f"blk.{layer}.ffn_"
    hidden, n_ff, n = model.config.integer("hidden_size"), model.config.integer("intermediate_size"), model.config.n_experts
    for part, first in (("gate", 0), ("up", 1)):
        every_other = _columns(first)
        model.made(f"{to}{part}_exps.bias", f"{at}gate_up_proj_bias", every_other, (n, n_ff))
        if f"{at}gate_up_proj" in model.checkpoint:
            model.slices(f"{to}{part}_exps.weight", f"{at}gate_up_proj", _turned(every_other), (n_ff, hidden))
        else:
            _mxfp4(model, f"{to}{part}_exps.weight", f"{at}gate_up_proj", (n, n_ff, hidden), slice(first, None, 2))
    model.rows(f"{to}down_exps.bias", f"{at}down_proj_bias")
    if f"{at}down_proj" in model.checkpoint:
        model.slices(f"{to}down_exps.weight", f"{at}down_proj", lambda w: w.T, (hidden, n_ff))
    else:
        _mxfp4(model, f"{to}down_exps.weight", f"{at}down_proj", (n, hidden, n_ff), slice(None))


def _columns(first: int) -> Callable[[F32], F32]:
    """Every other column, from `first` on."""
    return lambda values: values[:, first::2]


def _turned(change: Callable[[F32], F32]) -> Callable[[F32], F32]:
    """The change, then inputs along the rows."""
    return lambda values: change(values).T


def _mxfp4(model: Model, name: str, source: str, shape: tuple[int, int, int], rows: slice) -> None:
    """`source`_blocks [experts, rows, n_in / 32, 16] with values 2i and 2i + 1 in byte i, and `source`_scales [experts, rows,
    n_in / 32]. The format wants the scale first, and values i and i + 16 in byte i."""
    blocks, scales = f"{source}_blocks", f"{source}_scales"

    def make(expert: int) -> npt.NDArray[np.uint8]:
        packed: Any = model.checkpoint.raw(blocks, expert, expert + 1)[0][rows]
        values = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], _BLOCK)
        nibbles = values[..., :16] | values[..., 16:] << 4
        scale = np.asarray(model.checkpoint.raw(scales, expert, expert + 1)[0][rows])
        return np.concatenate([scale[..., None], nibbles], -1)

    model.blocks(name, "MXFP4", (blocks, scales), shape, make)
