"""What processes below this one take of the processors is its own, and no other program's."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.hardware.process_gauges import ProcessGauges
from engine.hardware.process_tree import TICK_S, ProcessTree

OWN = str(os.getpid())
OTHER, CHILD, GRANDCHILD = "900001", "900002", "900003"
NAMES = {OWN: "layerdeck", OTHER: "ffmpeg", CHILD: "helper) 1 (", GRANDCHILD: "sensors"}
PARENTS = {OWN: "1", OTHER: "1", CHILD: OWN, GRANDCHILD: CHILD}


def write(root: Path, seconds: Mapping[str, float]) -> None:
    """Processes that have taken so much."""
    for number, spent in seconds.items():
        line = f"{number} ({NAMES[number]}) S {PARENTS[number]} " + "0 " * 9 + f"{round(spent / TICK_S)} 0 0 0 20 0\n"
        for name in (number, "self") if number == OWN else (number,):
            (root / "proc" / name).mkdir(parents=True, exist_ok=True)
            (root / "proc" / name / "stat").write_text(line)


def readings(
    root: Path, rates: Mapping[str, float], n: int = 6
) -> tuple[ProcessGauges, list[tuple[float | None, tuple[str, ...]]]]:
    """n readings, a second apart, while each process takes so many processors."""
    gauges, found = ProcessGauges(root), []
    for i in range(n):
        write(root, {number: 50 + i * rate for number, rate in rates.items()})
        sample = gauges.read(100.0 + i, sum(rates.values()))
        found.append((sample.cores, tuple(one.name for one in sample.foreign)))
    return gauges, found


def test_children_and_theirs_are_our_own(tmp_path: Path) -> None:
    _, found = readings(tmp_path, {OWN: 1.0, CHILD: 0.5, GRANDCHILD: 0.25})
    assert found[0][0] is None
    assert found[-1] == (pytest.approx(1.75), ())


def test_other_programs_are_not(tmp_path: Path) -> None:
    _, found = readings(tmp_path, {OWN: 1.0, CHILD: 0.5, OTHER: 0.75})
    assert found[-1] == (pytest.approx(1.5), ("ffmpeg",))


def test_a_child_that_ended_takes_nothing(tmp_path: Path) -> None:
    gauges, _ = readings(tmp_path, {OWN: 1.0, CHILD: 0.5})
    (tmp_path / "proc" / CHILD / "stat").unlink()
    write(tmp_path, {OWN: 56.0})
    assert gauges.read(106.0, 1.0).cores == pytest.approx(1.0)


def test_a_ring_of_parents_ends() -> None:
    assert ProcessTree(Path("/nowhere")).learn({"2": "3", "3": "2", "4": "2"}, "3") == {"2", "3", "4"}


def test_real_children_are_found_without_lists_of_children() -> None:
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            pass
        os._exit(0)
    try:
        gauges, own = ProcessGauges(Path("/")), []
        for _ in range(6):
            time.sleep(0.2)
            sample = gauges.read(time.monotonic(), 2.0)
            own.append(sample.cores)
        assert max(one for one in own if one is not None) > 0.05
        assert gauges._tree.cores(time.monotonic() + 1) >= 0.0
        assert str(child) in gauges._tree._known
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
