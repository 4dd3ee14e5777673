"""Which cores work: for each machine as it was reviewed, and the rules that no plan breaks."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import InvalidRequest
from engine.hardware.cpu_list import format_cpus
from engine.hardware.topology import Topology
from engine.hardware.topology_read import read_topology
from engine.hardware.worker_plan import NOT_PINNED, CorePlan, plan_cores
from tests.helpers import machines

REVIEWED = json.loads((machines.FOLDER / "worker_plans.json").read_text(encoding="utf-8"))


def as_text(plan: CorePlan) -> dict[str, object]:
    pinned = [cpu for cpu in plan.workers if cpu >= 0]
    return {
        "n": len(plan.workers),
        "workers": format_cpus(pinned) if pinned else "anywhere",
        "kept": format_cpus(plan.kept),
        "notes": list(plan.notes),
    }


@pytest.mark.parametrize("name", machines.NAMES)
def test_plans_are_those_that_were_reviewed(name: str, unpacked: Path) -> None:
    found = read_topology(machines.unpack(name, unpacked))
    assert {n: as_text(plan_cores(found, int(n))) for n in REVIEWED[name]} == REVIEWED[name]


@pytest.fixture(params=["epyc7b13_2s", "epyc9374f_nps4", "intel_hybrid_13900k", "container_cpuset"])
def some(request: pytest.FixtureRequest, unpacked: Path) -> Topology:
    return read_topology(machines.unpack(request.param, unpacked))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 13, 24, 31])
def test_workers_are_spread_evenly_and_each_has_a_core(some: Topology, n: int) -> None:
    core_of = {cpu: core for core in some.cores for cpu in core.cpus}
    plan = plan_cores(some, n)
    assert len(plan.workers) == n
    if n > len(some.usable_cores):
        return
    cores = [core_of[cpu] for cpu in plan.workers]
    assert len(set(cores)) == n
    if any(core.kind == "efficient" for core in cores):
        assert sum(core.kind == "performance" for core in cores) == sum(c.kind == "performance" for c in some.usable_cores)
        return
    on_node = Counter(core.node for core in cores)
    assert max(on_node.values()) - min(on_node.get(node, 0) for node in some.usable_nodes) <= 1
    order = [core.index for core in cores]
    assert order == sorted(order)


def test_second_threads_work_only_when_more_than_cores_are_asked_for(some: Topology) -> None:
    n_cores, n_threads = len(some.usable_cores), len(some.allowed_cpus)
    plan = plan_cores(some, n_threads)
    assert sorted(plan.workers) == list(some.allowed_cpus)
    assert str(n_cores) in plan.notes[0]
    assert plan_cores(some, n_threads + 1).workers == (NOT_PINNED,) * (n_threads + 1)


def test_a_quota_bounds_the_workers(some: Topology) -> None:
    assert len(plan_cores(replace(some, quota_cores=2.9)).workers) == 2
    assert len(plan_cores(replace(some, quota_cores=0.3)).workers) == 1


def test_cores_are_kept_on_the_nodes_of_gpus(unpacked: Path) -> None:
    found = read_topology(machines.unpack("epyc9374f_nps4", unpacked))
    node_of = {cpu: core.node for core in found.cores for cpu in core.cpus}
    assert {node_of[cpu] for cpu in plan_cores(found, gpu_nodes=(2, 2)).kept} == {2}
    assert sorted(node_of[cpu] for cpu in plan_cores(found, gpu_nodes=(0, None, 1)).kept) == [0, 1, 3]
    many = plan_cores(found, gpu_nodes=(None,) * 64)
    assert (len(many.workers), len(many.kept)) == (24, 8)


def test_chosen_processors_work_and_others_are_refused(unpacked: Path) -> None:
    found = read_topology(machines.unpack("epyc7b13_2s", unpacked))
    assert plan_cores(found, cpus=(16, 0, 1)).workers == (0, 1, 16)
    assert "share 1 cores" in plan_cores(found, cpus=(0, 128)).notes[0]
    with pytest.raises(InvalidRequest, match=r"processors 256-257 are not in this machine; this program may use 0-255$"):
        plan_cores(found, cpus=(0, 256, 257))
    off = replace(found, cpus=found.cpus[:-1], allowed_cpus=found.allowed_cpus[:-1])
    with pytest.raises(InvalidRequest, match=r"processor 255 is switched off; this program may use 0-254$"):
        plan_cores(off, cpus=(0, 255))
    with pytest.raises(InvalidRequest, match=r"processor 0 is outside the set .*; this program may use 64-67,192-195$"):
        plan_cores(read_topology(machines.unpack("container_cpuset", unpacked)), cpus=(0,))
