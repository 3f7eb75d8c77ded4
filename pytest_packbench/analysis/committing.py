"""What a run contributes to a committed baseline, and in what it is looser than the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.comparison import ComparedCase, ComparedRun, differences
from pytest_packbench.analysis.formatting import format_mean
from pytest_packbench.model.baseline import BASELINE_VERSION, CommittedBaseline
from pytest_packbench.model.result import models_of
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.score import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.model.baseline import BaselineChange
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.stored import StoredRun


def committed_baseline(run: Run, results: Iterable[CaseResult], history: Iterable[BaselineChange]) -> CommittedBaseline:
    """Return a run as a committed baseline.

    Args:
        run: what is true of all results.
        results: one for each attempt, in any order.
        history: the entries of its history, the oldest first.

    Raises:
        TrialsRuleError: the settings of the run contain an invalid trials rule.
    """
    results = tuple(results)
    compared = ComparedRun(run).add_all(results)
    about = {
        **{name: getattr(run, name) for name in ("run_id", "pack", "pack_version", "suite_sha256", "mode", "target")},
        "suite": run.suite.removeprefix(BUNDLED),
        "finished_at": run.finished_at,
        "models": models_of(results),
        "authored": compared.authored,
    }
    if run.settings.get("trials", 1) > 1:
        about |= {name: run.settings[name] for name in ("trials", "trials_rule") if name in run.settings}
    return CommittedBaseline.model_validate(
        {
            "baseline_version": BASELINE_VERSION,
            "run": about,
            "history": [change.model_dump() for change in history],
            "cases": {test_id: _case(case) for test_id, case in compared.cases.items()},
        }
    )


def _case(case: ComparedCase) -> dict[str, Any]:
    several = {"trials": case.trials, "passed": case.passed} if case.trials > 1 else {}
    optional = {name: value for name, value in (("kind", case.kind), ("judge", case.judge)) if value}
    return {"sha256": case.case_sha256, "score": case.score, "verdict": case.verdict, **optional, **several}


def loosened(before: StoredRun, after: StoredRun) -> Iterator[str]:
    """Describe in what a baseline is looser than the one before, a line each.

    Args:
        before: the baseline so far.
        after: the run of the next one.

    Raises:
        TrialsRuleError: the settings of a run contain an invalid trials rule.
    """
    yield from differences(before.run, after.run)
    old, new = (ComparedRun(stored.run).read(stored).cases for stored in (before, after))
    for test_id in sorted(old):
        yield from _loosened_case(old[test_id], new)


def _loosened_case(before: ComparedCase, cases: Mapping[str, ComparedCase]) -> Iterator[str]:
    after = cases.get(before.test_id)
    if after is None:
        yield f"{before.test_id}: removed ({before.verdict})"
        return
    reasons = []
    if before.counted and not after.counted:
        reasons.append(f"{before.verdict} before, {after.kind or after.verdict} now")
    elif before.verdict == "passed" and after.verdict != "passed":
        reasons.append(f"passed before, {after.verdict} now")
    if None not in (before.score, after.score) and (after.score or 0.0) < (before.score or 0.0) - TOLERANCE:
        reasons.append(f"score {format_mean(before.score)} before, {format_mean(after.score)} now")
    if before.case_sha256 != after.case_sha256:
        reasons.append("the case was edited")
    if reasons:
        yield f"{before.test_id}: {'; '.join(reasons)}"
