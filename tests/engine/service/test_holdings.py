"""What grows without a reason is told, what has one is not."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
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
        self.placed: Any = None
        self.moving = False

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
        monkeypatch.setattr(holdings, "_is_real", lambda gpu: True)

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
        machine.held[Gpu(0)] += GIB // 30 * (i < 30)
        watch.look()
        if i == 5:
            assert watch.trends()[1].sentence == ""  # too early to say
    cpu, gpu = watch.trends()
    assert cpu.sentence == "" and cpu.slope_bytes_s == 0
    assert gpu.sentence.startswith("gpu0 holds 1,073,741,") and "10 minutes ago without a known reason" in gpu.sentence


def minutes_of(machine: Machine, watch: HoldingWatch, model: Model, grows: Any, n: int = 60) -> str:
    """The sentence about the first device after n looks ten seconds apart. grows(i): bytes that have come by then."""
    first = dict(machine.held)
    for i in range(1, n + 1):
        machine.now += 10
        machine.held[Numa(0)] = first[Numa(0)] + int(grows(i))
        watch.look()
    return watch.trends()[0].sentence


HALF_A_GB = 0.5e9 / 360
"""0.5 GB an hour, by looks ten seconds apart."""


def test_half_a_gigabyte_an_hour_is_told_within_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, model = Machine(monkeypatch), Model()
    told = minutes_of(machine, machine.watch(model), model, lambda i: HALF_A_GB * i + (i % 3) * 1e6)
    assert told.startswith("numa0 grows by 0.5 GB an hour without a known reason") and "10 minutes" in told


@pytest.mark.parametrize(
    "grows",
    [
        lambda i: 300e6 * (i > 20),  # something was imported
        lambda i: 40e6 * ((i > 10) + (i > 15)),  # what comes in steps
        lambda i: min(80e6, 8e6 * i),  # what comes to rest
        lambda i: 0.2e9 / 360 * i,  # texts and figures of a long chat
        lambda i: -HALF_A_GB * i,
        lambda i: 60e6 * (i % 2),
    ],
)
def test_what_comes_to_rest_is_no_leak(monkeypatch: pytest.MonkeyPatch, grows: Any) -> None:
    machine, model = Machine(monkeypatch), Model()
    assert minutes_of(machine, machine.watch(model), model, grows) == ""


def test_pages_of_caches_that_are_really_there_are_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, model, there = Machine(monkeypatch), Model(), [0]
    monkeypatch.setattr(holdings, "touched_bytes", lambda model: (there[0], 1 << 20))
    watch = machine.watch(model)

    def grows(i: int) -> float:
        there[0] = int(HALF_A_GB * i)
        return HALF_A_GB * i

    assert minutes_of(machine, watch, model, grows) == ""
    monkeypatch.setattr(holdings, "touched_bytes", lambda model: (None, 0))  # where nobody tells, caches may be the reason
    assert minutes_of(machine, watch, model, grows) == ""


def test_a_move_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, model = Machine(monkeypatch), Model()
    watch = machine.watch(model)
    assert minutes_of(machine, watch, model, lambda i: HALF_A_GB * i) != ""
    model.moving = True
    assert [one.sentence for one in watch.trends()] == ["", ""]
    model.moving, model.placed = False, object()
    monkeypatch.setattr(holdings, "touched_bytes", lambda model: (0, 0))
    assert [one.span_s for one in watch.trends()] == [0, 0]


def test_caches_are_known_by_the_pages_that_were_written() -> None:
    arenas = [Arena(64 * 4096) for _ in range(3)]
    memoryview(arenas[1])[: 16 * 4096] = bytes(16 * 4096)
    placed = SimpleNamespace(
        cache=SimpleNamespace(layers=dict(enumerate(SimpleNamespace(arena=one) for one in arenas[:2]))),
        states=SimpleNamespace(layers={7: SimpleNamespace(arena=arenas[2])}),
    )
    model = cast(Any, SimpleNamespace(placed=placed))
    assert holdings.touched_bytes(model)[0] in (None, 16 * 4096)
    assert holdings.touched_bytes(model, lambda addresses: [None] * len(addresses)) == (None, 0)
    assert holdings.touched_bytes(cast(Any, SimpleNamespace(placed=None))) == (0, 0)
    for one in arenas:
        one.close()


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
