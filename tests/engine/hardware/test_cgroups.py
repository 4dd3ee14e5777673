"""Limits of control groups of both versions, nested and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.hardware.cgroups import Limits, read_limits


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def test_the_tightest_quota_of_all_levels_holds(tmp_path: Path) -> None:
    top = "sys/fs/cgroup/user.slice/app.scope"
    files = {
        f"{top}/cpu.max": "max 100000",
        "sys/fs/cgroup/user.slice/cpu.max": "150000 100000",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-15",
        f"{top}/cpuset.cpus.effective": "2-5",
        f"{top}/cpuset.mems.effective": "0",
        f"{top}/memory.max": "max",
        "sys/fs/cgroup/user.slice/memory.max": str(8 << 30),
        "sys/fs/cgroup/user.slice/memory.current": str(1 << 30),
    }
    found = read_limits(machine(tmp_path, "0::/user.slice/app.scope", files))
    assert found == Limits((2, 3, 4, 5), (0,), 1.5, 8 << 30, 2, container=False)


def test_version_1_has_a_folder_a_controller(tmp_path: Path) -> None:
    groups = "5:cpuset:/docker/ab\n4:cpu,cpuacct:/docker/ab\n3:memory:/docker/ab\n1:name=systemd:/docker/ab"
    files = {
        "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us": "250000",
        "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpuset/docker/ab/cpuset.cpus": "8-9,12",
        "sys/fs/cgroup/cpuset/docker/ab/cpuset.mems": "1",
    }
    assert read_limits(machine(tmp_path, groups, files)) == Limits((8, 9, 12), (1,), 2.5, None, 1, container=True)


@pytest.mark.parametrize("text", ["", "junk", "-1 100000", "0 0", "100000", "99999999999999999999999 1", "100000 -5"])
def test_a_quota_that_is_none_limits_nothing(tmp_path: Path, text: str) -> None:
    found = read_limits(machine(tmp_path, "0::/", {"sys/fs/cgroup/cpu.max": text, "sys/fs/cgroup/cpuset.cpus.effective": text}))
    assert found.quota_cores is None
    assert found.cpus == () or text == "100000"


@pytest.mark.parametrize("groups", ["", "x", "0::", "0::/../../../..", "::::::", "4:cpu", "4:cpu:relative/../.."])
def test_paths_that_lead_nowhere_are_no_error(tmp_path: Path, groups: str) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert read_limits(machine(tmp_path, groups, {"sys/fs/cgroup/cgroup.procs": ""})).quota_cores is None
