"""Ten machines read as they are; this one; and damaged files, which degrade and never raise."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.hardware.cpu_list import format_cpus, parse_cpus
from engine.hardware.thermal import cpu_temperature
from engine.hardware.topology import Topology
from engine.hardware.topology_read import read_topology, topology
from engine.hardware.worker_plan import plan_cores
from tests.helpers import machines


def node_cpus(found: Topology, number: int) -> str:
    node = found.node(number)
    return "" if node is None else format_cpus(node.cpus)


def one_of(values: set[int]) -> int:
    (value,) = values
    return value


FACTS: dict[str, Callable[[Topology], Any]] = {
    "sockets": lambda t: t.sockets,
    "nodes": lambda t: len(t.nodes),
    "logical": lambda t: t.n_cpus,
    "online_logical": lambda t: len(t.cpus),
    "physical_cores": lambda t: len(t.cores),
    "p_cores": lambda t: sum(core.kind == "performance" for core in t.cores),
    "e_cores": lambda t: sum(core.kind == "efficient" for core in t.cores),
    "l3_groups": lambda t: len(t.l3_groups),
    "cores_per_l3": lambda t: one_of({len(group.cores) for group in t.l3_groups}),
    "l3_groups_per_node": lambda t: one_of({sum(g.node == node.node for g in t.l3_groups) for node in t.nodes}),
    "smt": lambda t: t.smt,
    "node0_cpus": lambda t: node_cpus(t, 0),
    "node1_cpus": lambda t: node_cpus(t, 1),
    "distance_remote": lambda t: t.nodes[0].distances[1],
    "nodes_with_cpu": lambda t: [node.node for node in t.nodes if node.cpus],
    "memory_only_nodes": lambda t: [node.node for node in t.nodes if node.memory_only],
    "worker_nodes": lambda t: sorted({c.node for c in t.cores if set(c.cpus) & set(plan_cores(t).workers)}),
    "usable_logical": lambda t: len(t.allowed_cpus),
    "usable_physical_cores": lambda t: len(t.usable_cores),
    "usable_nodes": lambda t: [node.node for node in t.nodes if node.allowed],
    "cpu_quota_cores": lambda t: t.quota_cores,
    "memory_limit": lambda t: t.memory_limit_bytes,
    "container": lambda t: t.container,
    "cgroup": lambda t: t.cgroup_version,
    "numa_balancing": lambda t: t.facts.numa_balancing,
    "numa_balancing_relevant": lambda t: sum(bool(node.cpus) for node in t.nodes) > 1,
    "rapl_readable": lambda t: t.facts.package_power == "readable",
    "rapl_present": lambda t: t.facts.package_power != "absent",
    "isa": lambda t: t.facts.instruction_set,
    "governor": lambda t: t.facts.governor,
    "governor_warn": lambda t: t.facts.held_slow,
    "on_battery": lambda t: t.facts.on_battery,
    "gpus": lambda t: len(t.gpus),
    "gpu_width_warn": lambda t: [gpu.pci for gpu in t.gpus if gpu.narrow],
    "gpu_gen_low_idle_ok": lambda t: [
        gpu.pci for gpu in t.gpus if (gpu.link_generation or 0) < (gpu.link_generation_max or 0) and not gpu.narrow
    ],
    "gpu_numa_node": lambda t: -1 if all(gpu.node is None for gpu in t.gpus) else 0,
    "nvidia_suspended": lambda t: any(gpu.asleep for gpu in t.gpus if gpu.maker == "nvidia"),
    "recommended_workers": lambda t: len(plan_cores(t).workers),
    "recommended_worker_cpus": lambda t: ",".join(map(str, plan_cores(t).workers)),
    "degraded": lambda t: bool(t.degraded),
}
OF_FILES = {"core_ids_have_gaps", "l3_id_missing", "tctl_hot", "note"}
"""What is said of the files themselves, or to people."""


def test_machines_are_read_as_they_are(machine: Path) -> None:
    found, wanted = read_topology(machine), machines.expected(machine)
    assert set(wanted) <= set(FACTS) | OF_FILES
    assert {key: FACTS[key](found) for key in wanted if key in FACTS} == {k: v for k, v in wanted.items() if k in FACTS}
    assert bool(found.degraded) == wanted.get("degraded", False)
    assert ((cpu_temperature(machine) or 0) > 90) == wanted.get("tctl_hot", False)


def sound(found: Topology) -> None:
    """What holds for every topology, however damaged its files are."""
    assert found.cpus
    assert found.allowed_cpus
    assert found.sockets >= 1
    assert sorted(cpu for core in found.cores for cpu in core.cpus) == list(found.cpus)
    assert sorted(cpu for node in found.nodes for cpu in node.cpus) == list(found.cpus)
    assert sorted(index for group in found.l3_groups for index in group.cores) == list(range(len(found.cores)))
    assert all(core.index == i for i, core in enumerate(found.cores))
    assert all(found.l3_groups[core.l3].node == core.node for core in found.cores)
    assert all(len(node.distances) == len(found.nodes) for node in found.nodes)
    plan = plan_cores(found)
    assert len(set(plan.workers)) == len(plan.workers) >= 1
    assert set(plan.workers) <= set(found.allowed_cpus)
    assert not set(plan.workers) & set(plan.kept)


def test_every_machine_is_sound(machine: Path) -> None:
    sound(read_topology(machine))


def test_this_machine() -> None:
    found = topology()
    sound(found)
    assert found.allowed_cpus == tuple(sorted(os.sched_getaffinity(0)))
    assert topology() is found
    assert sum(node.memory_bytes or 0 for node in found.nodes) > 1 << 28


def test_processors_that_no_file_knows_are_there_when_the_process_runs_on_them(unpacked: Path) -> None:
    found = read_topology(machines.unpack("laptop_6c", unpacked), (2, 77))
    assert found.allowed_cpus == (2, 77)
    assert len(found.usable_cores) == 2
    assert found.degraded


JUNK = (
    b"",
    b"\x00\xff\xfe",
    b"-1",
    b"0-",
    b"99999999999999999999999",
    b"3-1,,",
    b"max max",
    b"0-8191",
    b"1 2 3 4",
    b"Node x MemTotal: y",
)


@pytest.mark.parametrize("name", ["laptop_6c", "container_cgroup_v1", "cxl_memory_only_node"])
def test_damaged_files_degrade_and_never_raise(name: str, unpacked: Path, tmp_path: Path) -> None:
    source = machines.unpack(name, unpacked)
    files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    dice = random.Random(name)
    for turn in range(12):
        root = tmp_path / str(turn)
        # Links are enough: what is damaged is taken away first.
        shutil.copytree(source, root, copy_function=os.link)
        share = dice.choice((0.02, 0.2, 0.6))
        for relative in dice.sample(files, int(share * len(files))):
            (root / relative).unlink()
            fate = dice.randrange(3)
            if fate == 0:
                (root / relative).mkdir()
            elif fate == 1:
                (root / relative).write_bytes(dice.choice(JUNK))
        found = read_topology(root)
        sound(found)
        shutil.rmtree(root)


@pytest.mark.parametrize("folder", ["sys/devices/system/node", "sys/devices/system/cpu", "sys", "proc", "."])
def test_missing_folders_degrade_and_never_raise(folder: str, unpacked: Path, tmp_path: Path) -> None:
    root = tmp_path / "machine"
    shutil.copytree(machines.unpack("laptop_6c", unpacked), root, copy_function=os.link)
    shutil.rmtree(root / folder)
    found = read_topology(root)
    sound(found)
    assert found.degraded or folder == "proc"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-7,16-23", (*range(8), *range(16, 24))),
        ("3", (3,)),
        ("5,1-2,1", (1, 2, 5)),
        (" 0-1 \n", (0, 1)),
        ("", ()),
        ("1-", None),
        ("-3", None),
        ("4-2", None),
        ("0-99999", None),
        ("a", None),
        ("1,,2", None),
        ("²", None),
    ],
)
def test_lists_of_processors(text: str, cpus: tuple[int, ...] | None) -> None:
    assert parse_cpus(text) == cpus
    if cpus:
        assert parse_cpus(format_cpus(cpus)) == cpus
