"""Metadata of a run, its spending, and reading both back from a report or a journal."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.run import SUITE_NAME, Run
from pytest_packbench.model.strict_json import has_surrogate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Shard


SPENT = "spent"
"""The setting with what the run spent: calls, tokens and cost."""
_COUNTS = ("calls", "tokens", "uncounted")
_MONEY = frozenset({"cost", "currency"})
_FIELDS = {each.name for each in fields(Run)}
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("run_id", "suite", "description", "pack", "pack_version", "suite_sha256", "mode", "target"), str),
    **dict.fromkeys(("started_at", "finished_at", "partial"), str),
    **dict.fromkeys(("backend", "model"), str | None),
    **dict.fromkeys(("versions", "settings"), dict),
    "bundled": bool,
}


class RunFieldError(ValueError):
    """A field of a stored run is missing or has the wrong type.

    Attributes:
        name: the field; empty if fields are missing.
        value: its value; for missing fields Python's message with their names.
        expected: what was expected, for the end of a line; empty where the field says it.
    """

    def __init__(self, name: str, value: Any, expected: str = "") -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value
        self.expected = expected


def partial_reason(
    results: Iterable[Result],
    caps: Collection[str],
    *,
    selected: int,
    due: int,
    present: int,
    shard: Shard | None = None,
) -> str:
    """Describe why a run is not complete; empty if it is complete.

    Args:
        results: its results so far.
        caps: the kinds of results that a cap of the run stopped.
        selected: number of selected cases.
        due: number of cases in the suite, or in the shard.
        present: number of cases in the suite.
        shard: the requested part of the suite; None for all of it.
    """
    not_run = [result for result in results if result.score.verdict == "not_run" and not result.score.quarantined]
    missing = f"{selected} of {due} cases selected" if selected < due else ""
    if not_run:
        capped = next((result.score.message for result in not_run if result.score.kind in caps), "")
        cause = (
            "interrupted"
            if any(result.score.kind == "interrupted" for result in not_run)
            else capped or "stopped early"
        )
        missing = f"{cause}: {len({result.case.nodeid for result in not_run})} of {selected} cases did not run"
    if shard is None:
        return missing
    return f"shard {shard}: {missing or f'{due} of {present} cases'}"


def target_names(results: Iterable[Result]) -> str:
    """Return the targets that the records name, sorted and joined with commas; empty without a record."""
    records = (result.record for result in results if result.record is not None)
    names = {record.get("packbench", {}).get("target", "") for record in records}
    return join_sorted(name for name in names if name)


def join_sorted(names: Iterable[str]) -> str:
    """Sort names and join them with commas."""
    return ", ".join(sorted(names))


def recorded_spending(run: Run) -> dict[str, Any] | None:
    """Return what a stored run spent; None if it is missing or malformed."""
    spent = run.settings.get(SPENT)
    if not isinstance(spent, dict):
        return None
    counts = [spent.get(name, "") for name in _COUNTS] + [spent.get("cached", 0), spent.get("unmetered", 0)]
    cost = spent.get("cost", "")
    is_cost = cost is None or (isinstance(cost, int | float) and not isinstance(cost, bool))
    is_valid = (
        all(count is None or type(count) is int for count in counts)
        and is_cost
        and isinstance(spent.get("currency"), str)
    )
    return spent if is_valid else None


def sum_process_spending(spent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what the processes of a run spent; None for a count that none of them knows, and a cost that one lacks."""
    costs = [process["cost"] for process in spent]
    total: dict[str, Any] = {}
    for name in _COUNTS:
        known = [process[name] for process in spent if process[name] is not None]
        total[name] = sum(known) if any(known) or len(known) == len(spent) else None
    total["cost"] = None if any(cost is None for cost in costs) else sum(costs)
    total["currency"] = spent[0]["currency"]
    for name in ("cached", "unmetered"):
        count = sum(process.get(name, 0) for process in spent)
        total |= {name: count} if count else {}
    return total


def sum_run_spending(spent: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up what several runs spent; the cost is None if one of them does not know it or uses another currency.

    A missing count is 0: a run without cached answers does not store their number.
    """
    same_currency = all(each.get("currency") == spent[0].get("currency") for each in spent)
    total: dict[str, Any] = {}
    for name in dict.fromkeys(name for each in spent for name in each):
        values = [each.get(name, None if name in _MONEY else 0) for each in spent]
        if all(isinstance(value, int | float) for value in values) and (same_currency or name != "cost"):
            total[name] = sum(values)
        else:
            total[name] = values[0] if name == "currency" and same_currency else None
    return total


def missing_fields(error: TypeError) -> str:
    """Return the names from Python's message about missing arguments: `missing: 'run_id' and 'suite'`."""
    return f"missing: {str(error).rpartition(': ')[2]}" if "missing" in str(error) else str(error)


def parse_run(stored: Mapping[str, Any]) -> Run:
    """Parse the metadata of a run; keys that a later version added are ignored.

    Raises:
        RunFieldError: a field is missing or has the wrong type.
    """
    findings = stored.get("findings", [])
    if not isinstance(findings, list) or not all(isinstance(line, str) for line in findings):
        raise RunFieldError("findings", findings)
    known = {name: value for name, value in stored.items() if name in _FIELDS}
    try:
        run = Run(**{**known, "findings": tuple(findings)})
    except TypeError as error:
        raise RunFieldError("", missing_fields(error)) from None
    for name, kind in _TYPES.items():
        value = getattr(run, name)
        if not isinstance(value, kind) or (isinstance(value, str) and has_surrogate(value)):
            raise RunFieldError(name, value)
    if not re.fullmatch(SUITE_NAME, run.suite):
        raise RunFieldError("suite", run.suite, ", expected a name, no path")
    for name, value in run.versions.items():
        if not isinstance(value, str):
            raise RunFieldError(f"versions/{name}", value)
    return run
