"""Amounts of memory as the placement board gives them."""

from __future__ import annotations

import pytest

from app.widgets.format import bytes_in_unit_of, exact_bytes

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (500, "500 B"),
        (64_000, "64 kB"),
        (999_600, "1 MB"),
        (22_740_000_000, "22.7 GB"),
        (24 * GB, "24 GB"),
        (99_940_000_000, "99.9 GB"),
        (178_400_000_000, "178 GB"),
        (1_620 * GB, "1.6 TB"),
    ],
)
def test_three_digits_say_how_much(n: int, text: str) -> None:
    assert exact_bytes(n) == text


@pytest.mark.parametrize(("n", "text"), [(0, "0"), (800_000_000, "0.8"), (21 * GB, "21.0"), (173_200_000_000, "173")])
def test_parts_have_the_unit_of_the_whole(n: int, text: str) -> None:
    assert bytes_in_unit_of(n, 24 * GB) == text
