"""The conclusion of a run as JSON, under the key `packbench` of `report.json`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.conclusion import run_verdict
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.model.metric import Figure
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.runs.lines import finite_json

if TYPE_CHECKING:
    from pytest_packbench.analysis.conclusion import Conclusion

# what the text of a gate says as well
_NOT_STORED = frozenset({"absent", "counted", "interval"})
_INTERVAL = {"method": "wilson", "sides": 2, "confidence": CONFIDENCE}


def run_document(conclusion: Conclusion) -> dict[str, Any]:
    """Return the conclusion of a run as plain JSON.

    Returns:
        An object of version `RUN_DOCUMENT_VERSION` with the keys `version`, `status` (`passed`, `failed`, `partial`),
        `complete`, `run`, `totals`, `overall`, `groups`, `depth`, `refusals`, `exposure` if a case was vacuous,
        `authored`, `models`, `cached`, `interval` (how the intervals of the groups are computed), `figures` if the pack
        gives any, `gates`, `comparison` if a baseline was requested, `policy` (the acceptance policy) where it is
        known, `policy_changes` if a base for it was requested, `controls` if the run has any, `trials` if cases have
        several trials, and `cases`, which is empty: the writer of the report adds the rows of the results. Units are
        those of the classes. Numbers that are not finite are null. The object shares nothing with the argument.
    """
    run, statistics = conclusion.run, conclusion.statistics
    document: dict[str, Any] = finite_json(
        {
            "version": RUN_DOCUMENT_VERSION,
            "status": run_verdict(conclusion).status,
            "complete": not run.partial,
            "run": _plain(run),
            "totals": _plain(statistics.totals),
            "overall": _plain(statistics.overall),
            "groups": [_plain(group) for group in statistics.groups],
            "depth": [_plain(depth) for depth in statistics.depth],
            "refusals": _plain(statistics.refusals),
            **({} if statistics.exposure is None else {"exposure": _plain(statistics.exposure)}),
            "authored": statistics.authored,
            "models": statistics.models,
            "cached": statistics.cached,
            "interval": _INTERVAL,
            **({"figures": [figure.as_json() for figure in conclusion.all_figures]} if conclusion.all_figures else {}),
            "gates": [
                {name: value for name, value in _plain(gate).items() if name not in _NOT_STORED}
                for gate in conclusion.gates
            ],
            **_comparison(conclusion),
            **_policy(conclusion),
            **({} if conclusion.controls is None else {"controls": conclusion.controls.as_json()}),
            **_trials(conclusion),
            "cases": [],
        }
    )
    return document


def _comparison(conclusion: Conclusion) -> dict[str, Any]:
    outcome = conclusion.baseline
    if outcome is None:
        return {}
    compared = outcome.compared
    met = outcome.met
    return {
        "comparison": {
            "requested": outcome.requested,
            "baseline": None if outcome.comparison is None else outcome.comparison.baseline.run_id,
            "problem": outcome.problem,
            "optional": outcome.optional,
            "warning": outcome.warning,
            "figures": {} if compared is None else compared.figures(),
            "mean": None if compared is None else _plain(compared.mean),
            "conditions": [{"condition": str(each), "met": each in met} for each in outcome.conditions],
            "failed": bool(outcome.failures),
        }
    }


def _policy(conclusion: Conclusion) -> dict[str, Any]:
    outcome = conclusion.policy
    stored = {} if conclusion.stored_policy is None else {"policy": conclusion.stored_policy}
    if outcome is None:
        return stored
    return {
        **stored,
        "policy_changes": {
            "base": outcome.base,
            "failed": outcome.failed,
            "changes": [{**change._asdict(), "allowed": bool(change.reason)} for change in outcome.changes],
            "problems": list(outcome.problems),
            "notes": list(outcome.notes),
        },
    }


def _trials(conclusion: Conclusion) -> dict[str, Any]:
    trials = conclusion.statistics.trials
    if trials is None:
        return {}
    return {"trials": {**_plain(trials), "temperature": conclusion.run.settings.get("temperature")}}


def _plain(record: Any) -> Any:
    """Return a dataclass or a named tuple as an object, and all in it; other values are copied."""
    if isinstance(record, Figure):
        return record.as_json()
    if is_dataclass(record):
        return {each.name: _plain(getattr(record, each.name)) for each in fields(record)}
    if isinstance(record, tuple) and hasattr(record, "_asdict"):
        return {name: _plain(value) for name, value in record._asdict().items()}
    if isinstance(record, list | tuple):
        return type(record)(map(_plain, record))
    if isinstance(record, dict):
        return {name: _plain(value) for name, value in record.items()}
    return record
