"""The cards as the driver lists them; a library that hangs or crashes takes nobody along."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.hardware import gpu_listing
from engine.hardware.gpu_listing import LISTER, listed_by_driver
from engine.hardware.gpus import find_gpus
from tests.helpers.nvml import Cards, build


@pytest.fixture
def cards(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cards]:
    LISTER.close()
    yield Cards(tmp_path, build(tmp_path_factory.mktemp("nvml")), monkeypatch)
    LISTER.close()


def test_cards_and_their_free_memory(cards: Cards) -> None:
    cards.become("gpus 2")
    found, problem = listed_by_driver(cards.root)
    assert problem == ""
    mib = 1 << 20
    assert [(one.uuid[-1], one.name, one.total_bytes) for one in found] == [
        (str(i), "NVIDIA GeForce RTX 4090", 24564 * mib) for i in range(2)
    ]
    assert found[0].free_bytes == (24564 - 4388) * mib
    cards.become("gpus 2", "set used_mb 5000")
    assert listed_by_driver(cards.root)[0][0].free_bytes == (24564 - 5388) * mib
    assert len(find_gpus({"LAYERDECK_GPU": "auto"}, cards.root).found) == 2


@pytest.mark.parametrize(("error", "words"), [(18, "restart the computer"), (9, "not loaded"), (999, "does not answer")])
def test_a_library_that_does_not_open_is_a_sentence(cards: Cards, error: int, words: str) -> None:
    cards.become(f"init {error}")
    found, problem = listed_by_driver(cards.root)
    assert found == []
    assert words in problem
    assert words in find_gpus({"LAYERDECK_GPU": "auto"}, cards.root).problem


def test_a_library_that_crashes_is_a_sentence_and_is_not_asked_again_at_once(
    cards: Cards, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards.become("gpus 2", "crash 1")
    assert listed_by_driver(cards.root) == ([], gpu_listing.SILENT)
    cards.become("gpus 2")
    began = time.monotonic()
    assert listed_by_driver(cards.root) == ([], gpu_listing.SILENT)
    assert time.monotonic() - began < 0.1
    known = cards.root / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    known.parent.mkdir(parents=True)
    known.write_text("Model: NVIDIA GeForce RTX 4090\nGPU UUID: GPU-1\n")
    found = find_gpus({"LAYERDECK_GPU": "auto"}, cards.root)
    assert [one.name for one in found.found] == ["NVIDIA GeForce RTX 4090"]
    assert (found.usable, found.problem) == ((), gpu_listing.SILENT)
    monkeypatch.setattr(LISTER, "_not_before", 0.0)
    assert len(listed_by_driver(cards.root)[0]) == 2


def test_a_library_that_hangs_is_given_up(cards: Cards, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(listed_by_driver(cards.root)[0]) == 4
    monkeypatch.setattr(gpu_listing, "LIST_S", 0.5)
    cards.become("gpus 2", "hang 0 9000")
    began = time.monotonic()
    assert listed_by_driver(cards.root) == ([], gpu_listing.SILENT)
    assert time.monotonic() - began < 3


def test_without_a_driver_no_process_is_started(tmp_path: Path) -> None:
    assert listed_by_driver(tmp_path) == ([], gpu_listing.NO_DRIVER)
    assert LISTER._helper is None
