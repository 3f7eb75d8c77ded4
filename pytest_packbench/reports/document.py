"""Figures as one JSON object: a run's, for `report.json` under the key `packbench` (design 5), and an overview's."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.conclusion import judge
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.runs.lines import finite_json

if TYPE_CHECKING:
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.analysis.overview import Overview

OVERVIEW_VERSION = 1
_INTERVAL = {"method": "wilson", "sides": 2, "confidence": CONFIDENCE}


def run_document(told: Conclusion) -> dict[str, Any]:
    """Put what a run came to into plain JSON.

    Returns:
        An object of the version `RUN_DOCUMENT_VERSION` that shares nothing with the argument, with the keys
        `version`, `status` (`passed`, `failed`, `partial`), `complete`, `run`, `totals`, `overall`, `groups`, `depth`,
        `refusals`, `authored`, `models`, `cached`, `interval` (how those of the groups are made), `gates`, where cases
        have several trials `trials`, and `cases`, which is empty: whoever writes the report puts the rows of the
        results there. Units are those of the classes it is made from.
        Where a number is not finite, it says null.
    """
    run, statistics = told.run, told.statistics
    document: dict[str, Any] = finite_json(
        {
            "version": RUN_DOCUMENT_VERSION,
            "status": judge(told).status,
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
            "interval": _INTERVAL,
            # what is absent stands in the text
            "gates": [{name: value for name, value in asdict(gate).items() if name != "absent"} for gate in told.gates],
            **_trials(told),
            "cases": [],
        }
    )
    return document


def overview_document(found: Overview) -> dict[str, Any]:
    """Put an overview into plain JSON.

    Returns:
        An object of the version `OVERVIEW_VERSION` with the fields of `Overview`, and `passed`, `records`, `cases`, and
        `interval` (how intervals are made). Units are those of the classes.
    """
    return {
        "version": OVERVIEW_VERSION,
        "passed": found.passed,
        "records": found.records,
        "cases": found.cases,
        "interval": _INTERVAL,
        **asdict(found),
    }


def _trials(told: Conclusion) -> dict[str, Any]:
    if told.statistics.trials is None:
        return {}
    return {"trials": {**asdict(told.statistics.trials), "temperature": told.run.settings.get("temperature")}}
