"""Which experts travel in long chunks, when, and what room that takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.arch.units import UnitId
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, WorkerPlan
from engine.placement.streaming import LEAST_ROWS, placement_for_prefill, ring_bytes, streams


def placement(*places: tuple[Device, Device]) -> Placement:
    """(where the router of a layer lies, where its experts)."""
    units = [(UnitId("embed"), Numa(0))]
    for layer, (router, experts) in enumerate(places):
        units += [(UnitId("ffn", layer), router), (UnitId("experts", layer), experts)]  # type: ignore[list-item]
    return Placement(tuple(units), "f16", "f16", WorkerPlan((0,)))


def test_experts_of_the_cpu_go_to_their_router_and_no_others() -> None:
    cpu, gpu, other = Numa(0), Gpu(0), Gpu(1)
    usual = placement((gpu, cpu), (cpu, cpu), (other, cpu), (gpu, other), (gpu, cpu))
    found = placement_for_prefill(usual, frozenset({UnitId("experts", 4)}))
    assert found is not None
    assert [found.device_of(UnitId("experts", i)) for i in range(5)] == [gpu, cpu, other, other, cpu]
    assert [found.device_of(UnitId("ffn", i)) for i in range(5)] == [gpu, cpu, other, gpu, gpu]
    for nothing in (placement((cpu, cpu)), placement((gpu, gpu), (gpu, other))):
        assert placement_for_prefill(nothing, frozenset()) is None


@pytest.mark.parametrize(
    ("mode", "max_rows", "emulated", "expected"),
    [
        ("auto", LEAST_ROWS, False, True),
        ("auto", LEAST_ROWS - 1, False, False),
        ("auto", 4096, True, False),
        ("on", 9, True, True),
        ("off", 4096, False, False),
    ],
)
def test_when_there_is_a_plan_for_it(mode: str, max_rows: int, emulated: bool, expected: bool) -> None:
    options = replace(LoadOptions(), stream_experts=mode)  # type: ignore[arg-type]
    assert streams(options, max_rows, emulated=emulated) is expected


def test_a_ring_holds_two_of_the_largest_layers() -> None:
    assert ring_bytes([[100, 300], [257], []]) == 2 * (256 + 512)
    assert ring_bytes([]) == 0
