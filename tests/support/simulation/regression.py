"""Offset and frequency from samples of unequal worth, as chronyd estimates them.

A weighted least-squares line; samples are dropped from the old end until their residuals change sign often enough to
look like noise around it (a runs test), because an old sample that no longer fits tells of another frequency.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LEAST_SAMPLES = 3
# Two-sided 99.9 % quantiles of Student's t for 1 to 8 degrees of freedom; further ones by expansion.
_T_QUANTILES = (636.6, 31.6, 12.92, 8.61, 6.869, 5.959, 5.408, 5.041)
_NORMAL_QUANTILE = 3.2905
_RUNS_SIGMAS = 1.645


@dataclass(frozen=True)
class Line:
    """offset = `at_zero` + `slope` * x, with standard deviations, over the newest `used` points.

    `spread` is the standard deviation of a point.
    """

    at_zero: float
    slope: float
    at_zero_sd: float
    slope_sd: float
    spread: float
    used: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return self.used - 2


def best_line(x: Sequence[float], y: Sequence[float], weights: Sequence[float], older: int) -> Line | None:
    """The line through the newest points that pass the runs test; None below LEAST_SAMPLES points.

    `weights` are of the points after the first `older`, greater meaning worse; the older points only extend the test.
    """
    total, n = len(x), len(x) - older
    if n < LEAST_SAMPLES:
        return None
    start = older
    while True:
        shares = [1 / weight for weight in weights[start - older :]]
        xs, ys = x[start:], y[start:]
        mass = math.fsum(shares)
        centre = sum(map(_product, shares, xs)) / mass
        spans = [one - centre for one in xs]
        inertia = sum(share * span * span for share, span in zip(shares, spans, strict=True))
        slope = sum(s * d * o for s, d, o in zip(shares, spans, ys, strict=True)) / inertia
        at_zero = sum(map(_product, shares, ys)) / mass - slope * centre
        first = max(0, total - 2 * (total - start))
        residuals = [y[i] - at_zero - slope * x[i] for i in range(first, total)]
        left = total - start
        if left <= LEAST_SAMPLES or _runs(residuals) > _critical_runs(len(residuals)):
            break
        start += 1
    squares = sum(s * r * r for s, r in zip(shares, residuals[start - first :], strict=True)) / (left - 2)
    slope_sd = math.sqrt(squares / inertia)
    at_zero_sd = math.hypot(math.sqrt(squares / mass), centre * slope_sd)
    return Line(at_zero, slope, at_zero_sd, slope_sd, math.sqrt(squares * left / mass), left)


def t_quantile(freedom: int) -> float:
    """By how many standard deviations a 99.9 % interval reaches to either side."""
    if freedom <= len(_T_QUANTILES):
        return _T_QUANTILES[freedom - 1]
    z, f = _NORMAL_QUANTILE, freedom
    return z + (z**3 + z) / (4 * f) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * f**2)


def _product(one: float, other: float) -> float:
    return one * other


def _runs(residuals: Sequence[float]) -> int:
    """How many stretches of one sign there are."""
    signs = [residual > 0 for residual in residuals]
    return 1 + sum(before is not after for before, after in pairwise(signs))


def _critical_runs(count: int) -> int:
    """The number of runs that noise undercuts in one of twenty cases."""
    if count < 8:
        return 0
    return round((count + 1) / 2 - _RUNS_SIGMAS * math.sqrt(count - 1) / 2)
