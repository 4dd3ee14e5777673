"""What pools do between steps, with slots that only remember: what is named, what is on its way, when it ends itself."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from engine.errors import DeviceLost
from engine.placement.placement import Gpu, Pool
from engine.runtime.choices import Chosen, MoeLayers
from engine.runtime.pool_keeper import CHECK_BLOCK, CHECK_PAIRS, FIRST_CHECK, PoolKeeper
from tests.helpers.traces import Trace, drifting, lru_hits, uniform

N = 64
NONE = np.zeros(0, np.int64)


@dataclass
class Memory:
    """Slots by layer, as they would be computed with: what the tables name must lie there, whole, while a step runs."""

    pools: tuple[Pool, ...]
    expert_bytes: int = 1 << 20
    holds: dict[tuple[int, int], int] = field(default_factory=dict)
    tables: npt.NDArray[np.int32] | None = None
    fails: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.holds = {(pool.layer, slot): expert for pool in self.pools for slot, expert in enumerate(pool.experts)}

    def tell(self, tables: npt.NDArray[np.int32]) -> None:
        self.tables = tables.copy()

    def bring(self, fetches: list[tuple[int, int, int]]) -> None:
        if self.fails:
            raise DeviceLost("gone")
        for layer, expert, slot in fetches:
            with self.lock:
                assert slot not in self.named(layer).values()  # nobody reads what is overwritten
                self.holds[layer, slot] = expert

    def named(self, layer: int) -> dict[int, int]:
        assert self.tables is not None
        at = next(i for i, pool in enumerate(self.pools) if pool.layer == layer)
        return {expert: int(slot) for expert, slot in enumerate(self.tables[at]) if slot >= 0}

    def check(self) -> None:
        """During a step."""
        for pool in self.pools:
            for expert, slot in self.named(pool.layer).items():
                assert self.holds[pool.layer, slot] == expert


def keeper_of(*memories: Memory, used: int = 4) -> PoolKeeper:
    layers = tuple(sorted(pool.layer for memory in memories for pool in memory.pools))
    moe = MoeLayers((0, *layers), (used,) * (len(layers) + 1), N)  # layer 0 has none
    return PoolKeeper([(f"gpu{i}", memory) for i, memory in enumerate(memories)], moe)


def step(keeper: PoolKeeper, tokens: npt.NDArray[np.int64], seconds: float = 0.02) -> None:
    """A decoded token that passes these experts, [n_layers with pools, n_used], layer 0 any."""
    keeper.begin()
    rows = np.concatenate([np.zeros((1, tokens.shape[1]), np.int64) + np.arange(tokens.shape[1]), tokens])
    flat = (rows + np.arange(len(rows))[:, None] * N).reshape(-1)
    keeper.end((Chosen(0, 1, 1, NONE, flat, None),), "decode", seconds)


def traces(made: type | object, n: int, seeds: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.stack([made(n, N, 4, seed=seed) for seed in seeds], axis=1)  # type: ignore[operator]


def test_tables_name_only_what_is_there() -> None:
    first = Memory((Pool(2, Gpu(0), tuple(range(10))), Pool(5, Gpu(0), (3,))))
    second = Memory((Pool(7, Gpu(1), tuple(range(20, 26))),))
    keeper = keeper_of(first, second)
    for tokens in traces(drifting, 200, (1, 2, 3)):
        keeper.begin()
        first.check()
        second.check()
        step(keeper, tokens)
    figures = keeper.figures()
    assert [one.layer for one in figures] == [2, 5, 7]
    assert [one.device for one in figures] == ["gpu0", "gpu0", "gpu1"]
    assert all(one.hits + one.misses == 800 and one.promotions > 5 for one in figures)
    keeper.close()


def run(trace: Trace, n_slots: int) -> tuple[float, PoolKeeper]:
    memory = Memory((Pool(1, Gpu(0), tuple(range(n_slots))),))
    keeper = keeper_of(memory)
    for ids in trace:
        step(keeper, ids[None, :])
    one = keeper.figures()[0]
    keeper.close()
    return one.hits / (one.hits + one.misses), keeper


def test_hits_follow_the_text_though_experts_come_a_step_late() -> None:
    trace = drifting(1500, N, 4)
    hits, keeper = run(trace, 16)
    assert hits > lru_hits(trace, 16) - 0.05
    assert not keeper.switched_off


def test_it_ends_itself_where_nothing_comes_back() -> None:
    _, keeper = run(uniform(500, N, 4), 16)
    assert "switched off" in keeper.switched_off
    before = keeper.figures()[0].promotions
    keeper.use("promote")
    assert not keeper.switched_off and before > 0


def test_a_comparison_promotes_though_promotion_has_ended_itself() -> None:
    keeper = keeper_of(Memory((Pool(1, Gpu(0), tuple(range(16))),)))
    trace = uniform(900, N, 4)
    for ids in trace[:500]:
        step(keeper, ids[None, :])
    before = keeper.figures()[0].promotions
    assert keeper.switched_off and keeper.compared() is None
    keeper.compare("promote", 8, 3)
    for ids in trace[500:]:
        step(keeper, ids[None, :])
    found = keeper.compared()
    assert found is not None and found[0] == "promote" and keeper.figures()[0].promotions > before
    after = keeper.figures()[0].promotions
    for ids in trace[:50]:
        step(keeper, ids[None, :])
    assert keeper.switched_off and keeper.figures()[0].promotions == after  # as it was before
    keeper.close()


@pytest.mark.parametrize(("slower", "ends"), [(1.1, True), (1.005, False), (0.9, False)])
def test_it_ends_itself_where_answers_become_slower(slower: float, ends: bool) -> None:
    rng, trace = np.random.default_rng(3), drifting(FIRST_CHECK + 2 * CHECK_BLOCK * CHECK_PAIRS + 20, N, 4)
    keeper = keeper_of(Memory((Pool(1, Gpu(0), tuple(range(16))),)))
    for ids in trace:
        moved = keeper.figures()[0].promotions
        keeper.begin()
        promotes = keeper._acting == "promote" and not keeper.switched_off
        step(keeper, ids[None, :], 0.02 * (slower if promotes else 1.0) * (1 + 0.002 * rng.random()))
        assert promotes or keeper.figures()[0].promotions == moved
    assert bool(keeper.switched_off) == ends
    assert "slower with promotion" in keeper.switched_off or not ends
    assert keeper.compared() is None and keeper.mode == "promote"  # nobody asked
    keeper.close()


def test_off_names_nothing_and_everything_is_missed() -> None:
    memory = Memory((Pool(1, Gpu(0), tuple(range(16))),))
    keeper = keeper_of(memory)
    keeper.use("off")
    for ids in drifting(50, N, 4):
        step(keeper, ids[None, :])
    assert not memory.named(1)
    assert keeper.figures()[0].hits == keeper.figures()[0].promotions == 0
    keeper.use("keep")
    keeper.begin()
    assert len(memory.named(1)) == 16
    keeper.close()


def test_what_does_not_arrive_is_not_named() -> None:
    memory = Memory((Pool(1, Gpu(0), tuple(range(8))),))
    keeper = keeper_of(memory)
    trace = iter(drifting(300, N, 4))
    for _ in range(30):
        step(keeper, next(trace)[None, :])
    memory.fails, lost = True, 0
    for _ in range(10):
        try:
            step(keeper, next(trace)[None, :])
        except DeviceLost:
            lost += 1
    assert lost
    memory.fails = False
    for ids in trace:
        keeper.begin()
        memory.check()
        step(keeper, ids[None, :])
    assert len(memory.named(1)) == 8  # empty slots were filled first
    keeper.close()
