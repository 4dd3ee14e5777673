"""Two samples of measured rates: their means, how far they scatter, and whether they differ more than chance explains.

Welch's test: Welch, "The generalization of Student's problem when several different population variances are involved",
Biometrika 34 (1947). The distribution of t comes from the incomplete beta function, by its continued fraction (Abramowitz and
Stegun 26.5.8, 26.7.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SIGNIFICANT = 0.05
_STEPS = 300
_ENOUGH = 1e-12
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Sample:
    """sigma: standard deviation of a single run, 0 for less than two."""

    n: int
    mean: float
    sigma: float


def sample(values: Sequence[float]) -> Sample:
    """Mean and scatter of some runs; of none, zeros."""
    n = len(values)
    if n == 0:
        return Sample(0, 0.0, 0.0)
    mean = sum(values) / n
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else 0.0
    return Sample(n, mean, spread)


def p_value(a: Sample, b: Sample) -> float | None:
    """How likely means at least so far apart are if both placements are equally fast; None: too few runs to tell."""
    if a.n < 2 or b.n < 2:
        return None
    of_a, of_b = a.sigma**2 / a.n, b.sigma**2 / b.n
    if of_a + of_b == 0:
        return 1.0 if a.mean == b.mean else 0.0
    t = (b.mean - a.mean) / math.sqrt(of_a + of_b)
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (a.n - 1) + of_b**2 / (b.n - 1))
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), the regularised incomplete beta function, for a, b > 0 and 0 <= x <= 1."""
    if x <= 0.0 or x >= 1.0:
        return max(0.0, min(1.0, x))
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction, from its first term on (Lentz)."""
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            result *= c * d
        if abs(c * d - 1.0) < _ENOUGH:
            break
    return result


def _away(value: float) -> float:
    """Away from zero, which would be divided by."""
    return value if abs(value) > _TINY else _TINY
