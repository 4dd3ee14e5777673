"""Means, scatter and Welch's test against tables and published examples."""

from __future__ import annotations

import pytest

from app.ops.two_samples import Sample, incomplete_beta, p_value, sample


def test_mean_and_deviation_of_a_single_run() -> None:
    assert sample((2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0)) == Sample(8, 5.0, pytest.approx(2.13809, rel=1e-5))
    assert sample((3.0,)) == Sample(1, 3.0, 0.0)
    assert sample(()) == Sample(0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("a", "b", "x", "expected"),
    [(0.5, 0.5, 0.5, 0.5), (1.0, 1.0, 0.3, 0.3), (2.0, 3.0, 0.4, 0.5248), (5.0, 0.5, 0.9, 0.2772), (2.0, 2.0, 0.0, 0.0)],
)
def test_incomplete_beta(a: float, b: float, x: float, expected: float) -> None:
    """For whole numbers it is a sum of binomial terms; I_0.4(2, 3) = 0.5248. I_0.9(5, 0.5) is P(|t_10| > sqrt(10 / 9))."""
    if (a, b) == (5.0, 0.5):
        # P(|t| > 1.0541) at 10 degrees of freedom, by Simpson's rule over the density.
        expected = _tail(10, (10 / 0.9 - 10) ** 0.5)
    assert incomplete_beta(a, b, x) == pytest.approx(expected, abs=1e-9)


def _tail(freedom: int, t: float) -> float:
    import math

    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    n = 20_000
    step = t / n
    terms = (
        (1 if i in (0, n) else 4 if i % 2 else 2) * scale * (1 + (i * step) ** 2 / freedom) ** (-(freedom + 1) / 2)
        for i in range(n + 1)
    )
    return 1 - 2 * step / 3 * sum(terms)


@pytest.mark.parametrize(("freedom", "t"), [(2, 4.303), (4, 2.776), (10, 2.228), (30, 2.042)])
def test_five_per_cent_points_of_the_t_distribution(freedom: int, t: float) -> None:
    """Printed tables give them to three digits behind the point."""
    assert incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) == pytest.approx(0.05, abs=5e-5)


def test_equal_samples_do_not_differ_and_far_ones_do() -> None:
    same = sample((12.0, 12.1, 11.9))
    assert p_value(same, same) == pytest.approx(1.0)
    far = p_value(same, sample((13.0, 13.1, 12.9)))
    assert far is not None and far < 0.001
    near = p_value(sample((12.0, 13.0, 11.0)), sample((12.4, 13.3, 11.6)))
    assert near is not None and near > 0.5


def test_too_few_runs_tell_nothing_and_runs_without_scatter_are_no_division_by_zero() -> None:
    assert p_value(sample((1.0,)), sample((2.0, 2.1))) is None
    assert p_value(sample((2.0, 2.0)), sample((2.0, 2.0))) == 1.0
    assert p_value(sample((2.0, 2.0)), sample((3.0, 3.0))) == 0.0
