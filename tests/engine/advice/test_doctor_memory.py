"""Rows about memory: room, speed, swap, limits, errors; each is well, warns and does not know."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.advice.doctor.counters import Counters
from engine.advice.doctor.dimms import read_modules
from engine.advice.doctor.facts import ModelFacts
from engine.hardware.snapshot import CpuSample, HardwareSnapshot, NodeSample
from tests.helpers import machines
from tests.helpers.doctoring import cpus, made, says

GIB = 1 << 30
MODEL = Path("model.gguf")


def meminfo(**kib: int) -> dict[str, str]:
    """/proc/meminfo; HugePages_* have no unit there."""
    lines = (f"{key}: {value}" + ("" if key.startswith("HugePages") else " kB") for key, value in kib.items())
    return {"proc/meminfo": "\n".join(lines) + "\n"}


ROOM = meminfo(MemTotal=64 << 20, MemAvailable=32 << 20, SwapTotal=8 << 20, SwapFree=7 << 20, Hugepagesize=2048)


def test_room_for_the_model(tmp_path: Path) -> None:
    assert says("D-MEM-1", tmp_path).status == "unknown"
    made(tmp_path, ROOM)
    assert says("D-MEM-1", tmp_path).observed == "34.4 GB of 68.7 GB free"
    assert says("D-MEM-1", tmp_path, model=ModelFacts(MODEL, cpu_bytes=20 * GIB)).status == "pass"
    short = says("D-MEM-1", tmp_path, model=ModelFacts(MODEL, cpu_bytes=30 * GIB))
    assert short.status == "fail"
    assert "2.1 GB short" in short.why
    mapped = says("D-MEM-1", tmp_path, model=ModelFacts(MODEL, cpu_bytes=30 * GIB, mapped=True))
    assert mapped.status == "warn"
    loaded = ModelFacts(MODEL, cpu_bytes=60 * GIB, is_loaded=True)
    assert says("D-MEM-1", tmp_path, model=loaded).status == "pass"


def test_room_on_each_node(tmp_path: Path) -> None:
    made(tmp_path, ROOM)
    nodes = (NodeSample(0, free_bytes=20 * GIB, file_cache_bytes=GIB), NodeSample(1, free_bytes=4 * GIB))
    snapshot = HardwareSnapshot(0.0, CpuSample("CPU", (), None), 0, 0, 0, nodes=nodes)
    planned = ModelFacts(MODEL, cpu_bytes=20 * GIB, node_bytes=((0, 10 * GIB), (1, 10 * GIB)))
    found = says("D-MEM-1", tmp_path, model=planned, snapshot=snapshot)
    assert (found.status, "Node 1 has 6.4 GB too little" in found.why) == ("warn", True)
    even = ModelFacts(MODEL, cpu_bytes=14 * GIB, node_bytes=((0, 10 * GIB), (1, 4 * GIB)))
    assert says("D-MEM-1", tmp_path, model=even, snapshot=snapshot).status == "pass"


def test_room_within_a_control_group(tmp_path: Path) -> None:
    made(tmp_path, ROOM | {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": str(8 * GIB)})
    made(tmp_path, {"sys/fs/cgroup/a/memory.current": str(2 * GIB), "sys/fs/cgroup/a/memory.stat": "inactive_file 0\n"})
    assert says("D-MEM-1", tmp_path).observed == "6.4 GB of 8.6 GB free"


def test_swap(tmp_path: Path) -> None:
    assert says("D-MEM-5", tmp_path).status == "unknown"
    made(tmp_path, ROOM | {"proc/sys/vm/swappiness": "60", "proc/vmstat": "pswpin 100\n"})
    found = says("D-MEM-5", tmp_path, before=Counters(0.0, swapped_in=100))
    assert (found.status, found.observed) == ("pass", "1.1 GB of 8.6 GB used, swappiness 60")
    rising = says("D-MEM-5", tmp_path, before=Counters(0.0, swapped_in=40))
    assert rising.status == "warn"
    assert rising.fixes[-1].undo == "sudo sysctl vm.swappiness=60"
    made(tmp_path, {"proc/self/status": "Name: x\nVmSwap:  204800 kB\n"})
    assert "210 MB of this program" in says("D-MEM-5", tmp_path).observed
    assert says("D-MEM-5", tmp_path).status == "warn"


def limits(bytes_: str) -> dict[str, str]:
    return {"proc/self/limits": f"Limit  Soft Limit  Hard Limit  Units\nMax locked memory         {bytes_}  {bytes_}  bytes\n"}


def test_memory_that_may_be_locked(tmp_path: Path) -> None:
    assert says("D-MEM-6", tmp_path).status == "unknown"
    assert says("D-MEM-6", made(tmp_path, limits("8388608"))).status == "pass"
    wanted = ModelFacts(MODEL, cpu_bytes=GIB, locked=True)
    assert says("D-MEM-6", tmp_path, model=wanted).status == "warn"
    assert says("D-MEM-6", made(tmp_path, limits("unlimited")), model=wanted).observed == "no limit"


def test_reserved_memory(tmp_path: Path) -> None:
    assert says("D-MEM-7", tmp_path).status == "unknown"
    assert says("D-MEM-7", made(tmp_path, ROOM)).status == "pass"
    made(tmp_path, meminfo(MemTotal=64 << 20, HugePages_Total=10240, HugePages_Free=10000, Hugepagesize=2048))
    found = says("D-MEM-7", tmp_path)
    assert (found.status, found.observed) == ("warn", "21.5 GB of huge pages, 21.0 GB of them unused")
    assert found.fixes[0].undo == "sudo sysctl vm.nr_hugepages=10240"
    made(tmp_path, ROOM | {"proc/sys/vm/overcommit_memory": "2"})
    assert "overcommit mode 2" in says("D-MEM-7", tmp_path).observed


def test_memory_errors(tmp_path: Path) -> None:
    folder = "sys/devices/system/edac/mc/mc0"
    assert says("D-MEM-8", tmp_path).status == "unknown"
    assert says("D-MEM-8", made(tmp_path, {f"{folder}/ce_count": "0", f"{folder}/ue_count": "0"})).status == "pass"
    made(tmp_path, {f"{folder}/ce_count": "7"})
    assert says("D-MEM-8", tmp_path).status == "pass"
    assert says("D-MEM-8", tmp_path, before=Counters(0.0, corrected=(("mc0", 5),))).status == "warn"
    made(tmp_path, {f"{folder}/ue_count": "1"})
    found = says("D-MEM-8", tmp_path)
    assert (found.status, found.observed) == ("fail", "7 corrected, 1 not")
    assert "mc0" in found.why


@pytest.mark.parametrize(
    ("text", "n_fixes"), [("always [madvise] never", 0), ("always madvise [never]", 1), ("[always] never", 0)]
)
def test_huge_pages(text: str, n_fixes: int, tmp_path: Path) -> None:
    assert says("D-MEM-9", tmp_path).status == "unknown"
    found = says("D-MEM-9", made(tmp_path, {"sys/kernel/mm/transparent_hugepage/enabled": text}))
    assert (found.status, len(found.fixes)) == ("pass", n_fixes)


def test_pressure(tmp_path: Path) -> None:
    assert says("D-MEM-10", tmp_path).status == "unknown"
    some = "some avg10=90.00 avg60=0.00 avg300=0.00 total=0\n"
    made(tmp_path, {"proc/pressure/memory": some + "full avg10=0.30 avg60=0.00 avg300=0.00 total=0\n"})
    assert says("D-MEM-10", tmp_path).status == "pass"
    made(tmp_path, {"proc/pressure/memory": some + "full avg10=12.50 avg60=0.00 avg300=0.00 total=0\n"})
    assert says("D-MEM-10", tmp_path).status == "warn"


def device(size_mb: int, locator: str, bank: str, mt_s: int) -> bytes:
    """A structure of type 17 with two strings."""
    fixed = bytearray(0x22)
    fixed[0], fixed[1], fixed[0x10], fixed[0x11] = 17, len(fixed), 1, 2 if bank else 0
    struct.pack_into("<H", fixed, 0x0C, size_mb if size_mb < 0x7FFF else 0x7FFF)
    struct.pack_into("<I", fixed, 0x1C, size_mb)
    struct.pack_into("<H", fixed, 0x20, mt_s)
    return bytes(fixed) + b"\0".join(text.encode() for text in (locator, bank) if text) + b"\0\0"


def table(root: Path, *devices: bytes) -> Path:
    path = root / "sys/firmware/dmi/tables/DMI"
    path.parent.mkdir(parents=True, exist_ok=True)
    other = bytes((127, 4, 0, 0)) + b"\0\0"
    path.write_bytes(b"".join(devices) + other)
    return root


def test_channels_from_the_firmware_s_table(tmp_path: Path) -> None:
    assert says("D-MEM-2", tmp_path).status == "unknown"
    twelve = [
        device(49152 if i < 8 else 0, f"DIMM {i}", f"P0 CHANNEL {'ABCDEFGHIJKL'[i]}", 4800 if i < 8 else 0) for i in range(12)
    ]
    found = says("D-MEM-2", table(tmp_path, *twelve))
    assert (found.status, found.observed) == ("warn", "8 modules in 8 of 12 channels, 4,800 MT/s")
    assert "33 %" in found.why
    modules = read_modules(tmp_path)
    assert modules is not None
    assert modules.theoretical_gbps == pytest.approx(307.2)


def test_channels_named_by_the_slot(tmp_path: Path) -> None:
    pairs = [device(16384, f"CPU{cpu}_DIMM_{channel}{slot}", "", 3200) for cpu in (1, 2) for channel in "ABCD" for slot in (1, 2)]
    found = says("D-MEM-2", table(tmp_path, *pairs))
    assert (found.status, found.observed) == ("pass", "16 modules in 8 of 8 channels, 3,200 MT/s")


def test_one_module_of_an_unknown_channel(tmp_path: Path) -> None:
    assert says("D-MEM-2", table(tmp_path, device(16384, "Slot", "Bank", 5600))).status == "warn"


@pytest.mark.parametrize(
    "raw", [b"", b"\x11", b"\x11\xff\0\0ab", b"\x11\x02\0\0\0\0", b"\x11\x17" + bytes(40), bytes(range(256)) * 9]
)
def test_broken_tables_say_nothing(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sys/firmware/dmi/tables/DMI"
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    assert says("D-MEM-2", tmp_path).status in ("unknown", "pass", "warn")


def test_channels_from_the_error_counters(tmp_path: Path) -> None:
    for i in range(4):
        folder = f"sys/devices/system/edac/mc/mc0/dimm{i}"
        made(tmp_path, {f"{folder}/size": "16384", f"{folder}/dimm_location": f"channel {i // 2} slot {i % 2}"})
    found = says("D-MEM-2", tmp_path)
    assert (found.status, found.observed) == ("pass", "4 modules in 2 channels")


def test_measured_speed(tmp_path: Path) -> None:
    found = says("D-MEM-3", tmp_path)
    assert (found.status, found.observed) == ("unknown", "not measured yet")
    table(tmp_path, *(device(16384, f"DIMM_{channel}1", "", 4800) for channel in "ABCDEFGH"))
    assert says("D-MEM-3", tmp_path, node_gbps=(250.0,)).observed == "250 GB/s of 307 possible"
    assert says("D-MEM-3", tmp_path, node_gbps=(250.0,)).status == "pass"
    assert says("D-MEM-3", tmp_path, node_gbps=(150.0,)).status == "warn"
    uneven = says("D-MEM-3", tmp_path, node_gbps=(180.0, 90.0))
    assert (uneven.status, uneven.observed) == ("warn", "270 GB/s (180, 90 by node) of 307 possible")


def test_chiplets(tmp_path: Path) -> None:
    assert says("D-MEM-4", made(tmp_path / "few", cpus(2))).status == "unknown"
    found = says("D-MEM-4", machines.unpack("threadripper_4ccd", tmp_path))
    assert (found.status, found.observed) == ("pass", "4 L3 caches, 6 cores each")
    assert "links" in found.why
