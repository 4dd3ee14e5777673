"""The share of the processors that this process's threads get, and which other programs take the rest, from /proc. Never raises.

A file a thread and reading, 8 microseconds each; other programs are looked through only while they take much, and rarely.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.hardware import sysfs
from engine.hardware.process_sample import ForeignProcess, ProcessSample, ThreadSample
from engine.hardware.process_tree import ProcessTree, spent_s, stat_words
from engine.hardware.rates import Rates

BUSY_PERCENT = 10.0
"""Computing and waiting together; below that a thread is no worker that matters now."""
FOREIGN_LOOKS_S = 2.0
FOREIGN_CORES = 0.1
"""A program that takes less of the processors explains nothing."""
MOST_FOREIGN = 3
MOST_PROCESSES = 4000
"""Of a machine with more no other program is named: a look would cost too much."""

NO_SCHEDSTAT = "this kernel does not tell how long threads wait for processors"
FIRST = "it is measured from the second reading on"


class ProcessGauges:
    """This process on one machine. Rates are of the time since the reading before."""

    def __init__(self, root: Path) -> None:
        self._proc = root / "proc"
        self._tasks = str(root / "proc/self/task")
        self._rates = Rates()
        self._known: frozenset[str] = frozenset()
        self._tree = ProcessTree(self._proc)
        self._foreign = _Foreign(self._proc, self._tree)

    def read(self, now: float, used_cores: float | None) -> ProcessSample:
        """used_cores: processors' worth of time that all programs took, None where it is unknown; now: monotonic seconds."""
        cores = self._cores(now)
        threads = self._threads(now)
        others = None if used_cores is None or cores is None else used_cores - cores
        foreign = self._foreign.read(now, wanted=others is not None and others >= FOREIGN_CORES)
        missing = [] if cores is not None else [("cores", FIRST)]
        if threads is None:
            missing.append(("threads", NO_SCHEDSTAT))
        return ProcessSample(cores, threads or (), foreign, tuple(missing))

    def _cores(self, now: float) -> float | None:
        spent = spent_s(stat_words(sysfs.read(str(self._proc / "self/stat"))))
        own = self._rates.of("process", spent, now)
        return None if own is None else own + self._tree.cores(now)

    def _threads(self, now: float) -> tuple[ThreadSample, ...] | None:
        try:
            names = os.listdir(self._tasks)  # noqa: PTH208 a Path each is dear
        except OSError:
            return None
        found, seen = [], False
        for name in names:
            # ns on a processor, ns ready and without one, times: sched-stats.rst of the kernel.
            words = (sysfs.read(f"{self._tasks}/{name}/schedstat") or b"").split()
            if len(words) != 3 or not words[0].isdigit() or not words[1].isdigit():
                continue
            seen = True
            ran, waited = self._rates.of(f"ran {name}", int(words[0]), now), self._rates.of(f"waited {name}", int(words[1]), now)
            if ran is None or waited is None or (ran + waited) * 1e-7 < BUSY_PERCENT:
                continue
            found.append(self._thread(name, ran * 1e-7, waited * 1e-7, now))
        for gone in self._known.difference(names):
            for kind in ("ran", "waited", "taken"):
                self._rates.of(f"{kind} {gone}", None, now)
        self._known = frozenset(names)
        return tuple(sorted(found, key=lambda one: one.thread)) if seen else None

    def _thread(self, name: str, ran: float, waited: float, now: float) -> ThreadSample:
        words = stat_words(sysfs.read(f"{self._tasks}/{name}/stat"))
        cpu = int(words[36]) if len(words) > 36 and words[36].isdigit() else -1
        taken = None
        for line in (sysfs.read(f"{self._tasks}/{name}/status") or b"").split(b"\n"):
            if line.startswith(b"nonvoluntary_ctxt_switches:"):
                word = line.partition(b":")[2].strip()
                taken = int(word) if word.isdigit() else None
        rate = self._rates.of(f"taken {name}", taken, now)
        return ThreadSample(int(name), cpu, min(100.0, ran), min(100.0, waited), rate)


class _Foreign:
    """Other programs by the time they take."""

    def __init__(self, proc: Path, tree: ProcessTree) -> None:
        self._proc, self._tree = proc, tree
        self._due = 0.0
        self._rates = Rates()
        self._found: tuple[ForeignProcess, ...] = ()

    def read(self, now: float, *, wanted: bool) -> tuple[ForeignProcess, ...]:
        if not wanted:
            self._rates, self._found = Rates(), ()
            return ()
        if now >= self._due:
            self._due = now + FOREIGN_LOOKS_S
            self._found = self._look(now)
        return self._found

    def _look(self, now: float) -> tuple[ForeignProcess, ...]:
        try:
            numbers = [name for name in os.listdir(str(self._proc)) if name.isdigit()]  # noqa: PTH208 a Path each is dear
        except OSError:
            return ()
        if len(numbers) > MOST_PROCESSES:
            return ()
        stats = {number: raw for number in numbers if (raw := sysfs.read(str(self._proc / number / "stat"))) is not None}
        own = str(os.getpid())
        columns = {number: stat_words(raw) for number, raw in stats.items()}
        ours = self._tree.learn({number: words[1].decode() for number, words in columns.items() if len(words) > 12}, own)
        by_name: dict[str, float] = {}
        for number, words in columns.items():
            if number == own or number in ours:
                continue
            rate = self._rates.of(number, spent_s(words), now)
            if rate is not None:
                name = stats[number].partition(b"(")[2].rpartition(b")")[0].decode("utf-8", "replace")
                by_name[name] = by_name.get(name, 0.0) + rate
        most = sorted(((cores, name) for name, cores in by_name.items() if cores >= FOREIGN_CORES), reverse=True)
        return tuple(ForeignProcess(name, cores) for cores, name in most[:MOST_FOREIGN])
