"""What a sweep tries and concludes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.hardware.topology_read import read_topology
from engine.runtime.tune_plan import best, chunk_sizes, in_turns, spread, thread_counts
from tests.helpers import machines


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("epyc7b13_2s", (64, 96, 124, 128, 256)),
        ("epyc9374f_nps4", (16, 24, 30, 32, 64)),
        ("threadripper_4ccd", (12, 18, 22, 24)),
        ("container_cpuset", (2, 3, 4, 6)),
    ],
)
def test_a_half_three_quarters_all_the_plan_and_every_thread(tmp_path: Path, name: str, counts: tuple[int, ...]) -> None:
    found = thread_counts(read_topology(machines.unpack(name, tmp_path)))
    assert found == counts


def test_a_quota_bounds_them(tmp_path: Path) -> None:
    machine = replace(read_topology(machines.unpack("epyc9374f_nps4", tmp_path)), quota_cores=6.5)
    assert thread_counts(machine) == (3, 5, 6)


def test_chunks_end_with_what_the_model_was_made_for() -> None:
    assert chunk_sizes(512) == (128, 256, 512)
    assert chunk_sizes(600) == (256, 512, 600)
    assert chunk_sizes(2048) == (512, 1024, 2048)
    assert chunk_sizes(40) == (40,)


def test_rounds_go_there_and_back() -> None:
    assert in_turns((1, 2, 3), 3) == (1, 2, 3, 3, 2, 1, 1, 2, 3)


def test_a_tie_goes_to_fewer() -> None:
    assert best({1: [5.0], 2: [9.9, 9.9, 9.9], 4: [10.0, 10.0, 10.0]}) == 2
    assert best({1: [5.0], 2: [9.0, 9.0, 9.0], 4: [10.0, 10.0, 10.0]}) == 4
    noisy = [8.0, 10.0, 12.0]  # says as little about 9.0 as its middle is away from it
    assert best({2: [9.0, 9.0, 9.0], 4: noisy}) == 2 and spread(noisy) == pytest.approx(0.2)
    assert best({8: [3.0]}) == 8
