"""The table of a field's metrics, and its sums over the cases of a run: how a pack computes figures.

A row counts something among something. A pack says what each case shows, and which cases it adds up; the sums are made
in one pass, also by what cases share, so that intervals are those of independent cases.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_packbench.analysis.statistics import rate_interval
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.suite import AUTHORED, Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    # where there is anything to count among; where anything was counted
    When = Literal["always", "measured", "counted", "never"]


class FigureRow(NamedTuple):
    """A metric of a field: a share of cases, or a number.

    Attributes:
        name: the name of its figure.
        definition: what it is, in one sentence.
        counts: whether a case is counted, or how much; None where this is not known.
        among: whether a case is one of those among which is counted, or how much of it. None where it is one, and could
            not be judged: the note of the figure states how many. Without it, all cases of which `counts` is known.
        group: the group of its figure.
        headline: when a terminal shows the figure.
        listed: when a report does.
        unit: the unit of a number; None for a share.
        per: what a number is a mean over, in one word; empty for a sum. A mean has three decimals, one with a unit two.
    """

    name: str
    definition: str
    counts: Callable[[Any], Any]
    among: Callable[[Any], Any] | None = None
    group: str = ""
    headline: When = "never"
    listed: When = "always"
    unit: str | None = None
    per: str = ""

    def size(self, shown: Any) -> Any:
        """Return what `among` returns for a case; without it, whether `counts` is known."""
        return (self.counts(shown) is not None) if self.among is None else self.among(shown)


class FigureSums:
    """The sums of rows over some cases, each also by cluster.

    Args:
        shared: what the cases of a cluster share, so that they are not independent; empty for figures without
            intervals.
        sampled: whether its cases are samples of a model's answers, if this is the same for all.
    """

    def __init__(self, shared: str = "", *sampled: bool) -> None:
        self.shared = shared
        self._sampled: set[bool | None] = {*sampled}
        self._of: dict[str, dict[str, list[Any]]] = defaultdict(dict)
        self._unjudged: dict[str, int] = defaultdict(int)

    def add(self, rows: Iterable[FigureRow], shown: Any, cluster: str = "", *sampled: bool | None) -> None:
        """Add a case.

        Args:
            rows: those that ask about it.
            shown: what it shows, as `counts` and `among` of these rows read it.
            cluster: what it shares with others, by name.
            sampled: whether it is a sample of a model's answers; None if this is not known.
        """
        self._sampled.update(sampled)
        for row in rows:
            size = row.size(shown)
            if size is None:
                self._unjudged[row.name] += 1
            elif size is not False:
                sums = self._of[row.name].setdefault(cluster, [0, 0])
                number = row.counts(shown) or 0
                # exact, so that the sum does not depend on the order
                sums[0] += Fraction(number) if row.per else number
                sums[1] += size

    def figures(
        self, rows: Iterable[FigureRow], *, group: str = "", of: str = "", note: str = "", unmeasured: str = ""
    ) -> Iterator[Figure]:
        """Yield the figures of the rows that are listed.

        A share has an interval if all cases are a sample, but for those of which this is not known.

        Args:
            rows: the rows, in the order in which they are shown.
            group: what to add to their groups.
            of: what to add to their names.
            note: a note for all.
            unmeasured: one for those without a case to count among.
        """
        for row in rows:
            clusters = [(count, size) for count, size in self._of[row.name].values()]
            count, total = sum(part for part, _ in clusters), sum(size for _, size in clusters)
            holds = {"always": True, "measured": total > 0, "counted": count > 0, "never": False}
            if not holds[row.listed]:
                continue
            value: dict[str, Any] = {"count": count, "total": total}
            if row.unit is not None:
                mean = round(float(count) / total, 2 if row.unit else 3) if row.per and total else None
                value = {"number": mean if row.per else count, "unit": row.unit}
            elif self.shared and total and True in self._sampled and False not in self._sampled:
                value["interval"] = rate_interval(count, total, clusters, clustered_by=self.shared)
            unjudged = self._unjudged[row.name]
            said = f"over {pluralize(total, row.per)}" if row.per else ""
            said = said or (f"{total} judged, {unjudged} not judged" if unjudged else "" if total else unmeasured)
            yield Figure(
                name=f"{row.name}{of}",
                definition=row.definition,
                group=f"{row.group}{group}",
                headline=holds[row.headline],
                note=note or said,
                **value,
            )


class SumsByModel:
    """The sums of rows over the records of a run, for each model and for authored answers: these are never added up.

    Args:
        shared: as in `FigureSums`; authored answers have no interval.
    """

    def __init__(self, shared: str = "") -> None:
        self.shared = shared
        self._of: dict[tuple[str, str], FigureSums] = {}

    def of(self, record: Mapping[str, Any]) -> FigureSums:
        """Return the sums to which a wire record belongs; answers that people wrote are together, whoever did."""
        backend, model = (str(record.get(key) or "") for key in ("llm_backend", "llm_model"))
        is_authored = backend == AUTHORED
        who = backend, "" if is_authored else model
        return self._of.setdefault(who, FigureSums(self.shared, not is_authored))

    def titled(self) -> Iterator[tuple[str, FigureSums]]:
        """Yield the sums of each, with what to add to titles; with nothing to add if there are no others."""
        for who, sums in sorted(self._of.items(), key=lambda item: item[0]):
            yield f": {' / '.join(filter(None, who)) or 'not known'}" if len(self._of) > 1 else "", sums

    def figures(self, rows: Iterable[FigureRow]) -> list[Figure]:
        """Return the figures of rows, for each model in turn."""
        return [figure for of, sums in self.titled() for figure in sums.figures(rows, group=of)]
