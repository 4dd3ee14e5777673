"""The doctor as a whole: every machine, damaged ones too, is read without an exception; words, order, speed, the command."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from engine.advice.doctor.check import SEVERITY, Check, CheckResult, count, gb, listed, worst
from engine.advice.doctor.context import Context
from engine.advice.doctor.table import CHECKS, quick, run_checks
from engine.cli.main import main
from tests.helpers import machines

JUNK = (
    b"",
    b"\x00\xff\xfe",
    b"-1",
    b"0-",
    b"99999999999999999999999",
    b"max max",
    b"full avg10=x",
    b"1 2 3 4",
    b"[",
    b"cpu  1 2",
)


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machines")


@pytest.fixture(params=machines.NAMES)
def machine(request: pytest.FixtureRequest, unpacked: Path) -> Path:
    return machines.unpack(request.param, unpacked)


def all_rows(root: Path) -> list[CheckResult]:
    """What every row says; none of them failed itself."""
    found = list(run_checks(Context(root)))
    assert [one.id for one in found] == [check.id for check in CHECKS]
    broken = [f"{one.id}: {one.why}" for one in found if "itself failed" in one.why]
    assert not broken
    return found


def sound(one: CheckResult) -> None:
    """What holds for every row, whatever it says."""
    assert one.status in SEVERITY
    assert one.observed
    assert one.ms is not None
    assert "None" not in one.observed + one.why
    assert one.status not in ("warn", "fail", "unknown", "n/a") or one.why[:1].isupper(), one
    assert not one.why or one.why.endswith((".", "/")), one
    for fix in one.fixes:
        assert fix.changes
        # What changes something says how to take it back.
        assert fix.undo or not fix.command.startswith(("sudo sysctl", "sudo sh", "sudo systemctl", "sudo apt", "export", "pip"))


def test_every_machine_is_read(machine: Path) -> None:
    for one in all_rows(machine):
        sound(one)


def test_a_machine_without_files_fails_nothing(tmp_path: Path) -> None:
    found = all_rows(tmp_path)
    assert {one.status for one in found} <= {"pass", "unknown", "n/a"}
    for one in found:
        sound(one)


def test_this_machine() -> None:
    for one in all_rows(Path("/")):
        sound(one)


@pytest.mark.parametrize("name", ["laptop_6c", "container_cgroup_v1", "threadripper_4ccd"])
def test_damaged_files_never_raise(name: str, unpacked: Path, tmp_path: Path) -> None:
    source = machines.unpack(name, unpacked)
    files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    dice = random.Random(name)
    for turn in range(4):
        root = tmp_path / str(turn)
        shutil.copytree(source, root, copy_function=os.link)
        for relative in dice.sample(files, int(dice.choice((0.02, 0.2, 0.6)) * len(files))):
            (root / relative).unlink()
            fate = dice.randrange(3)
            if fate == 0:
                (root / relative).mkdir()
            elif fate == 1:
                (root / relative).write_bytes(dice.choice(JUNK))
        for one in all_rows(root):
            sound(one)
        shutil.rmtree(root)


def test_rows_have_names_of_their_own() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    assert len({(check.group, check.title) for check in CHECKS}) == len(CHECKS)
    groups = [check.group for check in CHECKS]
    blocks = [group for i, group in enumerate(groups) if not i or groups[i - 1] != group]
    assert len(set(blocks)) == len(blocks), "a group is torn apart"


def test_a_row_that_fails_itself_is_unknown_and_takes_no_other_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(context: Context) -> CheckResult:
        raise ZeroDivisionError("by hand")

    checks = (Check("X-1", "Group", "Broken", broken), CHECKS[0])
    first, second = run_checks(Context(tmp_path), checks)
    assert (first.status, second.id) == ("unknown", CHECKS[0].id)
    assert "ZeroDivisionError: by hand" in first.why
    assert caplog.records
    caplog.clear()


def test_quick_rows_are_quick(machine: Path) -> None:
    """The processor's time, since others may be busy: the whole set has two seconds."""
    began = time.thread_time()
    list(run_checks(Context(machine), quick()))
    assert time.thread_time() - began < 1.0


def test_words() -> None:
    assert (count(1, "core"), count(12000, "page")) == ("1 core", "12,000 pages")
    assert (gb(640e6), gb(1.44e9), gb(404e9)) == ("640 MB", "1.4 GB", "404 GB")
    assert listed(["a", "b", "c", "d", "e"], 3) == "a; b; c; and 2 more"
    assert worst(("pass", "unknown", "n/a")) == "unknown"
    assert worst(()) == "n/a"


def test_the_command_as_json(unpacked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = machines.unpack("container_cpuset", unpacked)
    assert main(["doctor", "--root", str(root), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"layerdeck", "version", "program", "worst", "seconds", "counts", "checks"}
    assert (found["layerdeck"], found["version"], found["worst"]) == ("doctor", 1, "warn")
    assert sum(found["counts"].values()) == len(found["checks"])
    assert set(found["checks"][0]) == {"id", "group", "title", "status", "observed", "why", "fixes", "evidence", "ms"}
    fix = next(fix for one in found["checks"] for fix in one["fixes"])
    assert set(fix) == {"command", "changes", "undo"}


def test_the_command_for_people(unpacked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = machines.unpack("container_cpuset", unpacked)
    assert main(["doctor", "--root", str(root)]) == 3
    text = capsys.readouterr().out
    assert "warning  D-CPU-3" in text
    assert "undo: " in text
    assert "does not apply" not in text
    assert main(["doctor", "--root", str(root), "--all"]) == 3
    assert "does not apply" in capsys.readouterr().out
    assert main(["doctor", "--root", "/nowhere/at/all"]) == 1
