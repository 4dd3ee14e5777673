"""Which GPUs are found, as the environment asks, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import InvalidRequest
from engine.hardware import gpus
from engine.hardware.gpu_listing import Listed
from engine.hardware.gpus import find_gpus
from engine.hardware.machine import this_machine
from engine.hardware.machine_file import read_machine

GIB = 1 << 30


def have(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(gpus.importlib.util, "find_spec", lambda name: object() if name in packages else None)


CARDS = [Listed("GPU-aa11", "A", 24 * GIB, 23 * GIB), Listed("GPU-bb22", "B", 12 * GIB, 11 * GIB)]


def test_emulated_gpus_have_a_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, "torch")
    assert [(one.index, one.capacity // GIB, one.emulated) for one in find_gpus({"LAYERDECK_GPU": "emulate"}).usable] == [
        (0, 24, True)
    ]
    assert [one.capacity // GIB for one in find_gpus({"LAYERDECK_GPU": "emulate:2"}).usable] == [24, 24]
    assert [one.capacity for one in find_gpus({"LAYERDECK_GPU": "emulate:2x0.5"}).usable] == [GIB // 2] * 2
    have(monkeypatch)
    found = find_gpus({"LAYERDECK_GPU": "emulate"})
    assert not found.usable and "torch is not installed" in found.problem


@pytest.mark.parametrize("setting", ["emulate:0", "emulate:x", "emulate:65", "cuda", "2"])
def test_settings_that_mean_nothing_are_refused(setting: str) -> None:
    with pytest.raises(InvalidRequest, match="LAYERDECK_GPU"):
        find_gpus({"LAYERDECK_GPU": setting})


def test_gpus_can_be_switched_off() -> None:
    assert find_gpus({"LAYERDECK_GPU": "none"}) == gpus.Gpus((), "GPUs are switched off by LAYERDECK_GPU=none")


def test_what_the_driver_lists_is_found_in_the_order_that_cuda_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, "torch", "triton")
    monkeypatch.setattr(gpus, "listed_by_driver", lambda root: (CARDS, ""))
    monkeypatch.setattr(gpus.shutil, "which", lambda name, path=None: f"/usr/bin/{name}")
    assert [(one.index, one.name, one.capacity // GIB) for one in find_gpus({}).usable] == [(0, "A", 23), (1, "B", 11)]
    assert [one.name for one in find_gpus({"CUDA_VISIBLE_DEVICES": "1,0"}).usable] == ["B", "A"]
    assert [one.name for one in find_gpus({"CUDA_VISIBLE_DEVICES": "GPU-bb"}).usable] == ["B"]
    assert [one.name for one in find_gpus({"CUDA_VISIBLE_DEVICES": "0,7,1"}).usable] == ["A"]
    for nothing in ("", "-1"):
        assert find_gpus({"CUDA_VISIBLE_DEVICES": nothing}).problem == "CUDA_VISIBLE_DEVICES hides all GPUs"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "listed_by_driver", lambda root: (CARDS, ""))
    have(monkeypatch, "torch")
    found = find_gpus({})
    assert len(found.found) == 2 and not found.usable and "triton is not installed" in found.problem
    have(monkeypatch, "torch", "triton")
    monkeypatch.setattr(gpus.shutil, "which", lambda name, path=None: None)
    assert "no C compiler" in find_gpus({}).problem


def test_without_the_library_the_files_of_the_driver_count(tmp_path: Path) -> None:
    assert find_gpus({}, tmp_path).problem.startswith("there is no NVIDIA driver")
    card = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    card.parent.mkdir(parents=True)
    card.write_text("Model: \t\t NVIDIA GeForce RTX 3060\nGPU UUID: \t GPU-12ab\n", encoding="utf-8")
    found = find_gpus({}, tmp_path).found
    assert [(one.name, one.total_bytes, one.capacity) for one in found] == [("NVIDIA GeForce RTX 3060", None, 0)]


def test_looking_for_gpus_imports_no_torch() -> None:
    code = "import sys; from engine.hardware.gpus import find_gpus; find_gpus(); print({'torch', 'triton'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_machines_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(
        '{"ram_gib": 512, "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 4}, {"memory_gib": 48}]}', encoding="utf-8"
    )
    machine = read_machine(path)
    assert machine.ram_bytes == 512 * GIB
    assert [(one.index, one.capacity // GIB) for one in machine.gpus] == [(0, 24), (1, 24), (2, 24), (3, 24), (4, 48)]
    assert this_machine({"LAYERDECK_GPU": "none"}).gpus == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a JSON file"),
        ("[]", "not a JSON object"),
        ('{"ram": 1}', "did you mean ram_gib"),
        ('{"ram_gib": -1}', "ram_gib is -1"),
        ("{}", "ram_gib is None"),
        ('{"ram_gib": 8, "gpus": {}}', "not a list"),
        ('{"ram_gib": 8, "gpus": [{"memory_gib": "24"}]}', "memory_gib is '24'"),
        ('{"ram_gib": 8, "gpus": [{"memory_gib": 24, "count": 0}]}', "count is 0"),
    ],
)
def test_machines_that_cannot_be_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=problem):
        read_machine(path)
