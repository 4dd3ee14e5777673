"""The processes that this one started, and theirs: what they take of the processors is no other program's. Never raises."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from engine.hardware import sysfs
from engine.hardware.rates import Rates

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class ProcessTree:
    """Those below this process. They are found when somebody has looked through all processes (not every kernel keeps lists of
    children), and are read with every reading from then on, until they end."""

    def __init__(self, proc: Path) -> None:
        """proc: where /proc lies."""
        self._proc = proc
        self._known: tuple[str, ...] = ()
        self._rates = Rates()

    def learn(self, parents: Mapping[str, str], top: str) -> frozenset[str]:
        """All below `top`, of the parent of every process; both are numbers as the system writes them."""
        children: dict[str, list[str]] = {}
        for number, parent in parents.items():
            children.setdefault(parent, []).append(number)
        found: dict[str, None] = {}
        todo = list(children.get(top, ()))
        while todo:
            number = todo.pop()
            if number not in found:
                found[number] = None
                todo += children.get(number, ())
        self._keep(tuple(found))
        return frozenset(found)

    def cores(self, now: float) -> float:
        """Processors' worth of time that those known took since the reading before. now: monotonic seconds."""
        total, living = 0.0, []
        for number in self._known:
            words = stat_words(sysfs.read(str(self._proc / number / "stat")))
            if (seconds := spent_s(words)) is None:
                continue
            living.append(number)
            total += self._rates.of(number, seconds, now) or 0.0
        self._keep(tuple(living))
        return total

    def _keep(self, numbers: tuple[str, ...]) -> None:
        for gone in set(self._known).difference(numbers):
            self._rates.of(gone, None, 0.0)
        self._known = numbers


def stat_words(stat: bytes | None) -> list[bytes]:
    """The columns of a stat file behind the name, which may hold anything; see proc(5), from the third on."""
    return (stat or b"").rpartition(b")")[2].split()


def spent_s(words: list[bytes]) -> float | None:
    """Seconds of processors that a process has taken, of the columns of its stat file."""
    known = len(words) > 12 and words[11].isdigit() and words[12].isdigit()
    return (int(words[11]) + int(words[12])) * TICK_S if known else None
