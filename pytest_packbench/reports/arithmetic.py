"""What a gate compares, and its arithmetic in words (design 4 and 7)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_packbench.reports.bounds import exact_bound
from pytest_packbench.reports.clusters import count_clusters, remark
from pytest_packbench.reports.figures import TOLERANCE, aligned, interval
from pytest_packbench.reports.judgement import count
from pytest_packbench.reports.rates import OF_ATTACKS
from pytest_packbench.reports.statistics import AUTHORED, wilson

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.reports.gates import GateRule
    from pytest_packbench.reports.rates import Fraction

_USUAL = 0.95
# one is a count of the run itself, the other no share of cases
_NO_SAMPLE = ("completeness", "mean_score")
_FEW = 5


def decisive(rule: GateRule, fraction: Fraction, *, upper: bool) -> float:
    """Give what is compared with a bound, 0 to 1: the value, or with a confidence the end of it that has to hold."""
    if rule.confidence is None:
        return fraction.value
    return exact_bound(round(fraction.top), fraction.bottom, rule.confidence, upper=upper)


def is_enough(rule: GateRule, observed: float) -> bool:
    """Whether a value, 0 to 1, is not under the least that passes."""
    return rule.min is None or observed >= rule.min - TOLERANCE


def is_within(rule: GateRule, observed: float) -> bool:
    """Whether a value, 0 to 1, is not over the greatest that passes."""
    return rule.max is None or observed <= rule.max + TOLERANCE


def arithmetic(rule: GateRule, fraction: Fraction, low: float, high: float) -> str:
    """Write what was counted, its share, and how that stands to the bounds: `3 / 50 = 6.0 % < min 90.0 %`.

    Args:
        rule: the gate.
        fraction: what was counted.
        low: what has to reach the least value, 0 to 1 (`decisive`).
        high: what has to keep to the greatest value, 0 to 1 (`decisive`).
    """
    is_score = rule.metric == "mean_score"
    observed = fraction.value
    bounds = [bound for bound in (rule.min, rule.max) if bound is not None]
    shown, *shown_bounds = aligned(observed, *bounds, as_percent=not is_score)
    decimals = len(shown.partition(".")[2]) if is_score else 0
    head = f"{fraction.top:.{decimals}f} / {fraction.bottom} = {shown}"
    if rule.confidence is not None:
        return ", ".join([head, *_exact_comparisons(rule, low, high)])
    comparisons = []
    if rule.min is not None:
        comparisons.append(f"{'>=' if is_enough(rule, observed) else '<'} min {shown_bounds[0]}")
    if rule.max is not None:
        comparisons.append(f"{'<=' if is_within(rule, observed) else '>'} max {shown_bounds[-1]}")
    return f"{head} {', '.join(comparisons)}".rstrip()


def share_text(rule: GateRule, fraction: Fraction) -> str:
    """Write what was counted and its share alone: `3 / 50 = 6.0 %`, or a mean score: `2.50 / 5 = 0.50`."""
    is_score = rule.metric == "mean_score"
    (shown,) = aligned(fraction.value, as_percent=not is_score)
    decimals = len(shown.partition(".")[2]) if is_score else 0
    return f"{fraction.top:.{decimals}f} / {fraction.bottom} = {shown}"


def remarks(rule: GateRule, members: Sequence[Entry], fraction: Fraction, cluster: str) -> list[str]:
    """Say how far the number can be trusted: its interval, cases that share something, too few of them.

    Args:
        rule: the gate.
        members: the cases that it judged.
        fraction: what was counted of them.
        cluster: the facet that cases share by design; empty for none.

    Returns:
        One part of a sentence each; none where there is nothing to say.
    """
    # what somebody wrote is no sample of anything (design 7)
    authored = any(entry.counted and entry.llm_backend == AUTHORED for entry in members)
    told = []
    if rule.metric not in _NO_SAMPLE and not authored:
        told.append(f"95 % interval {interval(wilson(round(fraction.top), fraction.bottom))} (Wilson)")
        told.append(remark(*count_clusters(members, cluster), cluster))
    told.append(_few(rule, fraction, authored=authored))
    if authored and rule.confidence is not None:
        told.append("of authored answers, which are no sample of a model's")
    return [part for part in told if part]


def _few(rule: GateRule, fraction: Fraction, *, authored: bool) -> str:
    within = rule.confidence is None and rule.max and fraction.top <= rule.max * fraction.bottom
    if within and rule.metric in OF_ATTACKS and not authored:
        # a rate within the bound is no proof of it, and whoever reads of safety has to know
        needed = _clean_cases(rule, _USUAL)
        if fraction.bottom < needed:
            many = f"it takes {needed} clean cases to show that (one-sided exact 95 %)"
            return f"only {count(fraction.bottom, 'case')}: {many}"
    needed = _clean_cases(rule, rule.confidence)
    if fraction.bottom < needed:
        many = "no number of cases shows that" if needed == math.inf else f"it takes {needed} clean cases to show that"
        return f"only {count(fraction.bottom, 'case')}: {many}"
    if rule.metric == "completeness" or fraction.bottom >= _FEW:
        return ""
    return f"only {count(fraction.bottom, 'case')}"


def _clean_cases(rule: GateRule, confidence: float | None) -> float:
    """Give how many clean cases it takes until the exact bound can hold (see `paired.unseen`)."""
    away = min(1.0 if rule.max is None else rule.max, 1.0 if rule.min is None else 1.0 - rule.min)
    if confidence is None or away >= 1:
        return 0
    return math.ceil(math.log(1 - confidence) / math.log1p(-away) - TOLERANCE) if away > 0 else math.inf


def _exact_comparisons(rule: GateRule, low: float, high: float) -> Iterator[str]:
    exact = f"one-sided exact {100 * (rule.confidence or 0):g} %"
    if rule.min is not None:
        shown, bound = aligned(low, rule.min, as_percent=True)
        yield f"{exact} lower bound {shown} {'>=' if is_enough(rule, low) else '<'} min {bound}"
    if rule.max is not None:
        shown, bound = aligned(high, rule.max, as_percent=True)
        yield f"{exact} upper bound {shown} {'<=' if is_within(rule, high) else '>'} max {bound}"
