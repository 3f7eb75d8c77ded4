"""Two runs side by side: what improved, what got worse, what can't be compared, and whether it is chance."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pytest_packbench.reports.figures import TOLERANCE
from pytest_packbench.reports.paired import PairedMean, mcnemar, paired_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.stored import StoredRun

# the original's mark for a change that counts, in points of score
THRESHOLD = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One case in both runs.

    Attributes:
        test_id: the case.
        before: its verdict in the baseline.
        after: its verdict now.
        score_before: the mean over its trials; None where none was scored.
        score_after: the same, now.
        hash_changed: whether the case itself is another one now.
        reasons: terms that came, went or changed, in words.
    """

    test_id: str
    before: str
    after: str
    score_before: float | None
    score_after: float | None
    hash_changed: bool
    reasons: tuple[str, ...] = ()

    @property
    def delta(self) -> float | None:
        """Score now minus score before; None where one of them is missing."""
        if self.score_before is None or self.score_after is None:
            return None
        return self.score_after - self.score_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs compared.

    Attributes:
        baseline: the run compared with.
        current: the run that is judged.
        differences: settings in which the runs differ, in words; not empty only when comparing was forced.
        changes: every case of both runs, by test id.
        added: cases that only the current run has.
        removed: cases that only the baseline has.
        mean: the paired mean difference of scores over comparable cases.
        lost: comparable cases that passed before and fail now.
        won: comparable cases that failed before and pass now.
        p_flips: McNemar's exact p value of these flips.
    """

    baseline: StoredRun
    current: StoredRun
    differences: tuple[str, ...]
    changes: tuple[Change, ...]
    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]
    mean: PairedMean | None
    lost: int
    won: int
    p_flips: float
    threshold: float = field(default=THRESHOLD)

    def of(self, kind: str) -> tuple[Change, ...]:
        """Give the changes of a kind, worst first; kinds as in `counts`."""
        return tuple(sorted((one for one in self.changes if _is(one, kind, self.threshold)), key=_worst_first))

    def counts(self) -> dict[str, float]:
        """Give the figures that a condition may name: counts of cases, and `mean` in points of score.

        `mean` is not a number where no case has a score in both runs.
        """
        kinds = {kind: float(sum(_is(one, kind, self.threshold) for one in self.changes)) for kind in KINDS}
        mean = self.mean.mean if self.mean is not None else math.nan
        return {**kinds, "added": float(len(self.added)), "removed": float(len(self.removed)), "mean": mean}


def _improved(change: Change, threshold: float) -> bool:
    return change.delta is not None and change.delta >= threshold - TOLERANCE


def _regressed(change: Change, threshold: float) -> bool:
    return change.delta is not None and change.delta <= TOLERANCE - threshold


# a case that broke is no better than one that failed
_BAD = ("failed", "error", "vacuous", "not_run")
_KINDS: dict[str, Callable[[Change, float], bool]] = {
    "improved": _improved,
    "regressed": _regressed,
    "new_failures": lambda change, _: change.after in _BAD and change.before not in _BAD,
    "fixed": lambda change, _: change.after == "passed" and change.before in _BAD,
    "verdict_changed": lambda change, _: change.before != change.after,
    "hash_changed": lambda change, _: change.hash_changed,
}
KINDS = tuple(_KINDS)


def _is(change: Change, kind: str, threshold: float) -> bool:
    # a changed case is another case: nothing else is said of it
    return change.hash_changed is (kind == "hash_changed") and _KINDS[kind](change, threshold)


def _worst_first(change: Change) -> tuple[float, str]:
    return (change.delta if change.delta is not None else -2.0, change.test_id)


def differences(baseline: StoredRun, current: StoredRun) -> tuple[str, ...]:
    """Say in what two runs differ that makes their scores different things: suite, mode, rules."""
    named = {
        "suite": (baseline.run.suite, current.run.suite),
        "mode": (baseline.run.mode, current.run.mode),
        "pack": (
            f"{baseline.run.pack} {baseline.run.pack_version}",
            f"{current.run.pack} {current.run.pack_version}",
        ),
        "scoring rules": (baseline.run.suite_sha256[:12], current.run.suite_sha256[:12]),
    }
    return tuple(
        f"{name}: {before!r} before, {after!r} now" for name, (before, after) in named.items() if before != after
    )


def compare(baseline: StoredRun, current: StoredRun, *, threshold: float = THRESHOLD) -> Comparison:
    """Compare two runs case by case (spec, "Comparing runs").

    Cases whose hash changed are listed and left out of the paired statistics; trials of a case are averaged.

    Args:
        baseline: the run to compare with.
        current: the run that is judged.
        threshold: the change of score that makes a case improved or regressed, 0 to 1.
    """
    before, after = _by_case(baseline.entries), _by_case(current.entries)
    changes = tuple(_change(name, before[name], after[name]) for name in sorted(before.keys() & after.keys()))
    comparable = [one for one in changes if not one.hash_changed]
    flips = [(one.before, one.after) for one in comparable]
    lost, won = flips.count(("passed", "failed")), flips.count(("failed", "passed"))
    return Comparison(
        baseline=baseline,
        current=current,
        differences=differences(baseline, current),
        changes=changes,
        added=tuple(after[name][0] for name in sorted(after.keys() - before.keys())),
        removed=tuple(before[name][0] for name in sorted(before.keys() - after.keys())),
        mean=paired_mean([one.delta for one in comparable if one.delta is not None]),
        lost=lost,
        won=won,
        p_flips=mcnemar(lost, won),
        threshold=threshold,
    )


def _by_case(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.test_id, []).append(entry)
    return found


def _change(test_id: str, before: list[Entry], after: list[Entry]) -> Change:
    old, new = before[0], after[0]
    known = old.case_sha256 is not None and new.case_sha256 is not None
    return Change(
        test_id=test_id,
        before=_verdict(before),
        after=_verdict(after),
        score_before=_mean_score(before),
        score_after=_mean_score(after),
        hash_changed=known and old.case_sha256 != new.case_sha256,
        reasons=tuple(_reasons(old.terms, new.terms)),
    )


def _verdict(trials: list[Entry]) -> str:
    verdicts = {entry.verdict for entry in trials}
    # a case of several attempts passed when all did, as long as nothing says otherwise
    return trials[0].verdict if len(verdicts) == 1 else next(one for one in _WORST if one in verdicts)


_WORST = ("error", "vacuous", "not_run", "failed", "known_hole", "passed")


def _mean_score(trials: list[Entry]) -> float | None:
    scores = [entry.score for entry in trials if entry.score is not None and not entry.quarantined]
    return fmean(scores) if scores else None


def _reasons(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    old, new = ({str(term["name"]): term for term in terms} for terms in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{name} went ({_points(old[name])})"
        elif name not in old:
            yield f"{name} came ({_points(new[name])})"
        elif _points(old[name]) != _points(new[name]):
            yield f"{name} {_points(old[name])} to {_points(new[name])}"


def _points(term: Mapping[str, Any]) -> str:
    if term["effect"] == "zero":
        return "=0"
    return f"{term['value']:+.2f}" if term["effect"] in {"add", "clamp"} else "note"
