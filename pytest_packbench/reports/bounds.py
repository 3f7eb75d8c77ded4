"""Exact bounds of a proportion, for gates that decide on what a run has shown instead of what it happened to give."""

from __future__ import annotations

import math

_STEPS = 200
_EXACT = 1e-14
_HALVINGS = 60


def exact_bound(k: int, n: int, confidence: float, *, upper: bool) -> float:
    """Give the one-sided exact bound of a proportion (Clopper and Pearson 1934, Biometrika 26:404-413).

    Args:
        k: successes, 0 to `n`.
        n: trials, 1 or more.
        confidence: one-sided, between 0 and 1.
        upper: the upper bound instead of the lower one.

    Returns:
        0 to 1: the greatest (or least) proportion that this many successes don't speak against.
    """
    if upper:
        return 1.0 - exact_bound(n - k, n, confidence, upper=False)
    if k == 0:
        return 0.0
    # the lower bound is the (1 - confidence) quantile of a beta distribution; its distribution function rises
    low, high = 0.0, k / n
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _beta_cdf(middle, k, n - k + 1) < 1 - confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta_cdf(x: float, a: float, b: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # the fraction converges fast on the side of the mean that it is asked for
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Sum the continued fraction of the incomplete beta function (DLMF 8.17.22, by Lentz's method)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    total = d
    for step in range(1, _STEPS + int(math.sqrt(a + b)) * 4):
        twice = 2 * step
        for term in (
            step * (b - step) * x / ((a + twice - 1) * (a + twice)),
            -(a + step) * (a + b + step) * x / ((a + twice) * (a + twice + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            change = c * d
            total *= change
        if abs(change - 1.0) < _EXACT:
            break
    return total
