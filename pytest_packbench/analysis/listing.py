"""The cases that a page or a terminal lists: the first rows of each table and how many there are."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_packbench.model.result import Result


_Item = TypeVar("_Item")
# longer tables are not read by people
MAX_ROWS = 200
_MAX_NAMED = 3


class CaseRow(NamedTuple):
    """A case in a table, over all its trials.

    Attributes:
        case: its result.
        passed: how many of its trials passed.
        trials: how many trials it had.
    """

    case: Result
    passed: int
    trials: int


@dataclass(slots=True)
class TopRows(Generic[_Item]):
    """The first rows of a sorted table.

    Attributes:
        first: these rows, in order.
        count: how many rows the table has in all.
    """

    first: list[_Item] = field(default_factory=list)
    count: int = 0

    def add(
        self,
        row: _Item,
        key: Callable[[_Item], Any],
        max_rows: int = MAX_ROWS,
        stored_form: Callable[[_Item], _Item] = lambda row: row,
    ) -> None:
        """Count a row, and keep it if it is among the first; see `keep_first`."""
        self.count += 1
        keep_first(self.first, row, max_rows, key, stored_form)


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
        self.tables: defaultdict[str, TopRows[CaseRow]] = defaultdict(TopRows)
        self.repeated = False
        self.errors: dict[str, TopRows[CaseRow]] = {}

    def add(self, case: Result, passed: int, trials: int) -> None:
        """Add a case over all its trials, with how many of them passed and how many there are."""
        self.repeated = self.repeated or trials > 1
        row = CaseRow(case, passed, trials)
        is_broken = case.score.verdict in {"error", "vacuous"}
        names = (
            "quarantined" if case.score.quarantined else case.score.verdict,
            *["broken"] * is_broken,
            *["stale"] * case.attempt.stale,
        )
        for name in names:
            self.tables[name].add(row, _worst_first, self._max_rows, _without_record)
        key = (
            error_key(
                f"{case.score.kind or case.score.verdict} {case.score.message}", case.case.case_id, case.case.file
            )
            if is_broken
            else ""
        )
        # of so many different errors, the others are only counted in their table
        if is_broken and (key in self.errors or len(self.errors) < self._max_rows):
            self.errors.setdefault(key, TopRows()).add(row, _worst_first, _MAX_NAMED, _without_record)

    def error_groups(self, max_groups: int) -> list[TopRows[CaseRow]]:
        """Return the errors of most cases, each with its first cases and their number."""
        return sorted(self.errors.values(), key=lambda group: (-group.count, _worst_first(group.first[0])))[:max_groups]

    def first(self, name: str, max_rows: int) -> Sequence[CaseRow]:
        """Return the first rows of a table; none if the table is empty."""
        return self.tables[name].first[:max_rows] if name in self.tables else ()

    def count(self, name: str) -> int:
        """Return how many rows a table has."""
        return self.tables[name].count if name in self.tables else 0


def _without_record(row: CaseRow) -> CaseRow:
    # record and payload are most of a result's memory, and no page shows them
    case = row.case
    small = case.record is None and case.attempt.payload is None
    return row if small else row._replace(case=replace(case, record=None, attempt=replace(case.attempt, payload=None)))


def _worst_first(row: CaseRow) -> tuple[float, str, str]:
    case = row.case
    below = (case.score.score or 0.0) - (case.score.threshold or 0.0) if case.score.verdict == "failed" else 0.0
    return below, case.case.case_id, case.case.test_id


def error_key(text: str, case_id: str, file: str) -> str:
    """Return the text of an error without what names its case; it is the same for equal errors of several cases."""
    places = ((file, ""), (f"/{case_id}.json", "/"), (f"::{case_id}", "::"), (f"-k {case_id}", "-k"))
    for place, general in places:
        text = text.replace(place, general) if place else text
    return text


def name_some(names: Sequence[str], count: int) -> str:
    """Return the first names of a list in words, with how many more it has."""
    shown = ", ".join(names)
    return f"{shown} and {count - len(names)} more" if count > len(names) else shown


def keep_first(
    items: list[_Item],
    item: _Item,
    max_items: int,
    key: Callable[[_Item], Any],
    stored_form: Callable[[_Item], _Item] = lambda item: item,
) -> None:
    """Insert an item into a sorted list that keeps only its first items.

    Args:
        items: the list, sorted by `key`.
        item: the new item.
        max_items: how many items the list keeps.
        key: the sort key.
        stored_form: converts an item that is kept, for example to a smaller object with the same key.
    """
    if len(items) < max_items or key(item) < key(items[-1]):
        insort(items, stored_form(item), key=key)
        del items[max_items:]
