"""The cases that a page or a terminal shows: the first of each table, and how many there are. No run is held whole."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

from pytest_packbench.analysis.trials import MEAN, cases_of, folded_case, passed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_packbench.analysis.trials import Rule
    from pytest_packbench.model.result import CaseResult

    Order = Literal["id", "worst", "test", "given"]


_Item = TypeVar("_Item")
# a page of more rows is read by nobody
MOST_ROWS = 200


class Row(NamedTuple):
    """A case in a table, over all its trials: how many of them passed, and how many there are."""

    case: CaseResult
    passed: int
    trials: int


@dataclass(slots=True)
class Table:
    """The first rows of a table.

    Attributes:
        first: these rows, in order.
        count: how many rows it has in all.
    """

    first: list[Row] = field(default_factory=list)
    count: int = 0


class Listing:
    """Sorts the cases of a run into tables, one by one, and keeps the first of each.

    Args:
        order: of the rows: by case id, by how badly a case did, by test id and file, or as they are given.
        most: how many rows of a table are kept, 1 or more; of all others a table knows the number.

    Attributes:
        tables: `all`, `failed`, `stale`, `quarantined`, a table for each other verdict, and `broken`, which has those
            of `error` and `vacuous`; a table without a row is not among them.
        repeated: whether any case has several trials.
    """

    def __init__(self, order: Order = "id", most: int = MOST_ROWS) -> None:
        self.tables: defaultdict[str, Table] = defaultdict(Table)
        self.repeated = False
        self._key = _ORDERS[order]
        self._most = most

    def add(self, case: CaseResult, passed: int, trials: int) -> None:
        """Take a case, over all its trials, with how many of them passed and how many there are."""
        self.repeated = self.repeated or trials > 1
        row = Row(case, passed, trials)
        for name in _tables(case):
            self._put(self.tables[name], row)

    def take(self, entries: Iterable[CaseResult], rule: Rule = MEAN) -> Self:
        """Take the entries of a run that is at hand, one for each case or for each trial of it."""
        for trials in cases_of(entries):
            self.add(folded_case(trials, rule), passed_of(trials), len(trials))
        return self

    def first(self, name: str, most: int) -> Sequence[Row]:
        """Give the first rows of a table; none where it has no row."""
        return self.tables.get(name, Table()).first[:most]

    def count(self, name: str) -> int:
        """Give how many rows a table has."""
        return self.tables.get(name, Table()).count

    def _put(self, table: Table, row: Row) -> None:
        table.count += 1
        keep_first(table.first, row, self._most, key=self._key, kept=_light)


def keep_first(
    found: list[_Item],
    item: _Item,
    most: int,
    key: Callable[[_Item], Any],
    kept: Callable[[_Item], _Item] = lambda item: item,
) -> None:
    """Put an item in its place in a sorted list that keeps its `most` first ones, in the form in which it is `kept`."""
    if len(found) < most or key(item) < key(found[-1]):
        insort(found, kept(item), key=key)
        del found[most:]


def _light(row: Row) -> Row:
    # no page shows record or payload, and they are most of what a result holds
    case = row.case
    bare = case.record is None and case.payload is None
    return row if bare else row._replace(case=replace(case, record=None, payload=None))


def _tables(case: CaseResult) -> list[str]:
    names = ["all"]
    if case.stale:
        names.append("stale")
    if case.verdict in {"error", "vacuous"}:
        names.append("broken")
    if case.quarantined:
        names.append("quarantined")
    elif case.verdict != "passed":
        names.append(case.verdict)
    return names


def _by_badness(row: Row) -> tuple[int, float, str]:
    case = row.case
    rank = 0 if case.verdict in {"error", "vacuous"} else 1 if case.verdict == "failed" else 2
    return rank, (case.score or 0.0) - (case.threshold or 0.0), case.case_id


_ORDERS: dict[str, Callable[[Row], Any]] = {
    "id": lambda row: (row.case.case_id, row.case.test_id, row.case.trial),
    "worst": _by_badness,
    "test": lambda row: (row.case.test_id, row.case.file),
    "given": lambda _: 0,
}
