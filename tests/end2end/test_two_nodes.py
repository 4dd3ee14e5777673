"""Models on a machine with two NUMA nodes: by its files it has them, while all memory lies on one node in truth.

Teams, copies and moves are the real ones; where pages lie where there is a second node is for `make numa-guest`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.values import LoadOptions
from engine.arch.registry import build_spec
from engine.arch.units import UnitId
from engine.errors import Cancelled, PlacementError
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.placement.file import to_json
from engine.placement.over_nodes import with_spread
from engine.placement.placement import Gpu, Numa, Placement, WorkerPlan
from engine.placement.spread import Interleave, Split, even
from engine.runtime import node_weights
from engine.runtime.loader import LoadedModel, load
from engine.runtime.node_weights import NodeWeights
from engine.runtime.repin import repin
from engine.runtime.residency import Residency
from kernels_pyx.executor import AbortFlag
from tests.helpers.golden_models import MODELS, batch, golden, greedy
from tests.helpers.two_nodes import two_nodes

EXACT = LoadOptions(k_type="f32", v_type="f32", f32_activations=True)
CPUS = sorted(os.sched_getaffinity(0))[:2]
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="two processors are needed, one for each node")
CUT = ("qwen2moe", "gpt-oss")
"""Whose experts are wide enough to be cut in two."""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERDECK_ROOT", str(two_nodes(tmp_path / "two", (CPUS[0], CPUS[1]))))


@contextmanager
def loaded(name: str, options: LoadOptions = EXACT) -> Iterator[LoadedModel]:
    file = read_gguf(golden(name).path)
    spec = build_spec(file)
    model = load(file, spec, build_graph(spec), options, lambda phase, done, total: None, AbortFlag())
    try:
        yield model
    finally:
        model.close()


def on(placement: Placement, node: Callable[[UnitId], int]) -> Placement:
    return replace(placement, spreads=(), units=tuple((unit, Numa(node(unit))) for unit, _ in placement.units))


def there(model: LoadedModel) -> Placement:
    assert model.placement is not None
    return model.placement


def weights_of(model: LoadedModel) -> NodeWeights:
    assert model.placed is not None and model.placed.spreading is not None and model.placed.spreading.weights is not None
    return model.placed.spreading.weights


def teams(model: LoadedModel) -> tuple[int, ...]:
    assert model.placed is not None and model.placed.programs is not None and model.placed.programs.teams is not None
    return model.placed.programs.teams.nodes


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_split_over_both_nodes_and_says_the_same(name: str) -> None:
    recorded, ids = golden(name).logits("long"), golden(name).ids("long")
    with loaded(name) as model:
        assert teams(model) == (0, 1) and there(model).nodes == (0, 1)
        split = model.step(batch(ids))
        assert np.abs(split[-len(recorded) :] - recorded).max() < 2e-3
        assert greedy(model, golden(name).ids("short"), 16) == golden(name).greedy("short")[:16]
        model.move(on(there(model), lambda unit: 0))
        assert teams(model) == (0,)
        one = model.step(batch(ids))
        mixture = any(unit.kind == "experts" for unit, _ in there(model).units)
    # Rows are what they were; sums over the parts of experts are added in another order.
    assert np.abs(split - one).max() <= (1e-4 if mixture else 0.0)


@pytest.mark.parametrize("name", ["qwen2moe", "gemma3", "qwen3next", "deepseek2-v3"])
def test_default_kernels_stay_as_close(name: str) -> None:
    ids = golden(name).ids("long")
    with loaded(name, LoadOptions()) as model:
        split = model.step(batch(ids))
        model.move(on(there(model), lambda unit: 1))
        one = model.step(batch(ids))
    assert np.sqrt(np.mean((split - one) ** 2)) <= 0.02


@pytest.mark.parametrize("name", CUT)
def test_experts_are_split_in_any_proportion(name: str) -> None:
    ids = golden(name).ids("short")
    with loaded(name) as model:
        base = on(there(model), lambda unit: 0)
        model.move(base)
        truth = model.step(batch(ids))
        experts = [unit for unit, _ in base.units if unit.kind == "experts"]
        for shares in ((1.0, 1.0), (5.0, 1.0), (1.0, 5.0)):
            model.move(with_spread(base, experts, Split(((0, shares[0]), (1, shares[1])))))
            assert np.abs(model.step(batch(ids)) - truth).max() < 1e-4
            held = weights_of(model).bytes_on()
            assert sum(held.values()) >= sum(held.values()) // 2 > 0


@pytest.mark.parametrize("memory", ["copied", "mapped"])
def test_copied_and_mapped_weights_give_the_same_bits(memory: str) -> None:
    name = "qwen2moe"
    ids = golden(name).ids("long")
    with loaded(name, replace(EXACT, node_memory=memory)) as model:
        found = model.step(batch(ids))
        assert model.placed is not None and model.placed.spreading is not None
        assert (model.placed.spreading.weights is None) == (memory == "mapped")
    with loaded(name) as model:
        assert (model.step(batch(ids)) == found).all()


def test_layers_on_either_node_are_done_by_its_team() -> None:
    with loaded("qwen3moe") as model:
        ids = golden("qwen3moe").ids("short")
        model.move(on(there(model), lambda unit: 0))
        truth = model.step(batch(ids))
        model.move(on(there(model), lambda unit: max(0, unit.layer) % 2))
        assert (model.step(batch(ids)) == truth).all() and teams(model) == (0, 1)
        home = on(there(model), lambda unit: 0)
        model.move(replace(home, spreads=tuple((unit, Interleave((0, 1))) for unit, _ in home.units)))
        assert (model.step(batch(ids)) == truth).all()


def test_the_ledger_tells_what_lies_on_each_node() -> None:
    with loaded("qwen2moe") as model:
        placement, file = there(model), read_gguf(golden("qwen2moe").path)
        split = _by_node(model.residency)
        assert min(split.values()) > 0.3 * max(split.values())
        model.move(on(placement, lambda unit: 1))
        alone = _by_node(model.residency)
        assert set(alone) == {1}
        embedding = file.tensors["token_embd.weight"].nbytes
        matrices = sum(one.nbytes for one in file.tensors.values() if one.type_id != 0 or ".ffn_gate_inp" in one.name)
        assert alone[1] >= matrices - embedding
        mapped = [one for one in model.residency.holdings if one.mapped]
        assert [(one.device, one.nbytes) for one in mapped] == [(Numa(1), embedding)]


def _by_node(residency: Residency) -> dict[int, int]:
    found: dict[int, int] = {}
    for one in residency.holdings:
        if isinstance(one.device, Numa) and one.owner == "weights" and not one.mapped:
            found[one.device.node] = found.get(one.device.node, 0) + one.nbytes
    return found


def test_what_moves_to_another_node_is_the_same_memory_and_goes_back_when_the_move_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = golden("qwen3").ids("short")
    with loaded("qwen3") as model:
        model.move(on(there(model), lambda unit: 0))
        truth, before = model.step(batch(ids)), {key: one.address for key, one in weights_of(model).held.items()}
        model.move(on(there(model), lambda unit: 1))
        assert {key: one.address for key, one in weights_of(model).held.items()} == before
        assert (model.step(batch(ids)) == truth).all()

        def stopped(*_: object) -> None:
            raise Cancelled("stopped")

        moved: list[tuple[int, ...]] = []
        bind = node_weights.NodeMemory.bind
        monkeypatch.setattr(
            node_weights.NodeMemory,
            "bind",
            lambda self, at, n, nodes, **how: moved.append(tuple(nodes)) or bind(self, at, n, nodes, **how),
        )
        monkeypatch.setattr(node_weights.NodeMemory, "make_sure", stopped)
        with pytest.raises(Cancelled):
            model.move(on(there(model), lambda unit: 0))
        assert moved[0] == (0,) and moved[-1] == (1,)
        assert there(model).nodes == (1,) and (model.step(batch(ids)) == truth).all()


def test_each_node_tells_how_long_it_computed() -> None:
    with loaded("qwen2moe") as model:
        ids = golden("qwen2moe").ids("short")
        model.step(batch(ids))
        runner = model.executor
        assert runner is not None
        runner.measure = True
        model.step(batch(ids[-1:], len(ids)))
        assert runner.measured is not None
        parts = {one.device: one for one in runner.measured.parts}
        assert sorted(parts) == ["numa0", "numa1"]
        assert all(0 < one.computing_s <= runner.last_step_s for one in parts.values())
        model.move(on(there(model), lambda unit: 1))
        runner = model.executor
        assert runner is not None
        runner.measure = True
        model.step(batch(ids[-1:], len(ids)))
        assert runner.measured is not None and [one.device for one in runner.measured.parts] == ["numa1"]


def test_the_same_placement_again_looks_after_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = golden("qwen2moe").ids("short")
    with loaded("qwen2moe") as model:
        truth, placement, placed = model.step(batch(ids)), there(model), model.placed
        asked: list[int] = []

        def bring_home(self: object, places: object, progress: Callable[[int, int], None], pause: object) -> int:
            assert places == model.places
            progress(0, 100)
            asked.append(len(model.places))
            return 4096

        monkeypatch.setattr(node_weights.NodeMemory, "bring_home", bring_home)
        move = model.move(placement)
        assert asked and move.moved_bytes == 4096 and move.progress.total == 100
        # Nothing was built for it, and nothing is another.
        assert model.placed is placed and (model.step(batch(ids)) == truth).all()


def test_files_name_nodes_and_spreads(tmp_path: Path) -> None:
    ids = golden("qwen2moe").ids("short")
    with loaded("qwen2moe") as model:
        base, spec = there(model), model.spec
        truth = model.step(batch(ids))
    path = tmp_path / "p.json"
    path.write_text(to_json(base, spec))
    with loaded("qwen2moe", replace(EXACT, placement=str(path))) as model:
        assert there(model) == base and (model.step(batch(ids)) == truth).all()
    path.write_text(to_json(on(base, lambda unit: 1), spec))
    with loaded("qwen2moe", replace(EXACT, placement=str(path))) as model:
        assert there(model).nodes == (1,)
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"units": value["units"] | {"head": "numa2"}}))
    asked = loaded("qwen2moe", replace(EXACT, placement=str(path)))
    with pytest.raises(PlacementError, match=r"head is on numa2, which is not there; this machine has numa0, numa1"), asked:
        pass


def test_rules_of_other_tools_know_one_cpu_which_is_all_nodes() -> None:
    with loaded("qwen3", replace(EXACT, placement="-ngl 0")) as model:
        assert there(model).nodes == (0, 1)
        assert there(model).spread_of(UnitId("head")) == even((0, 1))


def test_other_workers_are_other_teams() -> None:
    with loaded("qwen2moe") as model:
        ids = golden("qwen2moe").ids("long")
        truth = model.step(batch(ids))
        for cpus, nodes in (((CPUS[1],), (1,)), ((CPUS[0],), (0,)), ((CPUS[0], CPUS[1]), (0, 1))):
            repin(model, WorkerPlan(cpus), chosen=True)
            assert teams(model) == nodes
            assert (model.step(batch(ids)) == truth).all()


@pytest.mark.parametrize("name", ["qwen2moe", "qwen3next", "gpt-oss"])
def test_a_gpu_beside_two_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts split over both nodes, attention on the GPU; then by way of the nodes, and back."""
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1")
    ids = golden(name).ids("short")
    with loaded(name, replace(EXACT, placement="-ngl 99 -ot exps=CPU")) as model:
        assert there(model).nodes == (0, 1) and Gpu(0) in there(model).devices and teams(model) == (0, 1)
        start, found = there(model), model.step(batch(ids))
        assert np.abs(found[-1] - golden(name).logits("short")[-1]).max() < 2e-3
        runner = model.executor
        assert runner is not None
        runner.measure = True
        model.step(batch(ids[-1:], len(ids)))
        assert runner.measured is not None
        assert sorted(one.device for one in runner.measured.parts) == ["gpu0", "numa0", "numa1"]
        homes = on(start, lambda unit: max(0, unit.layer) % 2)
        half = tuple((unit, device if unit.layer == 1 else dict(start.units)[unit]) for unit, device in homes.units)
        for target in (homes, replace(start, units=half, spreads=()), start):
            model.move(target)
            assert np.abs(model.step(batch(ids)) - found).max() < 2e-3
            longer = model.step(batch(ids[-1:], len(ids)))
            assert np.isfinite(longer).all()


def test_a_model_with_one_worker_reads_the_other_node_from_afar() -> None:
    with loaded("qwen2moe", replace(EXACT, cores=(CPUS[0],))) as model:
        assert teams(model) == (0,)
        assert any("Nobody works on node 1" in note for note in model.notes)
        recorded, ids = golden("qwen2moe").logits("long"), golden("qwen2moe").ids("long")
        assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3


def test_steps_can_be_stopped_and_repeated() -> None:
    with loaded("qwen2moe") as model:
        ids = golden("qwen2moe").ids("long")
        truth = model.step(batch(ids))
        model.abort.set()
        with pytest.raises(Cancelled):
            model.step(batch(ids))
        model.abort.clear()
        assert (model.step(batch(ids)) == truth).all()
