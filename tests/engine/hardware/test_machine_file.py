"""Machines that files describe, with several nodes and with rates."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidRequest
from engine.hardware.machine import machine_fingerprint, nodes_of, this_machine
from engine.hardware.machine_file import read_machine
from engine.hardware.user_data import user_data_dir

GIB = 1 << 30
TWO: dict[str, Any] = {
    "name": "EPYC box",
    "nodes": [{"name": "EPYC 7B13", "ram_gib": 64, "cores": 64, "read_gbps": 204.8, "count": 2}],
    "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 3, "link_gbps": 25}, {"memory_gib": 8, "node": 1}],
}


def written(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_nodes_and_cards_are_numbered_in_order(tmp_path: Path) -> None:
    machine = read_machine(written(tmp_path, TWO))
    assert (machine.name, machine.ram_bytes, machine.problem) == ("EPYC box", 128 * GIB, "")
    assert [(one.node, one.name, one.ram_bytes, one.n_cores, one.read_gbps) for one in machine.nodes] == [
        (0, "EPYC 7B13", 64 * GIB, 64, 204.8),
        (1, "EPYC 7B13", 64 * GIB, 64, 204.8),
    ]
    assert [(one.index, one.name, one.link_gbps, one.read_gbps, one.node) for one in machine.gpus] == [
        (0, "RTX 4090", 25.0, None, 0),
        (1, "RTX 4090", 25.0, None, 0),
        (2, "RTX 4090", 25.0, None, 0),
        (3, "GPU", None, None, 1),
    ]
    assert machine.node(1) == machine.nodes[1] and machine.node(2) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ram_gib": 64}, "ram_gib and nodes, which contradict each other"),
        ({"nodes": []}, "nodes is empty"),
        ({"nodes": {}}, "nodes is not a list"),
        ({"nodes": [{"ram_gib": 64, "cores": 0}]}, r"nodes\[0\].cores is 0; a machine has 1 to 4096 cores"),
        ({"nodes": [{"ram_gib": 64, "count": 65}]}, r"nodes\[0\].count is 65; a machine has 1 to 64 nodes"),
        ({"nodes": [{"ram_gib": 64, "read_gbps": -1}]}, "give GB/s, more than 0"),
        ({"nodes": [{"ram_gib": 64, "core": 3}]}, "did you mean cores?"),
        ({"gpus": [{"memory_gib": 8, "node": 2}]}, r"gpus\[0\].node is 2, which is not there; the machine has nodes 0 to 1"),
        ({"gpus": [{"memory_gib": 8, "link_gbps": "fast"}]}, r"gpus\[0\].link_gbps is 'fast'"),
    ],
)
def test_contradictions_are_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        read_machine(written(tmp_path, TWO | change))


def test_this_machine_has_a_node_and_keeps_its_fingerprint() -> None:
    machine = this_machine({"LAYERDECK_GPU": "none"})
    assert machine.nodes and sum(one.ram_bytes for one in machine.nodes) > 0 and machine.nodes[0].n_cores > 0
    assert machine_fingerprint(machine) == machine_fingerprint(this_machine({"LAYERDECK_GPU": "none"}))
    assert machine_fingerprint(machine) != machine_fingerprint(this_machine({"LAYERDECK_GPU": "emulate"}))


def test_nodes_are_read_from_the_system(tmp_path: Path) -> None:
    assert [(one.ram_bytes, one.ram_free) for one in nodes_of(tmp_path, 9, 8)] == [(9, 8)]
    for i in range(2):
        folder = tmp_path / f"sys/devices/system/node/node{i}"
        folder.mkdir(parents=True)
        lines = {"MemTotal": 1000 + i, "MemFree": 100, "FilePages": 50, "Shmem": 10}
        text = "".join(f"Node {i} {key}:      {value} kB\n" for key, value in lines.items())
        (folder / "meminfo").write_text(text)
        (folder / "cpulist").write_text(f"{4 * i}-{4 * i + 3},100\n")
    found = nodes_of(tmp_path, 9, 8)
    allowed = os.sched_getaffinity(0)
    assert [one.cpus for one in found] == [tuple(n for n in range(4 * i, 4 * i + 4) if n in allowed) for i in range(2)]
    assert [(one.node, one.ram_bytes, one.ram_free) for one in found] == [(0, 1000 << 10, 140 << 10), (1, 1001 << 10, 140 << 10)]


def test_cores_of_nodes_without_memory_count_to_the_nearest(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    for i, (kib, listed, far) in enumerate(
        ((1000, "", "10 28 32"), (0, str(cpus[-1]), "28 10 16"), (900, str(cpus[0]), "32 16 10"))
    ):
        folder = tmp_path / f"sys/devices/system/node/node{i}"
        folder.mkdir(parents=True)
        (folder / "meminfo").write_text(f"Node {i} MemTotal:      {kib} kB\n")
        (folder / "cpulist").write_text(f"{listed}\n")
        (folder / "distance").write_text(f"{far}\n")
    assert [(one.node, one.cpus) for one in nodes_of(tmp_path, 9, 8)] == [(0, ()), (2, tuple(cpus))]
    (tmp_path / "sys/devices/system/node/node1/distance").write_text("junk\n")
    assert nodes_of(tmp_path, 9, 8)[0].cpus == tuple(cpus[1:])


def test_what_is_measured_lies_beside_the_chats(tmp_path: Path) -> None:
    from app.paths import find_paths

    for env in ({"LAYERDECK_HOME": str(tmp_path)}, {}):
        assert user_data_dir(env) == find_paths(env).data
