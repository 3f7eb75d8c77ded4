"""Statistics: confidence intervals and bounds, and numbers that don't hide on which side of a bound they are."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.model.result import TOLERANCE, Term
from pytest_packbench.model.suite import Figure, Interval

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


DASH = "-"
NOT_MEASURED = "not measured"
_MAX_DIGITS = 12
# milliseconds
_SECOND = 1000
_MINUTE = 60_000
_MANY_SECONDS = 120_000


def capitalized(text: str) -> str:
    """Return a text with a capital letter at its start; the others stay as they are."""
    return text[:1].upper() + text[1:]


def format_percent(part: int, whole: int) -> str:
    """Return a share such as `95.8 %`; `100.0 %` and `0.0 %` mean exactly all and none, a dash that `whole` is 0."""
    return format_with_bounds(part / whole, as_percent=True)[0] if whole else DASH


def format_score(value: float | None, threshold: float | None = None) -> tuple[str, str]:
    """Return a score and its threshold with two decimals, or as many as are needed to show which is larger.

    Args:
        value: 0 to 1; None becomes a dash.
        threshold: 0 to 1; None becomes a dash.
    """
    if value is None or threshold is None:
        return format_mean(value), format_mean(threshold)
    number, bound = format_with_bounds(value, threshold)
    return number, bound


def format_score_and_threshold(value: float | None, threshold: float | None) -> str:
    """Return `0.78 < 0.80` of a score that is too low; trials may fail a case whose mean is not."""
    number, bound = format_score(value, threshold)
    is_low = value is None or threshold is None or value < threshold - TOLERANCE
    return f"{number} < {bound}" if is_low else f"{number}, threshold {bound}"


def format_mean(value: float | None) -> str:
    """Return a score that has no threshold; a dash for None."""
    return DASH if value is None else format_with_bounds(value)[0]


def format_change(change: float, digits: int = 2) -> str:
    """Return a change of a score with its sign, and with as many decimals as are needed to show that it is not 0."""
    if abs(change) <= TOLERANCE:
        return f"{0:+.{digits}f}"
    text = f"{change:+.{digits}f}"
    return text if float(text) else f"{change:+.{1 - math.floor(math.log10(abs(change)))}f}".rstrip("0")


def format_interval(ends: tuple[float, float] | None) -> str:
    """Return an interval of shares, `62.1 % to 96.3 %`; a dash for None."""
    return DASH if ends is None else f"{100 * ends[0]:.1f} % to {100 * ends[1]:.1f} %"


def format_duration(milliseconds: int) -> str:
    """Return a duration in the unit that suits it: `750 ms`, `3.2 s` or `12.5 min`."""
    if milliseconds < _SECOND:
        return f"{milliseconds} ms"
    if milliseconds < _MANY_SECONDS:
        return f"{milliseconds / _SECOND:.1f} s"
    return f"{milliseconds / _MINUTE:.1f} min"


def format_terms(terms: Iterable[Term], *, details: bool = False) -> str:
    """Return the terms of a score in the order applied: `preferred_match +1.00; forbidden_code =0`.

    Args:
        terms: those of a `Score`.
        details: add the detail of each term in brackets; without it, a repeated note is there once.
    """
    texts: list[str] = []
    for term in terms:
        text = _format_term(term, details=details)
        if term.effect != "note" or text not in texts:
            texts.append(text)
    return "; ".join(texts)


def _format_term(term: Term, *, details: bool) -> str:
    points = "" if term.effect == "note" else f" {term.points}"
    return f"{term.name}{points}{f' ({term.detail})' if details and term.detail else ''}"


@lru_cache(maxsize=4096)
def format_with_bounds(value: float, *bounds: float, as_percent: bool = False) -> tuple[str, ...]:
    """Return a number and its bounds with as many decimals as are needed to show how they compare.

    A difference of at most 1e-9 counts as none.

    Args:
        value: 0 to 1.
        bounds: 0 to 1 each.
        as_percent: `12.5 %` instead of `0.125`.

    Returns:
        The value, then the bounds, all with the same number of decimals.
    """
    scale, digits, unit = (100, 1, " %") if as_percent else (1, 2, "")
    marks = (*bounds, 0.0, 1.0)
    # values that count as equal are printed as equal
    value = next((mark for mark in marks if mark - TOLERANCE <= value <= mark + TOLERANCE), value)
    while digits < _MAX_DIGITS and not _keeps_order(value, marks, scale, digits):
        digits += 1
    return tuple(f"{number * scale:.{digits}f}{unit}" for number in (value, *bounds))


def _keeps_order(value: float, marks: tuple[float, ...], scale: int, digits: int) -> bool:
    rounded = round(value * scale, digits)
    return all(
        _compare(value, mark) == _compare(rounded, round(mark * scale, digits))
        and abs(round(mark * scale, digits) - mark * scale) <= TOLERANCE
        for mark in marks
    )


def _compare(left: float, right: float) -> int:
    return (left > right) - (left < right)


def figure_value(figure: Figure) -> str:
    """Return the value in words: `3 of 20 = 15.0 %`, `1.25 USD` or `not measured`."""
    if figure.number is not None:
        value = f"{figure.number:.6g} {figure.unit}".rstrip()
    elif figure.count is not None and figure.total:
        # without an interval it is no sample, and a percentage would look like the rate of a model
        share = f" = {format_percent(figure.count, figure.total)}" if figure.interval is not None else ""
        value = f"{figure.count} of {figure.total}{share}"
    else:
        value = NOT_MEASURED
    return f"{value}; {figure.note}" if figure.note else value


def figure_interval(figure: Figure) -> str:
    """Return the interval with its method: `5.2 % to 36.0 % (95 % Wilson)`; empty without one."""
    interval = figure.interval
    if interval is None:
        return ""
    if figure.number is None:
        return f"{format_interval((interval.low, interval.high))} ({interval.method})"
    return f"{interval.low:.6g} to {interval.high:.6g} ({interval.method})"


def grouped_figures(figures: Iterable[Figure]) -> Iterator[tuple[str, list[Figure]]]:
    """Yield the groups of figures in the order of their first members."""
    groups: dict[str, list[Figure]] = {}
    for figure in figures:
        groups.setdefault(figure.group, []).append(figure)
    yield from groups.items()


CONFIDENCE = 0.95
WILSON = {"method": "wilson", "sides": 2, "confidence": CONFIDENCE}
"""How reports say in which way intervals of rates are computed."""
_POWER = 0.8
_STEPS = 200
_EXACT = 1e-14
_HALVINGS = 60


def wilson_interval(k: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return the two-sided Wilson score interval of a proportion (E. B. Wilson 1927, JASA 22:209-212).

    Args:
        k: successes, 0 to `n`.
        n: trials, 0 or more.
        confidence: between 0 and 1, both excluded.

    Returns:
        Low and high end, 0 to 1; None for no trial.

    Raises:
        ValueError: an argument is out of its range.
    """
    if not 0 <= k <= n:
        raise ValueError(f"expected 0 <= k <= n; got k={k}, n={n}")
    z = _quantile(confidence)
    return _wilson(k / n, n, z) if n else None


def rate_interval(
    count: int, total: int, clusters: Iterable[tuple[int, int]] | None = None, *, clustered_by: str = "cluster"
) -> Interval | None:
    """Return the two-sided 95 % interval of a share of sampled answers.

    Without clusters it is that of Wilson. With clusters it is the same for the effective size: the total, divided
    by how much the clusters widen the variance, and reduced for their number (E. L. Korn and B. I. Graubard 1998,
    Survey Methodology 24:193-201). If none or all count, the clusters show no spread, and each of them counts as one
    case, which is the worst that is possible.

    Args:
        count: how many count, 0 to `total`.
        total: among how many.
        clusters: the same for each cluster of cases that are not independent, such as all pairs of one task; their sums
            are `count` and `total`. None if all cases are independent.
        clustered_by: what the cases of a cluster share, in words.

    Returns:
        The interval with its method; None without a case, and if all cases are one cluster.

    Raises:
        ValueError: a count is not between 0 and its total, or the clusters don't add up.
    """
    sizes = [cluster for cluster in clusters or () if cluster[1]]
    if any(not 0 <= part <= size for part, size in [(count, total), *sizes]):
        raise ValueError(f"expected counts from 0 to their totals; got {count} of {total}, clusters {sizes}")
    if clusters is not None and (sum(part for part, _ in sizes), sum(size for _, size in sizes)) != (count, total):
        raise ValueError(f"expected clusters that add up to {count} of {total}; got {sizes}")
    method = f"{100 * CONFIDENCE:g} % Wilson"
    if clusters is None or len(sizes) == total:
        # none, or each with one case
        ends = wilson_interval(count, total)
        return None if ends is None else Interval(*ends, method)
    if len(sizes) == 1:
        return None
    ends = _wilson(count / total, _effective_size(count / total, total, sizes), _quantile(CONFIDENCE))
    return Interval(*ends, f"{method}, clustered by {clustered_by}")


def _effective_size(share: float, total: int, clusters: Sequence[tuple[int, int]]) -> float:
    """Return how many independent cases would be as informative as these clusters."""
    number = len(clusters)
    if share in {0.0, 1.0}:
        return number
    spread = math.fsum((part - size * share) ** 2 for part, size in clusters)
    variance = number / (number - 1) * spread / total**2
    effect = max(1.0, variance / (share * (1 - share) / total))
    few = _quantile(CONFIDENCE) / _t_quantile(number - 1)
    return total / effect * few * few


def _wilson(share: float, n: float, z: float) -> tuple[float, float]:
    """Return Wilson's interval for `n` independent cases, which need not be a whole number."""
    spread = z * z / n
    middle = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    # for none and all the formula gives 0 and 1, except for rounding
    return 0.0 if share == 0 else max(0.0, low), 1.0 if share == 1 else min(1.0, high)


def exact_bound(k: int, n: int, confidence: float, *, upper: bool) -> float:
    """Return the exact one-sided bound of a proportion (Clopper and Pearson 1934, Biometrika 26:404-413).

    Args:
        k: successes, 0 to `n`.
        n: trials, 1 or more.
        confidence: one-sided, between 0 and 1.
        upper: the upper bound instead of the lower one.

    Returns:
        0 to 1: the largest (or smallest) proportion that is consistent with this many successes.
    """
    if upper:
        return 1.0 - exact_bound(n - k, n, confidence, upper=False)
    if k == 0:
        return 0.0
    # bisection: the lower bound is the (1 - confidence) quantile of a beta distribution
    low, high = 0.0, k / n
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _beta_cdf(middle, k, n - k + 1) < 1 - confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class PairedMean(NamedTuple):
    """The mean of paired differences, current minus baseline, in points of score (-1 to 1).

    Attributes:
        n: pairs.
        clusters: number of independent clusters of pairs, 1 to `n`.
        mean: their mean difference.
        low: lower end of the 95 % interval, -1 or more; None with fewer than two clusters.
        high: its upper end, 1 at most.
        method: `t` (two-sided), `exact` where all clusters changed alike, or not at all, `none` without an interval.
        detectable: the smallest true mean difference that is detected with 80 % power (two-sided, 5 % level), at this
            number of pairs and the observed spread between clusters; None if all clusters changed alike, and if no
            change that is possible, up to 1, is detected.
    """

    n: int
    clusters: int
    mean: float
    low: float | None
    high: float | None
    method: str
    detectable: float | None


def paired_mean(independent: Sequence[float], clusters: Collection[Sequence[float]] = ()) -> PairedMean | None:
    """Return the mean of paired differences with an interval that also holds for few pairs.

    It is Student's interval of the mean with one more cluster of each extreme, -1 and +1, in its spread, so that few
    pairs can't hide a change that none of them shows. For flips, this is the idea of A. Agresti and B. Coull (1998, The
    American Statistician 52:119-126). Where all clusters changed alike, or not at all, it reaches as far as the share
    of others that they don't rule out: see `unseen_rate_bound`. `python -m benchmarks.intervals` shows its coverage.

    Pairs of one cluster count as one sum (Cameron and Miller 2015, Journal of Human Resources 50:317-372), and clusters
    as so many of equal size as have the same weight.

    Args:
        independent: current minus baseline, -1 to 1, one per case; trials of a case have been averaged.
        clusters: the same for each cluster of cases that are not independent, with one case or more.

    Returns:
        The mean and its interval; None without pairs.
    """
    count = len(independent) + len(clusters)
    if not count:
        return None
    n = len(independent) + sum(map(len, clusters))
    mean = _without_noise(math.fsum(chain(independent, *clusters)) / n)
    if count == 1:
        return PairedMean(n=n, clusters=1, mean=mean, low=None, high=None, method="none", detectable=None)
    sums = chain(zip(independent, repeat(1)), ((math.fsum(each), len(each)) for each in clusters))
    spread = math.fsum((total - size * mean) ** 2 for total, size in sums)
    # clusters of different sizes tell as much as fewer equal ones (Kish 1965, Survey Sampling)
    equal = n * n / (len(independent) + sum(len(each) ** 2 for each in clusters))
    # as many others as are not ruled out may have changed as far as is possible, on either side
    method, unseen, detectable = "exact", unseen_rate_bound(equal) or 0.0, None
    below, above = unseen * (1 + mean), unseen * (1 - mean)
    if math.sqrt(spread) / n > TOLERANCE:
        size = n / equal
        spread += size**2 * ((1 - mean) ** 2 + (1 + mean) ** 2)
        # for clusters of one pair this is the usual standard error of a mean, with two pairs more
        error = math.sqrt((equal + 2) / (equal + 1) * spread) / (n + 2 * size)
        method, below = "t", _t_quantile(equal - 1) * error
        above, reach = below, below + _normal_quantile(_POWER) * error
        detectable = reach if reach <= 1 else None
    return PairedMean(
        n=n,
        clusters=count,
        mean=mean,
        low=max(-1.0, mean - below),
        high=min(1.0, mean + above),
        method=method,
        detectable=detectable,
    )


def _without_noise(change: float) -> float:
    """Return a change of scores, or 0 where only rounding errors differ from it."""
    return change if abs(change) > TOLERANCE else 0.0


def mcnemar_p_value(lost: int, won: int) -> float:
    """Return the two-sided p value of the exact McNemar test (1947; the binomial form) on pass flips.

    Args:
        lost: cases that passed before and fail now, 0 or more.
        won: cases that failed before and pass now, 0 or more.

    Returns:
        0 to 1; 1 without flips.
    """
    flips = lost + won
    # in logarithms, because 2 ** flips overflows a float above a thousand flips
    total = math.fsum(
        math.exp(math.lgamma(flips + 1) - math.lgamma(k + 1) - math.lgamma(flips - k + 1) - flips * math.log(2))
        for k in range(min(lost, won) + 1)
    )
    return min(1.0, 2 * total)


def unseen_rate_bound(n: float) -> float | None:
    """Return the exact one-sided 95 % upper bound of a rate of which `n` cases showed no event.

    Returns:
        0 to 1, `1 - 0.05 ** (1 / n)` (Clopper and Pearson 1934); None without cases.
    """
    return 1 - (1 - CONFIDENCE) ** (1 / n) if n else None


@lru_cache
def _quantile(confidence: float) -> float:
    """Return the upper end of the two-sided interval of a standard normal variable."""
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence between 0 and 1; got {confidence}")
    # what every run needs, as `statistics` returns it, which takes longer to import
    return 1.9599639845400536 if confidence == CONFIDENCE else _normal_quantile((1 + confidence) / 2)


@lru_cache
def _t_quantile(freedom: float) -> float:
    """Return the upper end of the two-sided 95 % interval of Student's t with so many degrees of freedom."""
    low, high = 0.0, 20.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # the two tails together are an incomplete beta function (DLMF 8.17)
        outside = _beta_cdf(freedom / (freedom + middle * middle), freedom / 2, 0.5)
        low, high = (middle, high) if outside > 1 - CONFIDENCE else (low, middle)
    return (low + high) / 2


def _normal_quantile(share: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def _beta_cdf(x: float, a: float, b: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # the continued fraction converges fast on this side of the mean
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(x, a, b) / a
    return 1.0 - front * _continued_fraction(1 - x, b, a) / b


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function (DLMF 8.17.22, Lentz's method)."""
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
