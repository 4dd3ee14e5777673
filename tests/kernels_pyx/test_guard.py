"""Guarded mappings: a truncated file is counted; every other bus error goes where it went before."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels_pyx.executor import AbortFlag
from kernels_pyx.guard import MappedFile


def test_mapping_knows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 100)
    mapped = MappedFile(path)
    mapped.touch(0, mapped.nbytes, AbortFlag())
    assert (mapped.nbytes, mapped.lost, mapped.stat().st_ino) == (25600, 0, path.stat().st_ino)
    assert mapped.address % 4096 == 0
    assert mapped.read(255, 3) == bytes((255, 0, 1))
    with pytest.raises(OSError, match="1 of 2 bytes"):
        mapped.read(25599, 2)
    with pytest.raises(ValueError, match="beyond"):
        mapped.touch(25600, 1, AbortFlag())
    mapped.close()
    mapped.close()
    with pytest.raises(ValueError, match="beyond"):
        mapped.touch(0, 1, AbortFlag())


def test_forgetting_cached_bytes_changes_none(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 4096)
    mapped = MappedFile(path)
    before = mapped.read(0, mapped.nbytes)
    mapped.forget(0, mapped.nbytes)
    assert mapped.read(0, mapped.nbytes) == before and mapped.lost == 0
    mapped.close()


def test_what_is_in_memory_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(16 << 20))
    mapped = MappedFile(path)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    mapped.touch(4097, mapped.nbytes - 4097, AbortFlag())
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 64  # 4095 pages, at most 16 mapped by a fault
    mapped.close()


def test_lost_pages_are_counted_not_fatal(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * (5 << 20))
    mapped = MappedFile(path)
    os.truncate(path, 4096)
    mapped.touch(0, mapped.nbytes, AbortFlag())
    assert mapped.lost >= 1
    mapped.close()


def test_what_cannot_be_mapped_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MappedFile(tmp_path / "absent")
    (tmp_path / "empty").touch()
    with pytest.raises(OSError, match="empty"):
        MappedFile(tmp_path / "empty")


FOREIGN_SCRIPT = """
import faulthandler, mmap, os, sys
from pathlib import Path
from kernels_pyx.guard import MappedFile
if sys.argv[2] == "before":
    faulthandler.enable()
ours = MappedFile(Path(sys.argv[1]))
if sys.argv[2] == "after":
    faulthandler.enable()
fd = os.open(sys.argv[1], os.O_RDWR)
foreign = mmap.mmap(fd, 8192)
os.truncate(fd, 0)
foreign[5000]
"""


@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_bus_errors_of_others_still_end_the_process(tmp_path: Path, when: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 8192)
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN_SCRIPT, path, when], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == -7
    assert ("Bus error" in done.stderr) == (when != "never")


def test_owned_bytes_stay_where_and_what_they_were(tmp_path: Path) -> None:
    content = np.random.default_rng(3).integers(0, 256, (9 << 20) + 123, np.uint8).tobytes()
    path = tmp_path / "weights"
    path.write_bytes(content)
    mapped = MappedFile(path)
    seen = (ctypes.c_uint8 * mapped.nbytes).from_address(mapped.address)
    offset, n = mapped.whole_units(5000, mapped.nbytes - 5000)
    assert offset >= 5000
    assert 4 << 20 <= n <= mapped.nbytes - offset
    mapped.own(offset, n)
    assert bytes(seen) == content
    assert mapped.in_huge_pages(offset, n) in (None, n)
    os.truncate(path, 8192)
    assert bytes(seen[offset : offset + n]) == content[offset : offset + n]
    assert mapped.lost == 0
    with pytest.raises(OSError):
        mapped.own(offset, n)  # the file is shorter now
    assert bytes(seen[offset : offset + n]) == content[offset : offset + n]
    with pytest.raises(ValueError, match="units"):
        mapped.own(offset + 1, n)
    mapped.close()


def test_what_is_given_back_is_the_file_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"a" * (6 << 20))
    mapped = MappedFile(path)
    offset, n = mapped.whole_units(0, mapped.nbytes)
    mapped.own(offset, n, drop=True)
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"b" * n)
    seen = (ctypes.c_uint8 * n).from_address(mapped.address + offset)
    assert bytes(seen) == b"a" * n
    mapped.disown(offset, n)
    assert bytes(seen) == b"b" * n
    os.truncate(path, 4096)
    mapped.touch(0, mapped.nbytes, AbortFlag())
    assert mapped.lost > 0
    for refused in (mapped.disown, mapped.own, mapped.in_huge_pages):
        with pytest.raises(ValueError, match="units"):
            refused(offset + 1, n - (2 << 20))
        with pytest.raises(ValueError, match="beyond"):
            refused(offset, n + (64 << 20))
    mapped.close()


def file_system(path: Path) -> str:
    """The type of the file system that holds a path."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return max((len(point), kind) for _, point, kind, *_ in mounts if path.resolve().is_relative_to(point))[1]


def test_a_cold_file_is_read_into_huge_pages(tmp_path: Path) -> None:
    release = tuple(map(int, platform.release().split(".")[:2]))
    if release < (6, 16) or file_system(tmp_path) not in ("ext4", "xfs"):
        pytest.skip("the file system keeps files in small pages")
    path = tmp_path / "weights"
    content = np.random.default_rng(4).integers(0, 256, 9 << 20, np.uint8).tobytes()
    with path.open("wb") as stream:
        for start in range(0, len(content), 4096):
            stream.write(content[start : start + 4096])
            stream.flush()
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapped = MappedFile(path)
    mapped.touch(0, mapped.nbytes, AbortFlag())
    offset, n = mapped.whole_units(0, mapped.nbytes)
    assert mapped.in_huge_pages(offset, n) in (None, n)
    assert bytes((ctypes.c_uint8 * mapped.nbytes).from_address(mapped.address)) == content
    mapped.close()
