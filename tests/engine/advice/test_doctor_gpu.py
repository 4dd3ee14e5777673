"""Rows about cards and their links, from readings and small trees; no driver is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.advice.doctor.counters import Counters
from engine.advice.doctor.drivers import runs_on
from engine.advice.doctor.facts import LinkRate, ModelFacts, PeerFacts, TorchFacts
from engine.hardware.snapshot import CpuSample, GpuProcess, GpuSample, HardwareSnapshot
from tests.helpers import machines
from tests.helpers.doctoring import cpus, made, says

PCI, OTHER = "0000:01:00.0", "0000:02:00.0"
GB = 1_000_000_000
RTX = GpuSample("GPU-1", PCI, "RTX", "nvidia", memory_total_bytes=24 * GB, memory_used_bytes=GB, memory_free_bytes=22 * GB)
MODEL = Path("model.gguf")


def reading(*gpus: GpuSample, problem: str = "") -> HardwareSnapshot:
    return HardwareSnapshot(0.0, CpuSample("CPU", (), None), 0, 0, 0, gpus=gpus, gpu_problem=problem)


def card(pci: str = PCI, **files: str) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{pci}"
    found = {"class": "0x030000", "vendor": "0x10de"} | {name.replace("__", "/"): text for name, text in files.items()}
    return {f"{folder}/{name}": text for name, text in found.items()}


DRIVER = {"sys/module/nvidia/version": "580.82.07"}


def one_card(root: Path, **files: str) -> Path:
    return made(root, cpus(2) | card(**files) | DRIVER)


@pytest.mark.parametrize("id", [f"D-GPU-{i}" for i in (*range(1, 10), 11)] + [f"D-PCI-{i}" for i in (1, 2, 3, 5, 7)])
def test_without_a_card_nothing_applies(id: str, tmp_path: Path) -> None:
    assert says(id, made(tmp_path, cpus(2)), snapshot=reading()).status == "n/a"


def test_driver(tmp_path: Path) -> None:
    bare = made(tmp_path / "bare", cpus(2) | card())
    assert says("D-GPU-1", bare).status == "unknown"
    made(bare, {"sys/module/kernel/x": "", "etc/os-release": 'ID=pop\nID_LIKE="ubuntu debian"\n'})
    assert says("D-GPU-1", bare).status == "warn"
    planned = ModelFacts(MODEL, gpu_bytes=(("GPU-1", GB),))
    missing = says("D-GPU-1", bare, model=planned)
    assert missing.status == "fail"
    assert "ubuntu-drivers" in missing.fixes[0].command
    root = one_card(tmp_path / "driver")
    assert says("D-GPU-1", root).status == "unknown"
    found = says("D-GPU-1", root, snapshot=reading(RTX))
    assert (found.status, found.observed) == ("pass", "580.82.07, 1 card")
    mismatch = says(
        "D-GPU-1", root, snapshot=reading(problem="the NVIDIA driver was updated; restart the computer"), model=planned
    )
    assert (mismatch.status, mismatch.why) == ("fail", "The NVIDIA driver was updated; restart the computer.")
    silent = replace(RTX, state="silent", problem="its sensors do not answer")
    assert says("D-GPU-1", root, snapshot=reading(silent)).status == "unknown"
    assert says("D-GPU-1", root, snapshot=reading(RTX, silent)).status == "warn"


@pytest.mark.parametrize(
    ("driver", "cuda", "status"),
    [("580.82.07", "13.0", "pass"), ("570.124.06", "13.0", "fail"), ("535.183.01", "12.8", "pass"), ("470.256", "12.8", "fail")],
)
def test_driver_and_cuda(driver: str, cuda: str, status: str, tmp_path: Path) -> None:
    root = made(tmp_path, cpus(2) | card() | {"sys/module/nvidia/version": driver})
    assert says("D-GPU-2", root, torch_cuda=cuda).status == status
    assert says("D-GPU-2", root).status == "unknown"


def test_code_for_the_card(tmp_path: Path) -> None:
    root = one_card(tmp_path)
    assert says("D-GPU-3", root).status == "unknown"
    assert says("D-GPU-3", root, torch=lambda: TorchFacts(problem="It hung")).why == "It hung."
    old = TorchFacts("12.4", ("sm_80", "sm_86", "sm_90"), (("RTX 5090", "12.0"),))
    found = says("D-GPU-3", root, torch=lambda: old)
    assert found.status == "fail"
    assert "RTX 5090" in found.why
    assert says("D-GPU-3", root, torch=lambda: replace(old, archs=("sm_120",))).status == "pass"


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ("8.9", ("sm_86",), True),
        ("8.6", ("sm_89",), False),
        ("9.0", ("sm_80",), False),
        ("12.0", ("compute_90",), True),
        ("9.0", ("sm_90a", "x", "sm_", "sm_9"), True),
        ("", ("sm_80",), False),
    ],
)
def test_code_runs_on(capability: str, archs: tuple[str, ...], runs: bool) -> None:
    assert runs_on(capability, archs) is runs


def test_free_memory(tmp_path: Path) -> None:
    root = one_card(tmp_path)
    assert says("D-GPU-4", root).status == "unknown"
    assert says("D-GPU-4", root, snapshot=reading(RTX)).observed == "RTX (0000:01:00.0): 22.0 GB of 24.0 GB free"
    firefox = GpuProcess(7, "firefox", 3 * GB)
    held = says("D-GPU-4", root, snapshot=reading(replace(RTX, memory_used_bytes=4 * GB, processes=(firefox,))))
    assert (held.status, held.why) == ("warn", "firefox holds 4.0 GB of RTX (0000:01:00.0): fewer layers fit there.")
    planned = ModelFacts(MODEL, gpu_bytes=(("GPU-1", 22 * GB),))
    short = says("D-GPU-4", root, snapshot=reading(RTX), model=planned)
    assert (short.status, "700 MB too little" in short.why) == ("fail", True)
    loaded = replace(planned, is_loaded=True)
    assert says("D-GPU-4", root, snapshot=reading(replace(RTX, memory_used_bytes=23 * GB)), model=loaded).status == "pass"


def test_power_limit(tmp_path: Path) -> None:
    root = one_card(tmp_path)
    assert says("D-GPU-5", root, snapshot=reading(RTX)).status == "unknown"
    full = replace(RTX, power_limit_w=450.0, power_limit_default_w=450.0)
    assert says("D-GPU-5", root, snapshot=reading(full)).status == "pass"
    found = says("D-GPU-5", root, snapshot=reading(replace(full, power_limit_w=250.0)))
    assert (found.status, found.observed) == ("warn", "RTX (0000:01:00.0): 250 of 450 W")
    assert (found.fixes[0].command[-7:], found.fixes[0].undo[-7:]) == ("-pl 450", "-pl 250")


@pytest.mark.parametrize(
    ("bits", "status"), [(0, "pass"), (0x1, "pass"), (0x4, "pass"), (0x20, "warn"), (0x44, "warn"), (0x80, "warn")]
)
def test_heat_and_power(bits: int, status: str, tmp_path: Path) -> None:
    root = one_card(tmp_path)
    assert says("D-GPU-6", root, snapshot=reading(RTX)).status == "unknown"
    hot = replace(RTX, temperature_c=84.0, margin_c=6.0, slow_bits=bits)
    found = says("D-GPU-6", root, snapshot=reading(hot))
    assert (found.status, found.observed) == (status, "RTX (0000:01:00.0): 84 °C, 6 °C before it slows down")


def test_driver_kept_awake(tmp_path: Path) -> None:
    root = one_card(tmp_path)
    assert says("D-GPU-7", root, snapshot=reading(RTX)).status == "unknown"
    assert says("D-GPU-7", root, snapshot=reading(replace(RTX, persistence=True))).status == "pass"
    off = says("D-GPU-7", root, snapshot=reading(replace(RTX, persistence=False)))
    assert (off.status, "enable" in off.fixes[0].command) == ("pass", True)


def test_errors_of_cards(tmp_path: Path) -> None:
    root = one_card(tmp_path)
    assert says("D-GPU-8", root).status == "unknown"
    assert says("D-GPU-8", made(root, {"dev/kmsg": "6,1,2,-;NVRM: loading\n"})).status == "pass"
    line = "3,500,77,-;NVRM: Xid (PCI:0000:01:00): 31, pid=9, MMU Fault\n"
    assert says("D-GPU-8", made(root, {"dev/kmsg": line})).status == "warn"
    off = says("D-GPU-8", made(root, {"dev/kmsg": line + "3,501,78,-;NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.\n"}))
    assert (off.status, off.observed) == ("fail", "2 errors since the start (Xid 31, 79)")
    assert says("D-GPU-8", root, snapshot=reading(replace(RTX, state="lost"))).status == "fail"
    assert says("D-GPU-8", root, snapshot=reading(replace(RTX, ecc_errors=2))).status == "fail"


def test_cards_that_sleep(tmp_path: Path) -> None:
    assert says("D-GPU-9", one_card(tmp_path / "awake")).observed == "none sleeps"
    assert PCI in says("D-GPU-9", one_card(tmp_path / "asleep", power__runtime_status="suspended")).observed


def test_shared_and_virtual_cards(tmp_path: Path) -> None:
    root = one_card(tmp_path)
    assert says("D-GPU-10", root).status == "unknown"
    assert says("D-GPU-10", root, snapshot=reading(RTX)).observed == "whole cards"
    assert "MIG" in says("D-GPU-10", root, snapshot=reading(replace(RTX, mig=True))).why
    windows = made(root, {"proc/version": "Linux version 5.15.0-microsoft-standard-WSL2"})
    assert says("D-GPU-10", windows, snapshot=reading(RTX)).observed == "WSL 2"


def test_compiler_of_another_machine_is_not_known(tmp_path: Path) -> None:
    assert says("D-GPU-11", one_card(tmp_path)).status == "unknown"


def test_lanes(tmp_path: Path) -> None:
    assert says("D-PCI-1", one_card(tmp_path / "told not")).status == "unknown"
    full = one_card(tmp_path / "full", current_link_width="16", max_link_width="16")
    assert says("D-PCI-1", full).observed == "0000:01:00.0: 16 of 16 lanes"
    found = says("D-PCI-1", machines.unpack("threadripper_4ccd", tmp_path))
    assert found.status == "warn"
    assert "0000:61:00.0 runs on 4 of 16 lanes" in found.why


def behind_a_bridge(root: Path, slot: str, **files: str) -> Path:
    """A card whose folder lies below that of its slot, as in /sys."""
    real = root / "sys/devices/pci0000:00/0000:00:01.0" / PCI
    for name, text in card(current_link_width="8", max_link_width="16", **files).items():
        made(root, {str(real.relative_to(root) / Path(name).name): text})
    made(root, cpus(2) | {"sys/devices/pci0000:00/0000:00:01.0/max_link_width": slot})
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "sys/bus/pci/devices" / PCI).symlink_to(real)
    return root


def test_a_small_slot_is_no_fault(tmp_path: Path) -> None:
    found = says("D-PCI-1", behind_a_bridge(tmp_path / "small", "8"))
    assert found.status == "pass"
    assert "slot of 8 lanes" in found.why
    assert says("D-PCI-1", behind_a_bridge(tmp_path / "large", "16")).status == "warn"


def test_link_under_load(tmp_path: Path) -> None:
    root, gen4 = one_card(tmp_path), replace(RTX, link_generation_max=4, link_generation=1)
    assert says("D-PCI-2", root, snapshot=reading(gen4)).status == "unknown", "a link at rest is no finding"
    rate = LinkRate("GPU-1", 25.1, 4, 16)
    assert says("D-PCI-2", root, snapshot=reading(gen4), links=lambda: (rate,)).status == "pass"
    slow = says("D-PCI-2", root, snapshot=reading(gen4), links=lambda: (replace(rate, generation=3, gbps=12.5),))
    assert (slow.status, "generation 3 under load and could do 4" in slow.why) == ("warn", True)
    weak = says("D-PCI-2", root, snapshot=reading(gen4), links=lambda: (replace(rate, gbps=6.0),))
    assert (weak.status, "6.0 of 31.5 GB/s" in weak.why) == ("warn", True)


def test_link_errors(tmp_path: Path) -> None:
    assert says("D-PCI-3", one_card(tmp_path / "no")).status == "unknown"
    root = one_card(tmp_path / "aer", aer_dev_correctable="RxErr 3\nTOTAL_ERR_COR 3\n")
    assert says("D-PCI-3", root).status == "pass"
    assert says("D-PCI-3", root, before=Counters(0.0, link_errors=((PCI, 1),))).status == "warn"
    assert says("D-PCI-3", made(root, {"proc/uptime": "60.0 100.0"})).status == "warn"
    assert "no packet" not in says("D-PCI-3", root, snapshot=reading(replace(RTX, link_replays=4))).observed


@pytest.mark.parametrize(
    ("policy", "status"), [("[default] performance powersave powersupersave", "pass"), ("default [powersupersave]", "warn")]
)
def test_power_saving_of_links(policy: str, status: str, tmp_path: Path) -> None:
    assert says("D-PCI-4", one_card(tmp_path)).status == "unknown"
    found = says("D-PCI-4", made(tmp_path, {"sys/module/pcie_aspm/parameters/policy": policy}))
    assert found.status == status
    assert all("/sys/module/pcie_aspm/parameters/policy" in fix.command for fix in found.fixes)


def test_window(tmp_path: Path) -> None:
    assert says("D-PCI-5", one_card(tmp_path / "no")).status == "unknown"
    root = one_card(tmp_path / "bar", resource="0x0 0x0 0x0\n0xd0000000 0xdfffffff 0x14220c\njunk\n")
    small = says("D-PCI-5", root, snapshot=reading(RTX))
    assert (small.status, small.observed, len(small.fixes)) == ("pass", "RTX (0000:01:00.0): 268 MB", 1)
    assert not says("D-PCI-5", root, snapshot=reading(replace(RTX, bar1_total_bytes=32 * GB))).fixes


def two_cards(root: Path, kind: str = "", cmdline: str = "quiet") -> Path:
    files = {"iommu_group__type": kind} if kind else {}
    unit = {"sys/class/iommu/dmar0/x": ""} if kind else {}
    return made(root, cpus(2) | card(**files) | card(OTHER, **files) | DRIVER | unit | {"proc/cmdline": cmdline})


def test_copies_between_cards(tmp_path: Path) -> None:
    plain, translated = two_cards(tmp_path / "plain"), two_cards(tmp_path / "translated", "DMA-FQ")
    assert says("D-PCI-6", plain).status == "pass"
    warned = says("D-PCI-6", translated)
    assert (warned.status, warned.fixes[0].command) == ("warn", "iommu=pt")
    assert says("D-PCI-6", two_cards(tmp_path / "pt", "identity", "iommu=pt")).status == "pass"
    lost = says("D-PCI-6", translated, peers=lambda: PeerFacts(1, lost=("gpu0 and gpu1 exchange through memory.",)))
    assert (lost.status, "silently lost" in lost.why) == ("fail", True)
    assert says("D-PCI-6", translated, peers=lambda: PeerFacts(1)).status == "pass"
    apart = says("D-PCI-6", plain, peers=lambda: PeerFacts(1, apart=("gpu0 has no access to gpu1.",)))
    assert (apart.status, apart.why) == ("pass", "gpu0 has no access to gpu1.")
    assert says("D-PCI-6", translated, peers=lambda: None).status == "warn"


def test_nvlink(tmp_path: Path) -> None:
    root = one_card(tmp_path)
    links: dict[str, Any] = {"nvlinks": 3, "nvlinks_down": 1}
    assert says("D-PCI-7", root).status == "unknown"
    assert says("D-PCI-7", root, snapshot=reading(RTX)).status == "n/a"
    assert says("D-PCI-7", root, snapshot=reading(replace(RTX, **links))).status == "warn"
    assert says("D-PCI-7", root, snapshot=reading(replace(RTX, nvlinks=4, nvlinks_down=0))).status == "pass"
