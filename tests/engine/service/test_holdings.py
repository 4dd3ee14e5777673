"""What grows without a reason is told, what has one is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from engine.hardware.page_nodes import nodes_of
from engine.placement.placement import Gpu, Numa
from engine.runtime.node_memory import Meant
from engine.runtime.residency import Holding, Residency
from engine.service import holdings
from engine.service.holdings import SAMPLED_PAGES, HoldingWatch, sampled, slope_of
from kernels_pyx.arena import Arena

GIB = 1 << 30


class Model:
    """As much of a loaded model as is looked at."""

    def __init__(self) -> None:
        self.kv = GIB
        self.workspace = GIB

    @property
    def residency(self) -> Residency:
        rows = (
            Holding(Numa(0), "weights", 9 * GIB, mapped=True),
            Holding(Numa(0), "kv", self.kv),
            Holding(Gpu(0), "workspace", self.workspace),
        )
        return Residency(rows, 0)


class Machine:
    """What the system counts, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.held: dict[Any, int] = {Numa(0): GIB, Gpu(0): 2 * GIB}
        monkeypatch.setattr(holdings, "system_bytes", lambda device, known: self.held[device])

    def watch(self, model: Model) -> HoldingWatch:
        return HoldingWatch(cast(Any, model), lambda: self.now)


def test_bytes_that_have_a_reason_are_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, model = Machine(monkeypatch), Model()
    watch = machine.watch(model)
    for _ in range(30):
        machine.now += 10
        machine.held[Numa(0)] += GIB // 30  # pages of the cache, as contexts grow
        machine.held[Gpu(0)] += GIB // 60
        model.workspace += GIB // 60  # in the ledger too
        watch.look()
    cpu, gpu = watch.trends()
    assert (cpu.device, gpu.device, cpu.sentence, gpu.sentence) == ("numa0", "gpu0", "", "")
    assert cpu.slope_bytes_s == pytest.approx(GIB / 300, rel=0.01) and cpu.span_s == 300


def test_growth_without_a_reason_is_told_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, model = Machine(monkeypatch), Model()
    watch = machine.watch(model)
    for i in range(60):
        machine.now += 10
        machine.held[Gpu(0)] += GIB // 60
        watch.look()
        if i == 5:
            assert watch.trends()[1].sentence == ""  # too early to say
    cpu, gpu = watch.trends()
    assert cpu.sentence == "" and cpu.slope_bytes_s == 0
    assert gpu.sentence.startswith("gpu0 holds 1,073,741,") and "10 minutes ago without a known reason" in gpu.sentence


def test_looks_are_rare_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    watch = machine.watch(Model())
    for _ in range(10_000):
        machine.now += 1
        watch.look()
    assert len(watch._looks) == holdings.KEPT


def test_slopes() -> None:
    assert slope_of([(0.0, 5)]) == 0
    assert slope_of([(0.0, 1), (1.0, 3), (2.0, 5)]) == 2
    assert holdings.anonymous_bytes() > 1 << 20


def test_pages_on_other_nodes_are_told_by_their_share() -> None:
    places = (Meant((0,), 1 << 20, 64 * 4096), Meant((1,), 1 << 30, 64 * 4096))
    asked: list[int] = []

    def look(addresses: Sequence[int]) -> list[int | None]:
        asked.extend(addresses)
        return [None if address % 8192 else 0 for address in addresses]

    found = sampled(places, look)
    assert found.share == 0.5 and found.known == 64 and found.by_node == {0: 64}
    assert len(asked) == 128 and max(asked) < (1 << 30) + 64 * 4096
    assert sampled(places, lambda addresses: [None] * len(addresses)).share is None
    assert sampled((), look).share is None
    asked.clear()
    sampled((Meant((0,), 0, 1 << 40),), look)
    assert len(asked) == SAMPLED_PAGES


def test_the_system_is_asked_where_pages_lie() -> None:
    arena = Arena(8 * 4096)
    memoryview(arena)[:4096] = bytes(4096)
    touched, untouched = nodes_of([arena.address, arena.address + 4 * 4096])
    assert touched is None or touched >= 0
    assert untouched is None and nodes_of([]) == []
    arena.close()
