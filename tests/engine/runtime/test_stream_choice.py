"""From which chunk on experts are brought: by the rate of the bus and what the CPU takes for a row."""

from __future__ import annotations

import pytest

from engine.runtime.stream_choice import CPU_GOPS, Load, StreamChoice

QWEN3_30B = Load(17_550_000_000, 48 * 3 * 2 * 8 * 2048 * 768.0, 14)


def test_without_anything_to_bring_or_when_told_so_there_is_no_choice() -> None:
    assert not StreamChoice("on", None).streams(4096)
    assert not StreamChoice("off", QWEN3_30B).streams(4096) and StreamChoice("off", QWEN3_30B).least_rows == 0
    assert StreamChoice("on", QWEN3_30B).streams(1) and StreamChoice("on", QWEN3_30B).least_rows == 1


def test_the_first_chunk_goes_by_the_measured_bus_and_a_guess_of_the_cpu() -> None:
    choice = StreamChoice("auto", QWEN3_30B)
    choice.measured(50.0)
    expected = 17.55 / 50 / (QWEN3_30B.ops_per_row / (14 * CPU_GOPS * 1e9))
    assert choice.least_rows == pytest.approx(expected, abs=1)
    assert 100 < choice.least_rows < 400
    assert choice.streams(choice.least_rows) and not choice.streams(choice.least_rows - 1)
    choice.measured(0.0)  # says nothing
    assert choice.least_rows == pytest.approx(expected, abs=1)


def test_what_chunks_took_moves_the_limit() -> None:
    choice = StreamChoice("auto", QWEN3_30B)
    choice.measured(50.0)
    choice.took(8, 1.0, streamed=False)  # says little
    assert choice.streams(2048)
    choice.took(100, 0.1, streamed=False)  # 1000 rows a second
    assert [choice.streams(n) for n in (100, 350, 352, 2048)] == [False, False, True, True]
    choice.took(2048, 0.41, streamed=True)  # 5000 rows a second
    assert [choice.streams(n) for n in (350, 352, 4096)] == [False, True, True]


def test_a_gpu_that_is_slower_than_the_cpu_gets_nothing() -> None:
    choice = StreamChoice("auto", QWEN3_30B)
    choice.measured(50.0)
    choice.took(100, 0.1, streamed=False)
    choice.took(1000, 4.0, streamed=True)
    assert choice.least_rows == 0 and not choice.streams(4096)
