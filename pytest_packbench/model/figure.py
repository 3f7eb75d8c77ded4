"""Named figures of a run that only a pack can compute: the numbers that its field publishes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Interval(NamedTuple):
    """A confidence interval.

    Attributes:
        low: the lower end; for a share 0 to 1, otherwise in the unit of the figure.
        high: the upper end.
        method: the confidence and the method in a few words, such as `95 % Wilson`.
    """

    low: float
    high: float
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A named figure of a run: a count among a total, or a number with its unit.

    Without a count and a number, or with a total of 0, the figure is not measured, which is not the same as 0.

    Attributes:
        name: its name in the words of the field, unique in its group: `benign utility`.
        definition: what it is, in one sentence that a reader of the report understands.
        count: how many, 0 to `total`; None for a number, and if it is not measured.
        total: among how many; None with a number.
        number: the value if it is not a share; None if it is not measured.
        unit: of the number: `percentage points`, `USD`; empty if it has none.
        interval: its confidence interval; None without one, as for answers that were authored.
        group: what the figure is about, where a run has several of a name: `AgentDojo, gpt-4o behind redact`.
        headline: whether a terminal shows it; reports show all figures.
        note: what else a reader has to know about this value, such as how many cases it lacks; empty for nothing.
    """

    name: str
    definition: str
    count: int | None = None
    total: int | None = None
    number: float | None = None
    unit: str = ""
    interval: Interval | None = None
    group: str = ""
    headline: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a text is missing or has several lines, or the numbers contradict each other.
        """
        problem = next(self._problems(), "")
        if problem:
            raise ValueError(f"figure {self.name!r}: {problem}")

    @property
    def share(self) -> float | None:
        """The share that the count is of the total, 0 to 1; None for a number, and if it is not measured."""
        return self.count / self.total if self.count is not None and self.total else None

    @property
    def measured(self) -> bool:
        """Whether there is a value."""
        return self.share is not None or self.number is not None

    @classmethod
    def from_json(cls, stored: Any) -> Figure:
        """Return a figure from what `as_json` returned; keys of later versions are ignored.

        Raises:
            ValueError: it is not a figure.
        """
        if not isinstance(stored, dict):
            raise ValueError(f"got {type(stored).__name__}; expected a figure as an object")  # noqa: TRY004 - a mistake in a file
        names = [each.name for each in fields(cls)]
        interval = stored.get("interval")
        try:
            known = {name: stored[name] for name in names} | {
                "interval": None if interval is None else Interval(**interval)
            }
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a figure: {error}") from None

    def with_texts(self, change: Callable[[str], str]) -> Figure:
        """Return the figure with each of its texts changed, such as by a redactor."""
        return replace(
            self,
            name=change(self.name),
            definition=change(self.definition),
            group=change(self.group),
            unit=change(self.unit),
            note=change(self.note),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the figure as plain JSON, with its share; the interval is an object or null."""
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in ("group", "name", "headline", "count", "total", "share", "number")
        }
        interval = None if self.interval is None else self.interval._asdict()
        return plain | {"unit": self.unit, "interval": interval, "note": self.note, "definition": self.definition}

    def _problems(self) -> Iterator[str]:
        if not self.name or not self.definition:
            yield "got no name or no definition; expected both"
        if any("\n" in text for text in (self.name, self.definition, self.group, self.unit, self.note)):
            yield "got several lines; expected one"
        if self.number is not None and (self.count is not None or self.total is not None):
            yield "got a number and a count; expected one of them"
        if self.count is not None and (self.total is None or not 0 <= self.count <= self.total):
            yield f"got a count of {self.count} among {self.total}; expected 0 to the total"
        if self.number is not None and not isfinite(self.number):
            yield f"got {self.number}; expected a finite number"
        if self.interval is not None and not self.measured:
            yield "got an interval without a value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What a pack adds to the page of a run: a table, a matrix of counts, or some of the run's figures.

    Attributes:
        title: what it shows, in a few words.
        intro: one or more sentences for readers who do not know the field; empty for none.
        head: the names of the columns; the first column names the rows.
        rows: the cells of each row, as many as `head`: a text, a number, or None where it is not known.
        matrix: whether the cells are counts, and right where row and column have the same name.
        figures: figures of the run, shown as a table with their intervals.
    """

    title: str
    intro: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str | float | None, ...], ...] = ()
    matrix: bool = False
    figures: tuple[Figure, ...] = ()

    def __post_init__(self) -> None:
        """Check the form.

        Raises:
            ValueError: the title is missing, there is nothing to show, or a row has another length than the head.
        """
        if not self.title or "\n" in self.title:
            raise ValueError(f"panel {self.title!r}: got no title in one line; expected one")
        if not (self.intro or self.rows or self.figures):
            raise ValueError(f"panel {self.title!r}: got nothing to show; expected intro, rows or figures")
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"panel {self.title!r}: got a row of {len(row)} cells; expected {len(self.head)}")
        if self.matrix and not all(type(cell) is int for row in self.rows for cell in row[1:]):
            raise ValueError(f"panel {self.title!r}: got a matrix with another cell than a count; expected counts")

    def with_texts(self, change: Callable[[str], str]) -> Panel:
        """Return the panel with each of its texts changed, such as by a redactor."""
        return replace(
            self,
            title=change(self.title),
            intro=change(self.intro),
            head=tuple(map(change, self.head)),
            rows=tuple(tuple(change(cell) if isinstance(cell, str) else cell for cell in row) for row in self.rows),
            figures=tuple(figure.with_texts(change) for figure in self.figures),
        )
