"""What runs within the guest of two nodes: faults that only such a machine can have, put in while a real model answers, and what
the diagnosis says of them by the guest's own sensors. Seconds are the guest's. Each is then mended by what its button does.

Prints a table, then `passed`, or what is wrong.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine.api.commands import ApplyPlacement, AskHoldings, Command, PinWorkers
from engine.api.events import Holdings
from engine.api.values import LoadOptions
from engine.hardware.topology_read import topology
from tests.helpers import recorder as recording
from tests.helpers.recorder import Recorder, new_id
from tests.helpers.watched import WITHIN_S, Named, Watched, answering
from tests.numa_guest.guest import ended, tell
from tests.numa_guest.outside import free_mib, program

MODEL = next(Path("/models").glob("*.gguf"), Path())
OPTIONS = LoadOptions(n_ctx=1024)
GONE_S = 60.0
"""Readings of ten seconds, the ten for which a finding stays, and what a slow guest takes to mend it."""
LEFT_MIB = 4
"""Of the full node: less than the part of the model that belongs there."""
ROOM_MIB = 200
"""More than that part: the program that took the node has ended."""


class Table:
    """Prints rows as they come, and remembers what was wrong."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        tell(f"| {'fault':<58} | {'first':<9} | {'after':>7} | {'gone':>7} |")

    def row(self, fault: str, expected: str, words: str, named: Named, gone_s: float | None) -> None:
        """A fault, what was said first, and how soon it was silent after it was mended."""
        after = "n/a" if gone_s is None else f"{gone_s:5.1f} s"
        tell(f"| {fault:<58} | {named.rule:<9} | {named.seconds:5.1f} s | {after:>7} |")
        tell(f"    {named.sentence}" + (f" (before: {', '.join(named.before)})" if named.before else ""))
        self.check(named.rule == expected and named.seconds <= WITHIN_S, f"{fault}: {named}")
        self.check(words in named.sentence, f"{fault}: {words!r} is not said: {named.sentence}")
        self.check(gone_s is not None, f"{fault}: it is still said after it was mended")

    def check(self, good: bool, what: str) -> None:
        """Goes on all the same: the other faults are to be seen too."""
        if not good:
            tell(f"    WRONG: {what}")
            self.wrong.append(what)


def threads_by_cpu() -> dict[int, int]:
    """The threads that are pinned to one processor, by it."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        allowed = os.sched_getaffinity(int(task.name))
        if len(allowed) == 1:
            found[next(iter(allowed))] = int(task.name)
    return found


def off_node(recorder: Recorder) -> float:
    """The share of sampled pages that lies elsewhere."""
    command = AskHoldings(new_id("ask"))
    recorder.finished(command)
    share = next(one for one in recorder.of(command.request_id) if isinstance(one, Holdings)).off_node_share
    assert share is not None
    return share


def mended(watched: Watched, rule: str, mend: Callable[[], object]) -> float | None:
    """Seconds until it is silent."""
    watched.mark()
    watched.known.clear()
    mend()
    return watched.gone(rule, GONE_S)


def healthy(table: Table, watched: Watched, seconds: float) -> None:
    """No alarm while nothing is wrong."""
    time.sleep(seconds)
    alarms = [(round(at, 1), one.id, one.sentence) for at, found in watched.shown for one in found if one.is_alarm]
    rates = [one.work.decode_tok_s for one in watched.doctor.window.readings if one.work and one.work.decode_tok_s]
    rate = sum(rates) / max(1, len(rates))
    tell(
        f"healthy: {seconds:.0f} s of the guest, {len(alarms)} alarms, {rate:.1f} tokens/s; known before: {sorted(watched.known)}"
    )
    table.check(not alarms, f"false alarms: {alarms[:3]}")
    table.check(len(watched.shown) > 0.5 * seconds, f"only {len(watched.shown)} readings in {seconds:.0f} s")


def pages_sent_away(table: Table, recorder: Recorder, watched: Watched) -> None:
    """As migratepages(8) does it."""
    before = off_node(recorder)
    with program("send", os.getpid(), 1, 0) as other:
        watched.mark()
        tell(f"    {other.act()}")
        named = watched.first()
    there = off_node(recorder)
    gone_s = mended(watched, "R-NUMA-1", lambda: recorder.finished(again(watched)))
    after = off_node(recorder)
    tell(f"    elsewhere: {before:.1%} before, {there:.1%} then, {after:.1%} after they were placed again")
    table.check(before < 0.02 and there > 0.3 and after < 0.02, "the pages did not go and come back")
    table.row("pages of node 1 sent to node 0 by another program", "R-NUMA-1", "on node 0 instead of node 1", named, gone_s)


def again(watched: Watched) -> Command:
    """What the button of R-NUMA-1 does."""
    assert watched.info is not None and watched.info.placement is not None
    return ApplyPlacement(new_id("again"), watched.info.placement)


def worker_moved(table: Table, recorder: Recorder, watched: Watched) -> None:
    """As taskset(1) does it."""
    thread = threads_by_cpu()[3]
    with program("pin", thread, 0) as other:
        watched.mark()
        tell(f"    {other.act()}")
        named = watched.first()
    target = next((one.action.target for one in watched.doctor.findings if one.id == "R-PIN"), "")
    gone_s = mended(watched, "R-PIN", lambda: recorder.finished(PinWorkers(new_id("pin"), target)))
    where = sorted(threads_by_cpu())
    tell(f"    pinned again to {target}; /proc: workers beside the first on {where}")
    table.check(target == "0-3" and set(where) >= {1, 2, 3}, f"the workers are on {where}, wanted {target}")
    table.row("a worker of node 1 moved to node 0 by another program", "R-PIN", "on memory node 0", named, gone_s)


def node_taken(table: Table, recorder: Recorder, watched: Watched) -> None:
    """Every processor of node 1."""
    with program("busy", 2, 3) as other:
        watched.mark()
        tell(f"    {other.act()}")
        named = watched.first()
        gone_s = mended(watched, "R-CONT", other.end)
    table.row("another program on all processors of node 1", "R-CONT", "memory node 1", named, gone_s)


def node_full(table: Table) -> None:
    """A program bound to node 1 has taken it; then the model is loaded."""
    killed = kills()
    with program("fill", 1, LEFT_MIB) as other:
        tell(f"    {other.act()}")
        with answering(MODEL, OPTIONS, healthy_s=0.5) as (recorder, watched):
            assert watched.info is not None
            notes = [one for one in watched.info.placement_notes if "Memory node 1 had no room" in one]
            tell(f"    at load: {' '.join(notes) or 'nothing is said'}")
            tell(f"    elsewhere: {off_node(recorder):.1%}; free now: {[free_mib(node) for node in (0, 1)]} MiB")
            named = watched.first()
            other.end()
            while free_mib(1) < ROOM_MIB:
                time.sleep(0.1)
            gone_s = mended(watched, "R-NUMA-1", lambda: recorder.finished(again(watched)))
            after = off_node(recorder)
            tell(f"    elsewhere after it was placed again with room: {after:.1%}")
    table.check(len(notes) == 1, f"the load says nothing of the full node: {notes}")
    table.check(after < 0.02, f"{after:.1%} still lie elsewhere")
    table.check(kills() == killed, "the system has killed a program")
    table.row("node 1 is full when a split model is loaded", "R-NUMA-1", "on node 0 instead of node 1", named, gone_s)


FAULTS = {"pages": pages_sent_away, "worker": worker_moved, "cores": node_taken}
FULL = "full"


def kills() -> int:
    """Programs that the system has ended for want of memory."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def main() -> int:
    """Everything, in order."""
    recording.PATIENCE_S = 600.0
    wanted = os.environ.get("GUEST_FAULTS", ",".join((*FAULTS, FULL))).split(",")
    tell(f"nodes: {[(one.node, one.cpus, one.memory_bytes) for one in topology().nodes]}; {MODEL.name}")
    table = Table()
    with answering(MODEL, OPTIONS) as (recorder, watched):
        assert watched.info is not None
        tell(f"    notes: {watched.info.placement_notes}")
        healthy(table, watched, float(os.environ.get("GUEST_HEALTHY", "120")))
        for fault in (one for name, one in FAULTS.items() if name in wanted):
            fault(table, recorder, watched)
    if FULL in wanted:
        node_full(table)
    for one in table.wrong:
        tell(f"wrong: {one}")
    return len(table.wrong)


if __name__ == "__main__":
    sys.exit(ended(main))
