"""Placements as flags of llama.cpp: what is written means the same when it is read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.arch.units import UnitId
from engine.hardware.gpus import GpuInfo
from engine.placement.export import to_flags
from engine.placement.flags import parse_flags, parse_words
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, units_of
from engine.placement.rules import resolve
from tests.helpers.described import Described, model

GPUS = [GpuInfo(i, "card", 24 << 30, 24 << 30) for i in range(3)]
OPTIONS = LoadOptions(n_threads=2)
UNTIED = tuple(
    name
    for name in ("qwen3moe", "qwen35moe", "deepseek2-v3", "gpt-oss", "llama-mha-spm")
    if (one := model(name)).spec.head.weight != one.spec.embed
)


def placed(name: str, flags: str, n_gpus: int) -> Placement:
    return resolve(parse_flags(flags), *model(name), GPUS[:n_gpus], OPTIONS).placement


def again(one: Described, words: tuple[str, ...]) -> tuple[tuple[UnitId, Device], ...]:
    return resolve(parse_words(words), *one, GPUS, OPTIONS).placement.units


def test_there_are_models_to_try() -> None:
    assert len(UNTIED) >= 3


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("-ngl 99", ("-ngl", "999", "-sm", "none")),
        ("-ngl 0", ("-ngl", "0")),
        ("-ngl 99 -sm none -mg 1", ("-ngl", "999", "-sm", "none", "-mg", "1")),
        ("-ngl 99 -cmoe", ("-ngl", "999", "-sm", "none", "-ot", r"blk\.\d+\.ffn_(gate|up|down|gate_up)_exps\.=CPU")),
        ("-ngl 3 -ctk q8_0", ("-ngl", "3", "-sm", "none", "-ctk", "q8_0")),
    ],
)
def test_simple_placements_have_short_flags(flags: str, words: tuple[str, ...]) -> None:
    placement = placed("qwen3moe", flags, 2 if "-mg" in flags else 1)
    done = to_flags(placement.units, placement.k_type, placement.v_type)
    assert (done.words, done.notes) == (words, ())


def test_layers_over_several_gpus_are_counted() -> None:
    placement = placed("qwen3moe", "-ngl 3 -ts 2,1", 2)
    words = to_flags(placement.units, "f16", "f16").words
    assert words[:4] == ("-ngl", "3", "-ts", "2,1")
    assert again(model("qwen3moe"), words) == placement.units


@settings(max_examples=30, deadline=None)
@given(data=st.data(), name=st.sampled_from(UNTIED))
def test_what_is_written_is_read_as_the_same_places(data: st.DataObject, name: str) -> None:
    one = model(name)
    devices: tuple[Device, ...] = (Numa(0), Gpu(0), Gpu(2))
    drawn = {unit: data.draw(st.sampled_from(devices)) for unit in units_of(one.spec)}
    units = tuple(
        (unit, drawn[UnitId("mixer", unit.layer)] if unit.kind in ("kv", "state") else where) for unit, where in drawn.items()
    )
    assert again(one, to_flags(units, "f16", "f16").words) == units


def test_what_cannot_be_said_is_noted() -> None:
    one = model("qwen3moe")
    places = {unit: Gpu(0) if unit.layer == 1 else Numa(0) for unit in units_of(one.spec)}
    done = to_flags(tuple(places.items()), "int8", "f16")
    assert done.notes == (
        "the cache of layer 2 lies, with llama.cpp, where its layer is counted to and not with its attention",
        "llama.cpp has no cache of type int8: q8_0 is written",
    )
