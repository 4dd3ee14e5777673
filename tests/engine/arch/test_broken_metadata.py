"""Every number, word and list that a family reads, missing or spoiled in every way: a sentence that names it, or a model that is
understood; never a traceback, and soon."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.arch.registry import build_spec, supported
from engine.errors import EngineError
from engine.gguf.info import GgufFile, MetaValue
from engine.gguf.reader import read_gguf
from engine.gguf.rules import check_metadata
from engine.graph.build import build_graph
from tests.helpers.golden_models import MODELS, golden

WHOLE: tuple[MetaValue | None, ...] = (None, 0, 1, -1, 7, 2**16, 2**24, 2**31 - 1, 2**32 - 1, 2**63 - 1, "x", True, 1.5)
LISTS: tuple[MetaValue, ...] = (
    *(array("I"), array("I", [1]), array("i", [-1] * 64), array("I", [2] * 1000), array("I", [2**32 - 1] * 8)),
    *(array("f", [1.0] * 4), array("f", [math.nan] * 4), (), ("a", "b"), (True, False)),
)
REALS: tuple[MetaValue | None, ...] = (None, 0.0, -1.0, 1e-30, 1e30, math.nan, math.inf, -math.inf, "x", True, 7)
WORDS: tuple[MetaValue | None, ...] = (None, "", "x", "yarn", "none", "longrope", 7, True)
ABSENT: dict[str, MetaValue] = {
    **dict.fromkeys(("attention.sliding_window", "rope.scaling.original_context_length"), 64),
    **dict.fromkeys(("nextn_predict_layers", "expert_group_count", "expert_group_used_count", "expert_gating_func"), 1),
    **dict.fromkeys(("leading_dense_block_count", "expert_shared_count", "interleave_moe_layer_step"), 1),
    **dict.fromkeys(("full_attention_interval", "attention.sliding_window_pattern", "attention.q_lora_rank"), 4),
    **dict.fromkeys(("rope.scaling.factor", "rope.scaling.attn_factor", "rope.scale_linear", "rope.freq_base_swa"), 1.0),
    **dict.fromkeys(("attention.scale", "attention.temperature_scale", "expert_weights_scale"), 1.0),
    **dict.fromkeys(("final_logit_softcapping", "attn_logit_softcapping", "rope.scaling.yarn_log_multiplier"), 1.0),
    "rope.scaling.type": "yarn",
    "expert_weights_norm": True,
    "attention.recurrent_layers": (True, True, True, False),
}
"""Keys that files may leave out, with a value of their kind."""


def spoiled(value: MetaValue) -> tuple[MetaValue | None, ...]:
    """Everything that may stand in the place of a value; None: nothing does."""
    if isinstance(value, bool):
        return (None, not value, 0, 1, "x", 1.0, *LISTS)
    if isinstance(value, int):
        return (*WHOLE, *LISTS)
    if isinstance(value, float):
        return (*REALS, *LISTS)
    if isinstance(value, str):
        return (*WORDS, *LISTS)
    return (None, value[:-1], value + value, 7, 0, "x", True, *LISTS)


def mutants(file: GgufFile) -> Iterator[tuple[str, GgufFile]]:
    """The name of each key without its architecture, and the file with something else there."""
    prefix = f"{file.architecture}."
    values = {f"{prefix}{name}": value for name, value in ABSENT.items()}
    values |= {key: value for key, value in file.metadata.items() if key.startswith(prefix)}
    for key, value in values.items():
        for other in spoiled(value):
            metadata = {name: kept for name, kept in file.metadata.items() if name != key}
            yield key.removeprefix(prefix), replace(file, metadata=metadata if other is None else metadata | {key: other})


def of_each_family() -> dict[str, str]:
    """One golden model of each architecture."""
    return {read_gguf(golden(name).path).architecture: name for name in reversed(MODELS)}


def test_every_family_is_here() -> None:
    assert set(of_each_family()) == set(supported())


@pytest.mark.parametrize("architecture", supported())
def test_spoiled_metadata_is_a_sentence_that_names_the_key(architecture: str) -> None:
    n_refused = 0
    for name, file in mutants(read_gguf(golden(of_each_family()[architecture]).path)):
        began = time.perf_counter()
        try:
            check_metadata(file)
            build_graph(build_spec(file))
        except EngineError as error:
            n_refused += 1
            said = str(error)
            # Where widths do not fit together the tensor is named that is not as wide.
            assert name.rpartition(".")[2] in said or "tensor blk." in said or "tensor t" in said or "tensor o" in said, (
                name,
                said,
            )
            assert "\n" not in said and len(said) < 400
        assert time.perf_counter() - began < 1.0
    assert n_refused > 100
