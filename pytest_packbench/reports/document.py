"""The run as one JSON object, for `report.json` under the key `packbench` (design 5)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.conclusion import judge
from pytest_packbench.atomic import encoded, replacing
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.runs.files import compact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.analysis.statistics import Statistics
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run

_SCALARS = (str, int)


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
    document: dict[str, Any] = _plain(
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


def row_line(entry: CaseResult) -> bytes:
    """Write the row of one entry under `cases` as compact JSON; a number that is not finite as null."""
    row = entry.row()
    try:
        return compact(row)
    except ValueError:
        return compact(_plain(row))


def write_report(path: Path, report: Mapping[str, Any], document: dict[str, Any], rows: Iterable[bytes]) -> None:
    """Write `report.json`, row by row: those of a large run are never held as text.

    Args:
        path: the file; its folder exists.
        report: what other keys the file holds.
        document: what `run_document` gives for no entry.
        rows: what `row_line` gives for each, in order.

    Raises:
        OSError: it can't be written; an older file is untouched.
        ValueError: the document has rows already.
    """
    if list(document)[-1] != "cases" or document["cases"]:
        raise ValueError("the rows of a run document stand last, and come one by one")
    # last, whatever somebody's hook put there
    whole = {**{key: value for key, value in report.items() if key != "packbench"}, "packbench": document}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), default=str)
    at = len(text) - len("]}}")
    with replacing(path) as file:
        file.write(encoded(text[:at]))
        for number, row in enumerate(rows):
            file.write(b"," + row if number else row)
        file.write(encoded(text[at:]) + b"\n")


def _gate(result: GateResult) -> dict[str, Any]:
    # what is absent stands in the text
    return {name: value for name, value in asdict(result).items() if name != "absent"}


def _trials(run: Run, statistics: Statistics) -> dict[str, Any]:
    if statistics.trials is None:
        return {}
    return {"trials": {**asdict(statistics.trials), "temperature": run.settings.get("temperature")}}


def _place(entry: CaseResult) -> tuple[str, str, int]:
    return entry.case_id, entry.test_id, entry.trial


def _plain(value: Any) -> Any:
    # most values are scalars, and there are many
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
