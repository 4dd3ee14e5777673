"""Twelve faults put into this machine one by one, and how soon the diagnosis names each of them first.

Run as `python -m tests.bench.faults [NAME...]` on a machine that does nothing else; `--json OUT.json` keeps the table. Faults of
cards are played by `fake_nvml.c`; those of processor, memory, disk, conversation and weights are real, with a real model that
answers all the while. `--healthy SECONDS` answers without a fault and tells what is said all the same, beside the cores that
other programs took meanwhile: that one of them computes is no false alarm where one did.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pytest

from engine.api.commands import Cancel, Generate, PinWorkers
from engine.api.values import LoadOptions, RequestId
from engine.gguf.reader import read_gguf
from engine.service.sensor_feed import SensorFeed
from tests.helpers.models import need_included_model
from tests.helpers.nvml import Cards, build
from tests.helpers.recorder import new_id
from tests.helpers.watched import ANSWER, HEALTHY_S, PERIOD_S, WITHIN_S, Named, Watched, answering


@contextmanager
def busy(cpus: tuple[int, ...]) -> Iterator[None]:
    """Other programs that keep these processors busy. A shell starts them and ends, or they would be of this process's own."""
    code = "import os,sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    start = '"$0" -c "$1" "$2" >/dev/null & echo $!'
    others = [int(subprocess.check_output(["/bin/sh", "-c", start, sys.executable, code, str(cpu)])) for cpu in cpus]
    try:
        yield
    finally:
        for one in others:
            os.kill(one, signal.SIGKILL)


def contention() -> Named:
    with answering(need_included_model()) as (_, watched), busy(tuple(sorted(os.sched_getaffinity(0)))[:1]):
        watched.mark()
        return watched.first()


def crowd() -> Named:
    n = 2 * len(os.sched_getaffinity(0))
    with answering(need_included_model()) as (recorder, watched):
        watched.mark()
        recorder.engine.submit(PinWorkers(new_id("pin"), str(n)))
        return watched.first()


def long_context() -> Named:
    with answering(need_included_model()) as (recorder, watched):
        watched.mark()
        watched.prompt = "word " * 1750
        recorder.engine.submit(Cancel(new_id("cancel"), watched.current[-1]))
        return watched.first()


def queue() -> Named:
    with answering(need_included_model(), LoadOptions(n_ctx=512)) as (recorder, watched):
        watched.mark()
        for _ in range(12):  # more than decode together
            recorder.engine.submit(Generate(new_id("more"), prompt="Tell me more", sampling=ANSWER, ignore_eog=True))
        return watched.first()


def _base(path: Path) -> int:
    """The address at which the start of a mapped file lies, or would lie."""
    line = next(one for one in Path("/proc/self/maps").read_text().splitlines() if one.endswith(str(path)))
    return int(line.partition("-")[0], 16) - int(line.split()[2], 16)


def damaged_weight(healthy_s: float = HEALTHY_S) -> Named:
    """Written to the file, and to the memory of our own that the engine puts in the place of its pages."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.gguf"
        shutil.copy(need_included_model(), path)
        with answering(path, healthy_s=healthy_s) as (_, watched):
            file = read_gguf(path)
            tensor = next(one for name, one in file.tensors.items() if name.startswith("blk.7.ffn_down"))
            watched.mark()
            data = b"\x00\x7e\x00\x7e" * (min(tensor.nbytes, 1 << 16) // 4)
            with path.open("r+b") as out:
                out.seek(tensor.offset)
                out.write(data)
            with suppress(OSError), Path("/proc/self/mem").open("r+b", buffering=0) as memory:
                memory.seek(_base(path) + tensor.offset)
                memory.write(data)
            return watched.first()


def disk() -> Named:
    """A control group too small for the model: its pages are dropped while it answers. Needs root and cgroup v1 or v2."""
    group = Path("/sys/fs/cgroup/memory/layerdeck-faults")
    with tempfile.TemporaryDirectory() as folder:
        group.mkdir(exist_ok=True)
        here = Path("/proc/self/cgroup").read_text()
        before = next(line.split(":")[2] for line in here.splitlines() if ":memory:" in line)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            path = Path(folder) / "model.gguf"
            shutil.copy(need_included_model(), path)
            os.sync()
            with answering(path) as (_, watched):
                nbytes = path.stat().st_size
                # Short of memory, the engine first gives back what it took of the weights: they are the file's pages then.
                full = _written(group)
                (group / "memory.limit_in_bytes").write_text(str(full + nbytes // 4))
                end = time.monotonic() + WITHIN_S
                while _written(group) > full - nbytes // 2 and time.monotonic() < end:
                    time.sleep(0.1)
                watched.mark()
                # What is written must stay, and of the weights nearly half finds no room beside it.
                (group / "memory.limit_in_bytes").write_text(str(_written(group) + int(0.55 * nbytes)))
                return watched.first()
        finally:
            (group / "memory.limit_in_bytes").write_text("-1")
            (Path("/sys/fs/cgroup/memory") / before.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
            with suppress(OSError):
                group.rmdir()


def _written(group: Path) -> int:
    """Bytes of a control group that no file has: without swap they stay."""
    return next(int(line.split()[1]) for line in (group / "memory.stat").read_text().splitlines() if line.startswith("rss "))


def card(*lines: str) -> Callable[[], Named]:
    """A fault of a card that `fake_nvml.c` plays."""

    def run() -> Named:
        patch = pytest.MonkeyPatch()
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as library:
            cards = Cards(Path(folder), build(Path(library)), patch)
            cards.become("gpus 2")
            watched = Watched()
            feed = SensorFeed(watched.take, lambda: None, cards.root)
            feed.follow(RequestId("faults"), PERIOD_S, details=False)
            time.sleep(HEALTHY_S)
            watched.mark()
            cards.become("gpus 2", *lines)
            try:
                return watched.first()
            finally:
                feed.close()
                patch.undo()

    return run


FAULTS: dict[str, tuple[str, Callable[[], Named]]] = {
    "another program on a core of the model": ("R-CONT", contention),
    "twice as many workers as cores": ("R-SMT", crowd),
    "memory too small for the model": ("R-DISK", disk),
    "a weight that is no number": ("R-NAN", damaged_weight),
    "a conversation near the end of its context": ("R-KV-1", long_context),
    "thirteen requests at once": ("R-QUEUE", queue),
    "card slowed by hardware because of heat": ("R-THERM-G", card("set reasons 64", "set temp 84")),
    "card slowed by its driver because of heat": ("R-THERM-G", card("set reasons 32", "set temp 91")),
    "power brake": ("R-BRAKE", card("set reasons 128")),
    "card fell off the bus": ("R-LOST", card("lost 1")),
    "driver hangs": ("R-SENS", card("hang 1 60000")),
    "driver crashes at a card": ("R-SENS", card("crash 1")),
}


class OtherWork:
    """Cores that this process did not get, over SPAN_S: those of other programs, and of whoever else has the machine.

    What the diagnosis says of other programs is proven by it: it reads the sums of the whole machine, and no thread's waiting.
    """

    SPAN_S = 15.0

    def __init__(self) -> None:
        self._sums: deque[tuple[float, float]] = deque()

    def look(self) -> float:
        now, times, own = time.monotonic(), psutil.cpu_times(), psutil.Process()
        mine = 0.0
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.Error):
                mine += sum(process.cpu_times()[:2])
        busy = sum(times) - times.idle - times.iowait - times.guest - times.guest_nice
        self._sums.append((now, busy - mine))
        while now - self._sums[0][0] > self.SPAN_S:
            self._sums.popleft()
        (first_s, first), last = self._sums[0], self._sums[-1][1]
        return (last - first) / max(now - first_s, 0.1) if now > first_s else 0.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """What was said at_s seconds into a healthy run, and the most cores that others had meanwhile."""

    at_s: float
    rule: str
    sentence: str
    other_cores: float

    @property
    def is_true(self) -> bool:
        """Something else did compute on this machine: the run was not healthy then."""
        return self.rule in ABOUT_OTHERS and self.other_cores > LEAST_OTHERS


ABOUT_OTHERS = ("R-CONT", "R-PSI")
LEAST_OTHERS = 0.1


def healthy(seconds: float) -> tuple[list[Alarm], int]:
    """What is said while nothing is wrong, each as long as it goes on once, and the number of readings. Limits are no alarm."""
    with answering(need_included_model(), healthy_s=0.0) as (_, watched):
        others, work = OtherWork(), []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            work.append((time.monotonic() - watched.mark_s, others.look()))
            time.sleep(1.0)
        alarms: list[Alarm] = []
        going: set[str] = set()
        for at, found in watched.shown:
            said = {one.id: one.sentence for one in found if one.is_alarm}
            beside = max((cores for s, cores in work if at - OtherWork.SPAN_S <= s <= at + 1.0), default=0.0)
            alarms += [Alarm(round(at, 1), rule, text, round(beside, 2)) for rule, text in said.items() if rule not in going]
            going = set(said)
        return alarms, len(watched.shown)


def main() -> int:
    """The table; 1 where a fault was not named first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of faults; all by default")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--healthy", type=float, default=0.0, metavar="SECONDS")
    wanted = parser.parse_args()
    if wanted.healthy:
        alarms, n_readings = healthy(wanted.healthy)
        false = [one for one in alarms if not one.is_true]
        for one in alarms:
            truth = "true" if one.is_true else "FALSE"
            print(f"{one.at_s:7.1f} s  {one.rule:10} {truth:5}  others {one.other_cores:.2f} cores  {one.sentence}")
        told = f"{len(false)} false alarms, {len(alarms) - len(false)} true ones"
        print(f"{wanted.healthy:.0f} s without a fault, {n_readings} readings: {told}")
        return int(bool(false))
    rows = []
    for name, (expected, run) in FAULTS.items():
        if wanted.names and not any(one in name for one in wanted.names):
            continue
        named = run()
        rows.append({"fault": name, "expected": expected} | asdict(named))
        beside = f"  (before: {', '.join(named.before)})" if named.before else ""
        print(f"{name:45} {named.rule:10} {named.seconds:5.1f} s  {named.sentence}{beside}", flush=True)
    if wanted.json:
        wanted.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["expected"] != row["rule"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
