"""Rows about disks, the model's file, the system and downloads."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.advice.doctor import disk, network, system
from engine.advice.doctor.facts import AppFacts, ModelFacts
from engine.hardware.snapshot import CpuSample, GpuProcess, GpuSample, HardwareSnapshot
from tests.helpers import machines
from tests.helpers.doctoring import made, says

SMALL = Path(__file__).parents[2] / "golden" / "models"
LIVE = Path("/")


@pytest.fixture
def model() -> Path:
    return sorted(SMALL.glob("*.gguf"))[0]


# Disks.


def mounted(kind: str, point: str = "/models", device: str = "8:1", options: str = "rw") -> dict[str, str]:
    root_line = "21 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n"
    return {"proc/self/mountinfo": f"{root_line}36 21 {device} / {point} {options} shared:2 - {kind} source rw\n"}


def a_disk(root: Path, name: str, rotational: str, above: dict[str, str] | None = None) -> Path:
    """Disk 8:0 with the partition 8:1, in the shape of /sys."""
    real = root / "sys/devices/usb1" / name
    made(root, {f"sys/devices/usb1/{name}/queue/rotational": rotational, f"sys/devices/usb1/{name}/{name}1/partition": "1"})
    made(root, {f"sys/devices/usb1/{key}": text for key, text in (above or {}).items()})
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block/8:1").symlink_to(real / f"{name}1")
    return root


def on_disk(root: Path, path: str = "/models/a.gguf") -> tuple[str, str]:
    found = says("D-DSK-1", root, model=ModelFacts(Path(path)))
    return found.status, found.observed


def test_the_model_s_disk(tmp_path: Path) -> None:
    assert says("D-DSK-1", tmp_path).status == "n/a"
    assert on_disk(tmp_path)[0] == "unknown"
    fast = a_disk(made(tmp_path / "nvme", mounted("xfs")), "nvme0n1", "0")
    assert on_disk(fast) == ("pass", "nvme0n1 (xfs)")
    assert on_disk(a_disk(made(tmp_path / "hdd", mounted("ext4")), "sdb", "1")) == ("warn", "sdb (ext4)")
    # What a virtual disk says of itself means nothing.
    assert on_disk(a_disk(made(tmp_path / "vm", mounted("ext4")), "vdb", "1"))[0] == "pass"
    slow = a_disk(made(tmp_path / "usb", mounted("ext4")), "sdc", "0", {"speed": "480", "idVendor": "1234"})
    assert "USB" in says("D-DSK-1", slow, model=ModelFacts(Path("/models/a.gguf"))).why


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "fuseblk", "vfat"])
def test_slow_file_systems(kind: str, tmp_path: Path) -> None:
    root = made(tmp_path, mounted(kind))
    assert on_disk(root) == ("warn", f"{kind} at /models")
    assert on_disk(root, "/home/a.gguf")[0] == "pass"


def test_a_disk_of_windows(tmp_path: Path) -> None:
    root = made(tmp_path, mounted("9p", "/mnt/c", options="rw,aname=drvfs;path=C:"))
    assert on_disk(root, "/mnt/c/a.gguf")[0] == "warn"
    assert "disk of Windows" in says("D-DSK-1", root, model=ModelFacts(Path("/mnt/c/a.gguf"))).why


def test_disk_scheduler(tmp_path: Path) -> None:
    assert says("D-DSK-2", tmp_path).status == "unknown"
    made(tmp_path, {"sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline", "sys/block/loop0/queue/scheduler": "[none]"})
    assert says("D-DSK-2", tmp_path).observed == "nvme0n1: none"


@pytest.mark.parametrize(
    ("free", "status"), [(50_000_000_000, "pass"), (3_000_000_000, "warn"), (400_000_000, "fail"), (None, "unknown")]
)
def test_free_space(free: int | None, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert says("D-DSK-3", tmp_path).status == "unknown"
    monkeypatch.setattr(disk, "_free_bytes", lambda folder: free)
    assert says("D-DSK-3", LIVE, app=AppFacts(tmp_path)).status == status


def test_free_space_of_a_folder_that_is_not_made_yet(tmp_path: Path) -> None:
    assert says("D-DSK-3", LIVE, app=AppFacts(tmp_path / "a" / "b")).observed.endswith("for chats")


# The model's file.


def test_header_parts_and_template(model: Path) -> None:
    for id in ("D-FIL-1", "D-FIL-2", "D-FIL-4"):
        assert says(id, LIVE).status == "n/a"
        assert says(id, LIVE, model=ModelFacts(model)).status == "pass"


def test_a_file_that_ends_early(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:-1000])
    found = says("D-FIL-1", LIVE, model=ModelFacts(cut))
    assert found.status == "fail"
    assert "cut.gguf" in found.why
    assert says("D-FIL-2", LIVE, model=ModelFacts(cut)).status == "unknown"
    assert says("D-FIL-4", LIVE, model=ModelFacts(cut)).status == "unknown"


def test_content(model: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    assert says("D-FIL-3", LIVE, model=ModelFacts(model)).status == "n/a"
    assert says("D-FIL-3", LIVE, model=ModelFacts(model, sha256=digest.upper())).status == "pass"
    assert says("D-FIL-3", LIVE, model=ModelFacts(model, sha256="0" * 64)).status == "fail"
    assert says("D-FIL-3", LIVE, model=ModelFacts(tmp_path / "none", sha256=digest)).status == "unknown"


# The system.


@pytest.mark.parametrize(
    ("address", "has_key", "status"),
    [
        ("", False, "n/a"),
        ("127.0.0.1:8000", False, "pass"),
        ("localhost:80", False, "pass"),
        ("[::1]:80", False, "pass"),
        (".".join("0" * 4) + ":8000", False, "fail"),
        ("192.168.1.5:8000", True, "pass"),
        ("[::]:8000", False, "fail"),
    ],
)
def test_who_can_use_the_model(address: str, has_key: bool, status: str) -> None:
    assert says("D-SYS-1", LIVE, app=AppFacts(listener=address, has_key=has_key)).status == status


def test_other_engines(tmp_path: Path) -> None:
    assert says("D-SYS-2", tmp_path).status == "unknown"
    made(tmp_path, {"proc/1/comm": "systemd", "proc/40/comm": "ollama", "proc/40/statm": "9 100 0", "proc/self/comm": "ollama"})
    assert says("D-SYS-2", tmp_path).status == "pass"
    made(tmp_path, {"proc/41/comm": "ollama", "proc/41/statm": "9 500000 0"})
    made(
        tmp_path, {"proc/50/comm": "python3", "proc/50/cmdline": "python3\0-m\0vllm.entrypoints.api\0", "proc/50/statm": "9 9 9"}
    )
    card = GpuSample("GPU-1", "", "RTX", "nvidia", processes=(GpuProcess(50, "python3", 18_000_000_000),))
    snapshot = HardwareSnapshot(0.0, CpuSample("CPU", (), None), 0, 0, 0, gpus=(card,))
    found = says("D-SYS-2", tmp_path, snapshot=snapshot)
    assert found.status == "warn"
    assert "Ollama (process 40): 2.0 GB of memory" in found.observed
    assert "18.0 GB on cards" in found.observed
    assert found.fixes[0].command == "ollama ps"


def test_versions(tmp_path: Path) -> None:
    assert says("D-SYS-3", tmp_path).status == "unknown"
    made(tmp_path, {"proc/sys/kernel/osrelease": "6.8.0-45", "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04"\n'})
    assert says("D-SYS-3", tmp_path).observed == "Linux 6.8.0-45, Ubuntu 24.04"
    assert "glibc" in says("D-SYS-3", LIVE).observed


def test_locale_and_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert says("D-SYS-4", tmp_path).status == "unknown"
    monkeypatch.setattr(system.locale, "getpreferredencoding", lambda _: "UTF-8")
    assert says("D-SYS-4", LIVE).status == "pass"
    monkeypatch.setattr(system.locale, "getpreferredencoding", lambda _: "ANSI_X3.4-1968")
    assert "C.UTF-8" in says("D-SYS-4", LIVE).fixes[0].command
    monkeypatch.setattr(system.time, "time", lambda: 1e9)
    assert "clock is wrong" in says("D-SYS-4", LIVE).why


def test_ended_for_memory(tmp_path: Path) -> None:
    assert says("D-SYS-5", tmp_path).status == "unknown"
    made(tmp_path, {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.events": "low 0\noom 0\noom_kill 0\n"})
    assert says("D-SYS-5", tmp_path).status == "pass"
    made(tmp_path, {"sys/fs/cgroup/a/memory.events": "oom 1\noom_kill 2\n"})
    assert says("D-SYS-5", tmp_path).observed == "2 programs since the start"
    made(tmp_path / "log", {"dev/kmsg": "3,1,2,-;Out of memory: Killed process 77 (python3) total-vm:1kB\n"})
    assert says("D-SYS-5", tmp_path / "log").observed == "1 program since the start (python3)"


def test_board_and_firmware(tmp_path: Path) -> None:
    assert says("D-SYS-6", tmp_path).status == "unknown"
    folder = "sys/class/dmi/id"
    made(tmp_path, {f"{folder}/board_vendor": "ASUS", f"{folder}/board_name": "X570", f"{folder}/bios_version": "4021"})
    assert says("D-SYS-6", tmp_path).observed == "ASUS X570, firmware 4021"


def test_environment(tmp_path: Path) -> None:
    assert says("D-SYS-7", tmp_path, env={}).observed == "none that matter"
    assert says("D-SYS-7", tmp_path, env={"CUDA_VISIBLE_DEVICES": ""}).status == "warn"
    assert says("D-SYS-7", tmp_path, env={"CUDA_LAUNCH_BLOCKING": "1"}).fixes[0].command == "unset CUDA_LAUNCH_BLOCKING"
    assert says("D-SYS-7", tmp_path, env={"CUDA_LAUNCH_BLOCKING": "0"}).status == "pass"
    told = says("D-SYS-7", tmp_path, env={"OMP_NUM_THREADS": "1", "LAYERDECK_GPU": "none"})
    assert (told.status, told.observed) == ("pass", "OMP_NUM_THREADS=1; LAYERDECK_GPU=none")
    assert "no effect" in told.why


def test_program_and_container(tmp_path: Path) -> None:
    assert "kernels" in says("D-SYS-8", LIVE).observed
    assert says("D-SYS-8", tmp_path).status == "pass"
    assert says("D-SYS-9", tmp_path).status == "n/a"
    inside = machines.unpack("container_cpuset", tmp_path)
    assert says("D-SYS-9", inside).observed == "memory at most 68.7 GB, the time of 6 cores"


# Downloads.


def test_the_network_is_left_alone_unless_somebody_wants_to_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise AssertionError("a name was asked for")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    monkeypatch.setattr(socket, "socket", nobody)
    assert says("D-NET-1", LIVE).status == "n/a"


def address_of(port: int) -> list[tuple[object, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port where connections are made and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def take() -> None:
            with suppress(OSError):  # nobody came, and the port is closed
                kept.append(server.accept()[0])

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield server.getsockname()[1]
    for one in kept:
        one.close()


def test_each_stage_that_fails_is_named(deaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "TIMEOUT_S", 0.5)

    def no_name(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_name)
    assert says("D-NET-1", LIVE, host="models.invalid", env={}).observed == "models.invalid: no address"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address_of(port))
    assert says("D-NET-1", LIVE, host="models.invalid", env={}).observed == "models.invalid: no connection"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address_of(deaf))
    began = time.monotonic()
    silent = says("D-NET-1", LIVE, host="models.invalid", env={})
    assert silent.observed == "models.invalid: no encryption"
    assert time.monotonic() - began < 10
    assert all("resolved" not in fix.command for fix in silent.fixes)


def test_a_proxy_is_asked_first(deaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address_of(deaf))
    found = says("D-NET-1", LIVE, host="models.invalid", env={"https_proxy": f"http://proxy.invalid:{deaf}"})
    assert (found.status, found.observed) == ("pass", "the proxy proxy.invalid answers")
