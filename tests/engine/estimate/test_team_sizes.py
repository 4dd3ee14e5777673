"""How many workers each node has in estimates, on machines that nobody has at hand, and what numbers of them are tried there."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.pure import Planner, machine_of, read_outline
from engine.api.values import LoadOptions
from engine.estimate.rates import assumed
from engine.estimate.roofline import FROM_AFAR, Roofline
from engine.estimate.team_sizes import is_here, team_sizes
from engine.hardware.machine import Machine, nodes_of
from engine.hardware.topology import Topology
from engine.hardware.topology_read import read_topology, topology
from engine.hardware.worker_plan import plan_cores
from engine.placement.over_nodes import shares_of
from engine.placement.placement import WorkerPlan
from engine.runtime.tune_plan import thread_counts
from tests.helpers import machines
from tests.helpers.report_models import report_model

GIB = 1 << 30


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machines")


def machine_below(root: Path) -> tuple[Topology, Machine]:
    found = read_topology(root)
    return found, Machine(64 * GIB, 32 * GIB, (), nodes=nodes_of(root, 64 * GIB, 32 * GIB, found))


@pytest.mark.parametrize("name", machines.NAMES)
def test_what_a_sweep_tries_is_possible_and_even_on_every_machine(name: str, unpacked: Path) -> None:
    found, machine = machine_below(machines.unpack(name, unpacked))
    core_of = {cpu: core for core in found.cores for cpu in core.cpus}
    counts = thread_counts(found)
    assert counts == tuple(sorted(set(counts))) and counts[0] >= 1
    quota = len(found.allowed_cpus) if found.quota_cores is None else max(1, int(found.quota_cores))
    assert counts[-1] <= min(len(found.allowed_cpus), quota)
    assert len(plan_cores(found).workers) in counts
    for n in counts:
        plan = plan_cores(found, n)
        assert len(plan.workers) == len(set(plan.workers)) == n
        assert set(plan.workers) <= set(found.allowed_cpus) and not set(plan.workers) & set(plan.kept)
        cores = Counter(core_of[cpu].index for cpu in plan.workers)
        assert n > len(found.usable_cores) or max(cores.values()) == 1
        on_node = Counter(core_of[cpu].node for cpu in plan.workers)
        room = Counter(core.node for core in found.usable_cores)
        least = min(on_node.get(node, 0) for node in found.usable_nodes)
        # A node has fewer than another only where one is missing, or where it has no more cores.
        assert all(k - least <= 1 or any(room[node] <= least for node in room) for k in on_node.values()), on_node
        sizes = team_sizes(machine, LoadOptions(), WorkerPlan(plan.workers, plan.kept))
        if is_here(machine) and len(machine.nodes) > 1:
            assert sizes == {one.node: on_node.get(one.node, 0) for one in machine.nodes}


@pytest.mark.parametrize("name", machines.NAMES)
def test_nodes_have_the_cores_that_this_process_may_use(name: str, unpacked: Path) -> None:
    found, machine = machine_below(machines.unpack(name, unpacked))
    assert sum(one.n_cores for one in machine.nodes if one.cpus) == len(found.usable_cores)
    assert sorted(cpu for one in machine.nodes for cpu in one.cpus) == sorted(found.allowed_cpus)
    for one in machine.nodes:
        there = found.node(one.node)
        assert one.ram_bytes > 0 and 0 <= one.ram_free <= one.ram_bytes
        assert len(machine.nodes) == 1 or (there is not None and there.allowed)
    split = shares_of(machine)
    assert (split is None) == (sum(bool(one.cpus) for one in machine.nodes) < 2)


def test_two_sockets_and_four_nodes_a_socket(unpacked: Path) -> None:
    found, machine = machine_below(machines.unpack("epyc7b13_2s", unpacked))
    assert [(one.node, one.n_cores, len(one.cpus)) for one in machine.nodes] == [(0, 64, 128), (1, 64, 128)]
    every = WorkerPlan(plan_cores(found).workers)
    assert team_sizes(machine, LoadOptions(), every) == {0: 62, 1: 62}
    assert team_sizes(machine, LoadOptions(), WorkerPlan(tuple(range(32)))) == {0: 32, 1: 0}
    assert team_sizes(machine, LoadOptions(), WorkerPlan((-1,) * 9)) == {0: 5, 1: 4}
    found, machine = machine_below(machines.unpack("epyc9374f_nps4", unpacked))
    assert [one.n_cores for one in machine.nodes] == [8, 8, 8, 8]
    assert team_sizes(machine, LoadOptions(), WorkerPlan(plan_cores(found, 12).workers)) == dict.fromkeys(range(4), 3)


def test_memory_without_cores_has_no_team(unpacked: Path) -> None:
    root = machines.unpack("cxl_memory_only_node", unpacked)
    found, machine = machine_below(root)
    assert len(machine.nodes) == 1  # whose memory this process may use
    found = replace(found, nodes=tuple(replace(one, allowed=True) for one in found.nodes))
    machine = Machine(64 * GIB, 32 * GIB, (), nodes=nodes_of(root, 64 * GIB, 32 * GIB, found))
    assert [bool(one.cpus) for one in machine.nodes].count(False) == 1
    sizes = team_sizes(machine, LoadOptions(), WorkerPlan((-1,) * 4))
    assert sorted(sizes.values()) == [0, 4]


def test_where_nobody_works_others_read_from_afar() -> None:
    machine = Machine(
        2 * GIB, GIB, (), name="two", nodes=tuple(replace(one, node=i) for i, one in enumerate(Machine(1, 1, ()).nodes * 2))
    )
    roofline = Roofline(assumed(machine), {0: 6, 1: 0})
    assert (
        roofline.team(0) == (6, 1.0) and roofline.team(1) == (6, FROM_AFAR) and Roofline(assumed(machine), 3).team(7) == (3, 1.0)
    )


def test_a_described_machine_has_the_workers_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "box.json"
    node = {"name": "EPYC 7B13", "ram_gib": 512, "cores": 64, "read_gbps": 204.8, "count": 2}
    path.write_text(json.dumps({"name": "a box", "nodes": [node], "gpus": []}))
    machine = machine_of(str(path))
    assert not is_here(machine)
    assert team_sizes(machine, LoadOptions()) == {0: 64, 1: 64}
    assert team_sizes(machine, LoadOptions(n_threads=9)) == {0: 5, 1: 4}
    assert team_sizes(machine, LoadOptions(cores=tuple(range(16)))) == {0: 8, 1: 8}
    outline = read_outline(str(report_model("qwen3-235b", tmp_path, "Q4_K_M")))
    few, many = (Planner(outline, LoadOptions(n_ctx=4096, n_threads=n), machine) for n in (4, 64))
    assert few.estimate(few.default()).decode_tok_s < 0.6 * many.estimate(many.default()).decode_tok_s


def test_workers_on_one_node_alone_slow_estimates_of_both_down(tmp_path: Path, unpacked: Path) -> None:
    found, machine = machine_below(machines.unpack("epyc7b13_2s", unpacked))
    machine = replace(machine, ram_bytes=1024 * GIB, ram_free=1000 * GIB)
    outline = read_outline(str(report_model("qwen3-235b", tmp_path, "Q4_K_M")))
    planner = Planner(outline, LoadOptions(n_ctx=4096), machine)
    placement = planner.default()
    assert placement.nodes == (0, 1)

    def speed(cpus: tuple[int, ...]) -> float:
        return planner.estimate(replace(placement, workers=WorkerPlan(cpus))).decode_tok_s

    both, one = plan_cores(found, 64).workers, tuple(cpu for cpu in plan_cores(found).workers if cpu < 64)
    assert speed(one) < 0.75 * speed(both)
    assert speed(plan_cores(found, 4).workers) < speed(both)
    assert speed((-1,) * 64) == pytest.approx(speed(both))


def test_this_machine_is_known_by_its_cores() -> None:
    there = topology()
    machine = Machine(GIB, GIB, (), nodes=nodes_of(Path("/"), GIB, GIB))
    assert is_here(machine)
    n = len(there.usable_cores)
    assert sum(team_sizes(machine, LoadOptions(n_threads=n)).values()) == n
