"""The cases that a page or a terminal lists: the first rows of each table and how many there are."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_packbench.model.result import Result
    from pytest_packbench.model.score import Score


_Item = TypeVar("_Item")
# longer tables are not read by people
MAX_ROWS = 200
_MAX_NAMED = 3


@dataclass(slots=True)
class TopRows(Generic[_Item]):
    """The first rows of a sorted table.

    Attributes:
        key: what the rows are sorted by.
        max_rows: how many rows are kept, 1 or more; the others are only counted.
        kept: what is kept of a row, with the same key.
        first: these rows, in order.
        count: how many rows the table has in all.
    """

    key: Callable[[_Item], Any]
    max_rows: int = MAX_ROWS
    kept: Callable[[_Item], _Item] = lambda row: row
    first: list[_Item] = field(default_factory=list)
    count: int = 0

    def add(self, row: _Item) -> None:
        """Count a row, and keep it if it is among the first."""
        self.count += 1
        first, key = self.first, self.key
        if len(first) < self.max_rows or key(row) < key(first[-1]):
            insort(first, self.kept(row), key=key)
            del first[self.max_rows :]


class Listing:
    """Sort the cases of a run into tables, one case at a time, and keep the first rows of each.

    Rows are sorted by how far a failed case is below its threshold, the worst first, then by case id.

    Args:
        max_rows: how many rows of a table are kept, 1 or more; the others are only counted.

    Attributes:
        tables: one for each verdict, `quarantined` for cases of any verdict, and beside these `stale`, and `broken` for
            `error` and `vacuous` together; there is no table without rows.
        repeated: whether any case has several trials.
        errors: the cases of `broken` by their error, equal ones together; each with the first cases.
    """

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self.tables: dict[str, TopRows[Result]] = defaultdict(lambda: TopRows(_worst_first, max_rows, without_record))
        self.repeated = False
        self.errors: dict[str, TopRows[Result]] = {}

    def add(self, case: Result) -> None:
        """Add a case over all its trials."""
        score = case.score
        self.repeated = self.repeated or case.trials[1] > 1
        names = ["quarantined" if score.quarantined else score.verdict, *["stale"] * case.attempt.stale]
        if score.verdict in {"error", "vacuous"}:
            names.append("broken")
            error = error_key(f"{score.kind or score.verdict} {score.message}", case.case.case_id, case.case.file)
            # of so many different errors, the others are only counted in their table
            if error in self.errors or len(self.errors) < self._max_rows:
                self.errors.setdefault(error, TopRows(_worst_first, _MAX_NAMED, without_record)).add(case)
        for name in names:
            self.tables[name].add(case)

    def error_groups(self, max_groups: int) -> list[TopRows[Result]]:
        """Return the errors of most cases, each with its first cases and their number."""
        return sorted(self.errors.values(), key=lambda group: (-group.count, _worst_first(group.first[0])))[:max_groups]

    def first(self, name: str, max_rows: int) -> Sequence[Result]:
        """Return the first rows of a table; none if the table is empty."""
        return self.tables[name].first[:max_rows]

    def count(self, name: str) -> int:
        """Return how many rows a table has."""
        return self.tables[name].count


def without_record(case: Result) -> Result:
    """Return a result without record and payload, which are most of its memory, and which no page of cases shows."""
    if case.record is None and case.attempt.payload is None:
        return case
    return replace(case, record=None, attempt=replace(case.attempt, payload=None))


def _worst_first(case: Result) -> tuple[float, str, str]:
    below = how_far_below(case.score) if case.score.verdict == "failed" else 0.0
    return below, case.case.case_id, case.case.test_id


def how_far_below(score: Score) -> float:
    """Return how far a score is from its threshold, negative if it is below; what is missing counts as 0."""
    return (score.score or 0.0) - (score.threshold or 0.0)


def error_key(text: str, case_id: str, file: str) -> str:
    """Return the text of an error without what names its case; it is the same for equal errors of several cases."""
    places = ((file, ""), (f"/{case_id}.json", "/"), (f"::{case_id}", "::"), (f"-k {case_id}", "-k"))
    for place, general in places:
        text = text.replace(place, general) if place else text
    return text


def name_some(names: Sequence[str], count: int = 0, *, limit: int = _MAX_NAMED) -> str:
    """Return the first names of a list in words, with how many more there are: of `count` in all, if more."""
    shown, hidden = ", ".join(names[:limit]), max(count, len(names)) - limit
    return f"{shown} and {hidden} more" if hidden > 0 else shown
