"""Whose tasks a worker takes: near ones first, on the machines of the fixtures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.hardware.topology_read import read_topology
from engine.hardware.worker_plan import plan_cores
from engine.runtime.stealing import steal_order
from tests.helpers import machines


@pytest.mark.parametrize("name", ["epyc7b13_2s", "epyc9374f_nps4", "threadripper_4ccd", "container_cpuset"])
def test_l3_group_then_node_then_the_others(tmp_path: Path, name: str) -> None:
    machine = read_topology(machines.unpack(name, tmp_path))
    cores = plan_cores(machine).workers
    place = {cpu: (core.node, core.l3) for core in machine.cores for cpu in core.cpus}
    order = steal_order(cores, machine)
    n = len(cores)
    assert order.shape == (n, n) and (np.sort(order, axis=1) == np.arange(n)).all()
    for worker, row in enumerate(order.tolist()):
        node, group = place[cores[worker]]
        far = [0 if place[cores[one]][1] == group else 1 if place[cores[one]][0] == node else 2 for one in row]
        assert row[0] == worker and far == sorted(far)
        near = [(one - worker) % n for one, distance in zip(row, far, strict=True) if distance == 0]
        assert near == sorted(near)  # around from itself: two that are done at once do not go to the same one


@pytest.mark.parametrize("name", ["epyc7b13_2s", "epyc9374f_nps4"])
def test_shares_of_a_plan_lie_side_by_side_by_node_and_group(tmp_path: Path, name: str) -> None:
    machine = read_topology(machines.unpack(name, tmp_path))
    place = {cpu: (core.node, core.l3) for core in machine.cores for cpu in core.cpus}
    places = [place[cpu] for cpu in plan_cores(machine).workers]
    assert places == sorted(places)  # the rows of a share follow those of the worker before it


def test_workers_that_are_not_pinned_are_near_to_nobody(tmp_path: Path) -> None:
    machine = read_topology(machines.unpack("threadripper_4ccd", tmp_path))
    assert steal_order((-1, -1, -1), machine).tolist() == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
