"""The run as one JSON object, for `report.json` under the key `packbench` (design 5)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.conclusion import judge
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.runs.lines import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.analysis.statistics import Statistics
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run


def run_document(
    run: Run, entries: Iterable[CaseResult], statistics: Statistics, gate_results: Sequence[GateResult]
) -> dict[str, Any]:
    """Put a run into plain JSON.

    Args:
        run: what is true of all entries.
        entries: one for each selected case.
        statistics: the numbers of these entries.
        gate_results: how the gates decided on them.

    Returns:
        An object of the version `RUN_DOCUMENT_VERSION` that shares nothing with the arguments, with the keys
        `version`, `status` (`passed`, `failed`, `partial`), `complete`, `run`, `totals`, `overall`, `groups`, `depth`,
        `refusals`, `authored`, `models`, `cached`, `interval` (how those of the groups are made), `gates`, where cases
        have several trials `trials`, and `cases` by case id, one for each trial, each with all that its entry has but
        record and payload. Units are those of the classes it is made from.
        Where a number is not finite, it says null.
    """
    document: dict[str, Any] = plain(
        {
            "version": RUN_DOCUMENT_VERSION,
            "status": judge(run, statistics, gate_results).status,
            "complete": not run.partial,
            "run": asdict(run),
            "totals": asdict(statistics.totals),
            "overall": asdict(statistics.overall),
            "groups": [asdict(group) for group in statistics.groups],
            "depth": [asdict(depth) for depth in statistics.depth],
            "refusals": asdict(statistics.refusals),
            "authored": statistics.authored,
            "models": statistics.models,
            "cached": statistics.cached,
            "interval": {"method": "wilson", "sides": 2, "confidence": statistics.confidence},
            "gates": [_gate(result) for result in gate_results],
            **_trials(run, statistics),
            "cases": [entry.row() for entry in sorted(entries, key=_place)],
        }
    )
    return document


def _gate(result: GateResult) -> dict[str, Any]:
    # what is absent stands in the text
    return {name: value for name, value in asdict(result).items() if name != "absent"}


def _trials(run: Run, statistics: Statistics) -> dict[str, Any]:
    if statistics.trials is None:
        return {}
    return {"trials": {**asdict(statistics.trials), "temperature": run.settings.get("temperature")}}


def _place(entry: CaseResult) -> tuple[str, str, int]:
    return entry.case_id, entry.test_id, entry.trial
