"""The conclusion of a run as JSON, under the key `packbench` of `report.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.conclusion import run_verdict
from pytest_packbench.analysis.intervals import WILSON
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.model.strict_json import finite_json

if TYPE_CHECKING:
    from pytest_packbench.analysis.changes import BaselineOutcome
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.model.policy import PolicyOutcome

_STATISTICS = ("totals", "overall", "groups", "depth", "refusals", "exposure", "authored", "models", "cached")


def run_document(conclusion: Conclusion, rerun: str = "") -> dict[str, Any]:
    """Return the conclusion of a run as plain JSON.

    Args:
        conclusion: what it came to.
        rerun: the options of pytest that make the same run, quoted for a shell.

    Returns:
        An object of version `RUN_DOCUMENT_VERSION` with the keys `version`, `status` (`passed`, `failed`, `partial`),
        `complete`, `run`, `totals`, `overall`, `groups`, `depth`, `refusals`, `exposure` if a case was vacuous,
        `authored`, `models`, `cached`, `interval` (how the intervals of the groups are computed), `figures` if the pack
        gives any, `gates`, `rerun` if there are options, `comparison` if a baseline was requested, `policy` (the
        acceptance policy) where it is known, `policy_changes` if a base for it was requested, `controls` if the run has
        any, `trials` if cases have several trials, and `cases`, which is empty: the writer of the report adds the rows
        of the results. Units are those of the classes. Numbers that are not finite are null. The object shares nothing
        with the argument.
    """
    run, statistics, trials = conclusion.run, conclusion.statistics, conclusion.statistics.trials
    document = {
        "version": RUN_DOCUMENT_VERSION,
        "status": run_verdict(conclusion).status,
        "complete": not run.partial,
        "run": run,
        **{name: getattr(statistics, name) for name in _STATISTICS},
        "interval": WILSON,
        "figures": [figure.as_json() for figure in conclusion.all_figures] or None,
        "gates": conclusion.gates,
        "rerun": rerun or None,
        "comparison": conclusion.baseline and _comparison(conclusion.baseline),
        "policy": conclusion.stored_policy,
        "policy_changes": conclusion.policy and _policy_changes(conclusion.policy),
        "controls": conclusion.controls and conclusion.controls.counts,
        "trials": trials and {**trials._asdict(), "temperature": run.settings.get("temperature")},
        "cases": [],
    }
    return {name: finite_json(value) for name, value in document.items() if value is not None}


def _comparison(outcome: BaselineOutcome) -> dict[str, Any]:
    comparison, compared, met = outcome.comparison, outcome.compared, outcome.met
    return {
        "requested": outcome.requested,
        "baseline": comparison and comparison.baseline.run_id,
        "problem": outcome.problem,
        "optional": outcome.optional,
        "warning": outcome.warning,
        "figures": {} if compared is None else compared.figures(),
        "mean": compared and compared.mean,
        "conditions": [{"condition": str(each), "met": each in met} for each in outcome.conditions],
        "failed": bool(outcome.failures),
    }


def _policy_changes(outcome: PolicyOutcome) -> dict[str, Any]:
    return {
        "base": outcome.base,
        "failed": outcome.failed,
        "changes": [{**change._asdict(), "allowed": bool(change.reason)} for change in outcome.changes],
        "problems": outcome.problems,
        "notes": outcome.notes,
    }
