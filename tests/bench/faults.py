"""Twelve faults put into this machine one by one, and how soon the diagnosis names each of them first.

Run as `python -m tests.bench.faults [NAME...]` on a machine that does nothing else; `--json OUT.json` keeps the table. Faults of
cards are played by `fake_nvml.c`; those of processor, memory, disk, conversation and weights are real, with a real model that
answers all the while. `--healthy SECONDS` answers without a fault and counts what is said all the same.
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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from app.ops.diagnosis_facts import DiagnosisFacts
from engine.advice.diagnosis.diagnostician import Diagnostician
from engine.advice.diagnosis.finding import Finding
from engine.advice.diagnosis.window import Reading
from engine.api.commands import Cancel, Generate, PinWorkers, WatchSensors
from engine.api.events import Counters, Event, Sensors
from engine.api.values import HardwareSnapshot, LoadOptions, RequestId, SamplingParams
from engine.gguf.reader import read_gguf
from engine.hardware.topology_read import topology
from engine.service.sensor_feed import SensorFeed
from tests.helpers.models import need_included_model
from tests.helpers.nvml import Cards, build
from tests.helpers.recorder import Recorder, new_id

WITHIN_S = 15.0
HEALTHY_S = 13.0
"""A whole window and more: what is true of this machine anyway has been said by then."""
PERIOD_S = 1.0
ANSWER = SamplingParams(temperature=0.8, max_tokens=1000, seed=7)


@dataclass(frozen=True, slots=True)
class Named:
    """What was said first, after how many seconds. before: what was said already when the fault began."""

    rule: str
    seconds: float
    sentence: str
    before: tuple[str, ...] = ()


class Watched:
    """A diagnosis that follows an engine or a feed. shown: (seconds since the mark, findings) whenever they changed."""

    def __init__(self) -> None:
        self.facts, self.doctor = DiagnosisFacts(), Diagnostician()
        self.shown: list[tuple[float, tuple[Finding, ...]]] = []
        self.prompt = "Once upon a time"
        self.current: list[RequestId] = []
        self.known: set[tuple[str, str]] = set()
        self._snapshot: HardwareSnapshot | None = None
        self._lock = threading.Lock()
        self.mark_s = time.monotonic()

    def mark(self) -> None:
        """The fault begins now. What is said already is of this machine and not of the fault: it is left out from here on."""
        with self._lock:
            self.known |= {one.key for one in self.doctor.findings}
            self.mark_s, self.shown = time.monotonic(), []

    def take(self, event: Event) -> None:
        """Any thread."""
        with self._lock:
            if self.facts.take(event):
                self.doctor.forget()
            if isinstance(event, Sensors):
                if self._snapshot is not None:
                    self._push(None)
                self._snapshot = event.snapshot
            elif isinstance(event, Counters):
                self._push(event)

    def _push(self, counters: Counters | None) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            return
        if self.facts.now.topology is None:
            self.facts.now = replace(self.facts.now, topology=topology())
        found = self.doctor.push(Reading(snapshot, None if counters is None else counters.sample), self.facts.now)
        self.facts.watch(self.doctor.window)
        self.shown.append((time.monotonic() - self.mark_s, found))

    def first(self, within_s: float = WITHIN_S) -> Named:
        """What was said first after the mark; waits for it."""
        while time.monotonic() - self.mark_s < within_s:
            with self._lock:
                for at, found in self.shown:
                    new = [one for one in found if one.key not in self.known]
                    if new:
                        return Named(new[0].id, at, new[0].sentence, tuple(sorted(one for one, _ in self.known)))
            time.sleep(0.05)
        return Named("nothing", within_s, "", tuple(sorted(one for one, _ in self.known)))


@contextmanager
def answering(
    options: LoadOptions | None = None, path: Path | None = None, healthy_s: float = HEALTHY_S
) -> Iterator[tuple[Recorder, Watched]]:
    """A model that answers without end, and the diagnosis beside it, which has heard enough of how it is in health."""
    watched = Watched()
    with Recorder() as recorder:
        recorder.engine.subscribe(watched.take)
        recorder.load(path or need_included_model(), options or LoadOptions(n_ctx=2048))
        warm = Generate(new_id(), prompt="A", sampling=SamplingParams(temperature=0.0, max_tokens=8))
        recorder.finished(warm)
        recorder.engine.submit(WatchSensors(new_id("watch"), PERIOD_S))
        ended = threading.Event()

        def keep() -> None:
            while not ended.is_set():
                request = Generate(new_id("keep"), prompt=watched.prompt, sampling=ANSWER, ignore_eog=True)
                recorder.engine.submit(request)
                watched.current.append(request.request_id)
                with suppress(AssertionError):
                    recorder.end_of(request.request_id)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        time.sleep(healthy_s)
        watched.mark()
        try:
            yield recorder, watched
        finally:
            ended.set()
            for one in watched.current[-1:]:
                recorder.engine.submit(Cancel(new_id("cancel"), one))
            thread.join(10)


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
    with answering() as (_, watched), busy(tuple(sorted(os.sched_getaffinity(0)))[:1]):
        watched.mark()
        return watched.first()


def crowd() -> Named:
    n = 2 * len(os.sched_getaffinity(0))
    with answering() as (recorder, watched):
        watched.mark()
        recorder.engine.submit(PinWorkers(new_id("pin"), str(n)))
        return watched.first()


def long_context() -> Named:
    with answering() as (recorder, watched):
        watched.mark()
        watched.prompt = "word " * 1750
        recorder.engine.submit(Cancel(new_id("cancel"), watched.current[-1]))
        return watched.first()


def queue() -> Named:
    with answering(LoadOptions(n_ctx=512)) as (recorder, watched):
        watched.mark()
        for _ in range(6):
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
        with answering(path=path, healthy_s=healthy_s) as (_, watched):
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
            with answering(path=path) as (_, watched):
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
    "seven requests at once": ("R-QUEUE", queue),
    "card slowed by hardware because of heat": ("R-THERM-G", card("set reasons 64", "set temp 84")),
    "card slowed by its driver because of heat": ("R-THERM-G", card("set reasons 32", "set temp 91")),
    "power brake": ("R-BRAKE", card("set reasons 128")),
    "card fell off the bus": ("R-LOST", card("lost 1")),
    "driver hangs": ("R-SENS", card("hang 1 60000")),
    "driver crashes at a card": ("R-SENS", card("crash 1")),
}


def healthy(seconds: float) -> list[tuple[float, str]]:
    """What is said while nothing is wrong; limits that are reached are no alarm."""
    with answering() as (_, watched):
        time.sleep(seconds)
        return [(round(at, 1), one.id) for at, found in watched.shown for one in found if one.is_alarm]


def main() -> int:
    """The table; 1 where a fault was not named first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of faults; all by default")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--healthy", type=float, default=0.0, metavar="SECONDS")
    wanted = parser.parse_args()
    if wanted.healthy:
        alarms = healthy(wanted.healthy)
        print(f"{wanted.healthy:.0f} s without a fault: {len(alarms)} alarms {alarms[:5]}")
        return int(bool(alarms))
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
