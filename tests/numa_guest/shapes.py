"""What runs within guests of which one node has no memory and one has no processors: topology, worker plan, placement, and a real
model that is loaded and answers there. GUEST_SHAPE says which guest it is. Prints `passed`, or what is wrong."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from engine.api.commands import AskHoldings, Generate
from engine.api.events import Holdings
from engine.api.values import LoadOptions, SamplingParams
from engine.hardware.machine import this_machine
from engine.hardware.topology_read import topology
from engine.hardware.worker_plan import plan_cores
from engine.runtime.node_memory import ENOUGH
from tests.helpers import recorder as recording
from tests.helpers.recorder import Recorder, new_id
from tests.numa_guest.guest import ended, tell

MODEL = next(Path("/models").glob("*.gguf"), Path())


@dataclass(frozen=True, slots=True)
class Expected:
    """with_memory: nodes that have some; cores: of each of them, those of nodes without memory counted to the nearest.

    used: nodes that a model lies on when nobody says where.
    """

    with_memory: tuple[int, ...]
    cores: tuple[tuple[int, ...], ...]
    used: tuple[int, ...]


EXPECTED = {
    "bare": Expected((0, 2), ((0, 1, 2, 3), ()), (0,)),
    "first-without-memory": Expected((1, 2), ((0, 1), (2, 3)), (1, 2)),
}


def main() -> int:
    """Everything, in order."""
    recording.PATIENCE_S = 600.0
    wanted = EXPECTED[os.environ["GUEST_SHAPE"]]
    machine, here = topology(), this_machine()
    tell(f"nodes: {[(one.node, one.cpus, one.memory_bytes, one.distances) for one in machine.nodes]} {machine.degraded}")
    tell(f"nodes with memory: {[(one.node, one.cpus, one.n_cores) for one in here.nodes]}")
    assert len(machine.nodes) == 3 and sorted(cpu for one in machine.nodes for cpu in one.cpus) == [0, 1, 2, 3]
    assert machine.memory_nodes == wanted.with_memory == here.node_numbers
    assert tuple(one.cpus for one in here.nodes) == wanted.cores
    plan = plan_cores(machine)
    tell(f"worker plan: {plan}")
    assert plan.workers == (0, 1, 2, 3)
    with Recorder() as recorder:
        info = recorder.load(MODEL, LoadOptions(n_ctx=512))
        tell(f"devices: {[(one.device, one.nbytes) for one in info.devices]}; notes: {info.placement_notes}")
        assert info.placement is not None and info.placement.nodes == wanted.used
        assert info.placement_notes == ()
        pinned = _pinned()
        tell(f"workers beside the first on {sorted(pinned)}")
        assert len(pinned) == 3, "some cores are idle"
        answer = Generate(new_id("answer"), prompt="Once upon a time", sampling=SamplingParams(temperature=0.0, max_tokens=12))
        recorder.finished(answer)
        tell(f"answer: {recorder.text(answer.request_id)!r}")
        assert recorder.text(answer.request_id).strip()
        command = AskHoldings(new_id("ask"))
        recorder.finished(command)
        found = next(one for one in recorder.of(command.request_id) if isinstance(one, Holdings))
        tell(f"pages: {found.node_pages}, elsewhere {found.off_node_share}, {found.node_policy!r}")
        assert found.off_node_share is not None and found.off_node_share <= 1 - ENOUGH
        assert {node for node, n in found.node_pages if n} == set(wanted.used)
    return 0


def _pinned() -> set[int]:
    """Processors that a thread of this program is pinned to."""
    masks = [os.sched_getaffinity(int(task.name)) for task in Path("/proc/self/task").iterdir()]
    return {next(iter(one)) for one in masks if len(one) == 1}


if __name__ == "__main__":
    sys.exit(ended(main))
