"""What a run says of itself: why it is partial, what its targets were, and what it spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run, Shard


SPENT = "spent"
"""The setting with what the run spent: calls, tokens and cost."""
MERGED_FROM = "merged_from"
"""The setting with the ids of the runs that a run was merged from."""
_COUNTS = ("calls", "tokens", "uncounted")


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
    if not isinstance(spent, dict) or not spent.keys() >= {*_COUNTS, "cost", "currency"}:
        return None
    numbers = [value for name, value in spent.items() if name != "currency"]
    is_valid = isinstance(spent["currency"], str) and all(isinstance(each, int | float | None) for each in numbers)
    return spent if is_valid else None


def sum_spending(spent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what processes or runs spent; None for a count that none of them knows, and a cost that one lacks.

    Of several currencies there is no cost.
    """
    costs, currencies = [each["cost"] for each in spent], {each["currency"] for each in spent}
    total: dict[str, Any] = {}
    for name in _COUNTS:
        known = [each[name] for each in spent if each[name] is not None]
        total[name] = sum(known) if any(known) or len(known) == len(spent) else None
    total["cost"] = None if None in costs or len(currencies) > 1 else sum(costs)
    total["currency"] = currencies.pop() if len(currencies) == 1 else None
    for name in ("cached", "unmetered"):
        count = sum(each.get(name) or 0 for each in spent)
        total |= {name: count} if count else {}
    return total
