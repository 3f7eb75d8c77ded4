"""What is true of a run as a whole, and what it used: for its report and its journal, and read back from them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.run import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Shard


SPENT = "spent"
"""The setting that tells what the run used."""
_COUNTS = ("calls", "tokens", "uncounted")
_MONEY = frozenset({"cost", "currency"})
_FIELDS = {one.name for one in fields(Run)}
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("run_id", "suite", "description", "pack", "pack_version", "suite_sha256", "mode", "target"), str),
    **dict.fromkeys(("started_at", "finished_at", "partial"), str),
    **dict.fromkeys(("backend", "model"), str | None),
    **dict.fromkeys(("versions", "settings"), dict),
    "bundled": bool,
}


class RunFieldError(ValueError):
    """A field of a stored run is missing or of another type.

    Attributes:
        name: the field; empty where fields are missing.
        value: what stands there; for missing fields their names, as text.
    """

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value


def partial_reason(
    results: Iterable[CaseResult],
    caps: Collection[str],
    *,
    selected: int,
    due: int,
    present: int,
    shard: Shard | None = None,
) -> str:
    """Say why a run is not complete; empty where it is.

    Args:
        results: what it has so far.
        caps: the kinds of what a cap of the run stopped.
        selected: how many cases had to run.
        due: how many the whole suite, or the shard, has.
        present: how many the suite has.
        shard: which part of the suite was asked for; None for all of it.
    """
    idle = [result for result in results if result.verdict == "not_run" and not result.quarantined]
    missing = f"{selected} of {due} cases selected" if selected < due else ""
    if idle:
        capped = next((result.message for result in idle if result.kind in caps), "")
        cause = "interrupted" if any(result.kind == "interrupted" for result in idle) else capped or "stopped early"
        missing = f"{cause}: {len({result.nodeid for result in idle})} of {selected} cases did not run"
    if shard is None:
        return missing
    return f"shard {shard}: {missing or f'{due} of {present} cases'}"


def target_names(results: Iterable[CaseResult]) -> str:
    """Name the targets that records name, sorted, with commas; empty where there is no record."""
    records = (result.record for result in results if result.record is not None)
    names = {record.get("packbench", {}).get("target", "") for record in records}
    return join_sorted(name for name in names if name)


def join_sorted(names: Iterable[str]) -> str:
    """Join names, sorted, with commas."""
    return ", ".join(sorted(names))


def recorded_spending(run: Run) -> dict[str, Any] | None:
    """Give what a stored run used, where it tells it soundly."""
    spent = run.settings.get(SPENT)
    if not isinstance(spent, dict):
        return None
    counts = [spent.get(name) for name in _COUNTS] + [spent.get("cached", 0)]
    cost = spent.get("cost", "")
    is_cost = cost is None or (isinstance(cost, int | float) and not isinstance(cost, bool))
    sound = all(type(count) is int for count in counts) and is_cost and isinstance(spent.get("currency"), str)
    return spent if sound else None


def sum_process_spending(spent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what the processes of a run used: calls, tokens, and cost where every price is known."""
    costs = [one["cost"] for one in spent]
    total: dict[str, Any] = {name: sum(one[name] for one in spent) for name in _COUNTS}
    total["cost"] = None if any(cost is None for cost in costs) else sum(costs)
    total["currency"] = spent[0]["currency"]
    cached = sum(one.get("cached", 0) for one in spent)
    return {**total, "cached": cached} if cached else total


def sum_run_spending(spent: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up what runs used; a cost that one of them doesn't know, or in another currency, is not known.

    A count that one of them does not tell is 0 there: a run without kept answers has no count of them.
    """
    same = all(each.get("currency") == spent[0].get("currency") for each in spent)
    total: dict[str, Any] = {}
    for name in dict.fromkeys(name for each in spent for name in each):
        values = [each.get(name, None if name in _MONEY else 0) for each in spent]
        if all(isinstance(value, int | float) for value in values) and (same or name != "cost"):
            total[name] = sum(values)
        else:
            total[name] = values[0] if name == "currency" and same else None
    return total


def parse_run(found: Mapping[str, Any]) -> Run:
    """Make a run of what a file holds of it; keys that a later version added are left out.

    Raises:
        RunFieldError: a field is missing or of another type.
    """
    findings = found.get("findings", [])
    if not isinstance(findings, list) or not all(isinstance(line, str) for line in findings):
        raise RunFieldError("findings", findings)
    known = {name: value for name, value in found.items() if name in _FIELDS}
    try:
        run = Run(**{**known, "findings": tuple(findings)})
    except TypeError as error:
        raise RunFieldError("", str(error)) from None
    for name, kind in _TYPES.items():
        value = getattr(run, name)
        if not isinstance(value, kind):
            raise RunFieldError(name, value)
    for name, value in run.versions.items():
        if not isinstance(value, str):
            raise RunFieldError(f"versions/{name}", value)
    return run
