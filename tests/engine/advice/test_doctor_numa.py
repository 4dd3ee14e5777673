"""Rows about memory nodes: how many, what the kernel does with pages, where weights lie, what the system refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.advice.doctor.counters import Counters
from engine.advice.doctor.facts import ModelFacts, NodePolicy
from tests.helpers import machines
from tests.helpers.doctoring import cpus, made, says

MODEL = Path("model.gguf")
TWO = cpus(8, per_node=4)


def loaded(policy: NodePolicy, *pages: int, placed: float | None = None, denied: str = "") -> ModelFacts:
    node_pages = tuple(enumerate(pages))
    return ModelFacts(MODEL, is_loaded=True, node_policy=policy, node_pages=node_pages, placed=placed, denied=denied)


def test_nodes(tmp_path: Path) -> None:
    assert says("D-NUMA-1", tmp_path / "nothing").status == "unknown"
    assert says("D-NUMA-1", made(tmp_path / "two", TWO)).status == "pass"
    four = machines.unpack("epyc9374f_nps4", tmp_path)
    found = says("D-NUMA-1", four)
    assert found.status == "pass"
    assert "4 memory zones" in found.why
    assert "measure" in found.why
    assert says("D-NUMA-1", four, model=loaded("mapped")).status == "warn"
    assert says("D-NUMA-1", machines.unpack("epyc7b13_2s", tmp_path)).why == "Distance to the farthest memory: 32 (10 is near)."


@pytest.mark.parametrize(
    ("value", "policy", "status"),
    [("0", "mapped", "pass"), ("1", "mapped", "warn"), ("1", "first touch", "warn"), ("1", "split", "pass"), ("1", "", "pass")],
)
def test_balancing(value: str, policy: NodePolicy, status: str, tmp_path: Path) -> None:
    assert says("D-NUMA-2", made(tmp_path / "one", cpus(4) | {"proc/sys/kernel/numa_balancing": "1"})).status == "n/a"
    assert says("D-NUMA-2", made(tmp_path / "two", TWO)).status == "unknown"
    root = made(tmp_path / "two", TWO | {"proc/sys/kernel/numa_balancing": value, "proc/vmstat": "numa_pages_migrated 900\n"})
    found = says("D-NUMA-2", root, model=loaded(policy))
    assert found.status == status
    assert [fix.undo for fix in found.fixes if fix.command] == (
        ["sudo sysctl kernel.numa_balancing=1"] if status == "warn" else []
    )
    assert "100 pages just now" in says("D-NUMA-2", root, before=Counters(0.0, moved=800)).observed


def test_balancing_matters_where_memory_could_not_be_placed(tmp_path: Path) -> None:
    root = made(tmp_path, TWO | {"proc/sys/kernel/numa_balancing": "1"})
    assert says("D-NUMA-2", root, model=loaded("split", denied="the container forbids it")).status == "warn"


def test_where_weights_lie(tmp_path: Path) -> None:
    root = made(tmp_path, TWO)
    assert says("D-NUMA-3", made(tmp_path / "one", cpus(4)), model=loaded("split", 9, 1)).status == "n/a"
    assert says("D-NUMA-3", root).status == "n/a"
    assert says("D-NUMA-3", root, model=loaded("split")).status == "unknown"
    assert says("D-NUMA-3", root, model=loaded("split", 50, 50, placed=0.99)).status == "pass"
    found = says("D-NUMA-3", root, model=loaded("mapped", 80, 20))
    assert (found.status, found.observed) == ("warn", "node 0: 80 %, node 1: 20 %")
    assert says("D-NUMA-3", root, model=loaded("single", 100, 0)).status == "pass"
    assert says("D-NUMA-3", root, model=loaded("split", 50, 50, placed=0.5)).status == "warn"


def card(pci: str, node: str) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{pci}"
    return {f"{folder}/class": "0x030000", f"{folder}/vendor": "0x10de", f"{folder}/numa_node": node}


def test_cards_and_nodes(tmp_path: Path) -> None:
    assert says("D-NUMA-4", made(tmp_path / "none", TWO)).status == "n/a"
    assert says("D-NUMA-4", made(tmp_path / "one", cpus(4) | card("0000:01:00.0", "0"))).status == "n/a"
    assert says("D-NUMA-4", made(tmp_path / "unknown", TWO | card("0000:01:00.0", "-1"))).status == "unknown"
    root = made(tmp_path / "two", TWO | card("0000:01:00.0", "0") | card("0000:41:00.0", "1"))
    assert says("D-NUMA-4", root).status == "pass"
    made(root, {"proc/self/status": "Cpus_allowed_list:\t0-3\n"})
    found = says("D-NUMA-4", root)
    assert found.status == "warn"
    assert "0000:41:00.0" in found.why


def test_placing_memory(tmp_path: Path) -> None:
    assert says("D-NUMA-5", made(tmp_path / "one", cpus(4))).status == "n/a"
    root = made(tmp_path / "two", TWO)
    assert says("D-NUMA-5", root).status == "unknown"
    found = says("D-NUMA-5", root, model=loaded("first touch", denied="the container forbids memory placement"))
    assert found.status == "warn"
    assert not found.fixes
    inside = machines.unpack("container_cpuset", tmp_path)
    assert "SYS_NICE" in says("D-NUMA-5", inside, model=loaded("first touch", denied="Refused.")).fixes[0].command
