"""Free memory: the least of what the machine has and what each control group allows."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from engine.hardware.memory import free_bytes, total_bytes

MIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_groups_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert total_bytes(tmp_path) == psutil.virtual_memory().total
    assert 0 < free_bytes(tmp_path) <= total_bytes(tmp_path)


@pytest.mark.parametrize("limited", ["user.slice/app.scope", "user.slice"])
def test_groups_of_version_2_limit_at_any_height(tmp_path: Path, limited: str) -> None:
    top = "sys/fs/cgroup/"
    files = {"proc/self/cgroup": "0::/user.slice/app.scope\n"}
    for group in ("user.slice/app.scope", "user.slice"):
        limit = str(100 * MIB) if group == limited else "max"
        files |= {
            f"{top}{group}/memory.max": f"{limit}\n",
            f"{top}{group}/memory.current": f"{70 * MIB}\n",
            f"{top}{group}/memory.stat": f"anon {30 * MIB}\nactive_file {25 * MIB}\ninactive_file {15 * MIB}\n",
        }
    root = write(tmp_path, files)
    assert total_bytes(root) == 100 * MIB
    assert free_bytes(root) == 70 * MIB  # cached files of the group can be given up


def test_groups_of_version_1_limit_too(tmp_path: Path) -> None:
    top = "sys/fs/cgroup/memory/"
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu:/other\n4:memory,hugetlb:/box\n0::/\n",
            f"{top}box/memory.limit_in_bytes": f"{64 * MIB}\n",
            f"{top}box/memory.usage_in_bytes": f"{40 * MIB}\n",
            f"{top}box/memory.stat": f"total_active_file {MIB}\ntotal_inactive_file {3 * MIB}\nactive_file 0\n",
            f"{top}memory.limit_in_bytes": "9223372036854771712\n",
            f"{top}memory.usage_in_bytes": "5\n",
        },
    )
    assert total_bytes(root) == 64 * MIB
    assert free_bytes(root) == 28 * MIB


def test_what_is_no_number_is_no_limit(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "nonsense\n0::/a\n", "sys/fs/cgroup/a/memory.max": "much\n"})
    assert total_bytes(root) == psutil.virtual_memory().total
