"""The numbers of a run: metrics, which a gate can bound, and named figures and panels, which only a pack can compute.

A metric is a share of the results of a run, computed from their profiles.

`GENERAL_METRICS` exist in every suite; the suite model of a pack can add its own (`SuiteConfig.metrics`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Strict, ValidationError

from pytest_packbench.model.case import Expected
from pytest_packbench.model.errors import first_problem
from pytest_packbench.model.result import adapter
from pytest_packbench.model.score import COUNTED, FIXTURE, Count, Flag, Number, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_packbench.model.score import Verdict

AUTHORED = "stub"
"""The backend whose answers were written by a person or a script."""
COMPLETENESS = "completeness"
MEAN_SCORE = "mean_score"
EXPOSURE = "exposure_rate"
# a number that is read back stays what it was
_Number = Annotated[Annotated[int, Strict()] | Number, Expected("a number")]
_FIGURE_TEXTS = ("name", "definition", "group", "unit", "note")
_FIGURE_KEYS = (
    *("group", "name", "headline", "count", "total", "share", "number", "unit", "interval", "note", "definition"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Everything about one result that a metric can use, except its score.

    The fields are those of `Result`, except for five: `quarantine` is `skip` or `xfail` where the notes of the case
    quarantine it, else empty; `scored` is whether there is a score; `depth` and `level` are its `match_depth` and
    `match_level`; `cached` is whether a cached answer was used. `mode` is that of the run, and `facets` has those that
    a metric excludes or counts apart (`Metric.excluded`, `Metric.apart`).
    """

    verdict: Verdict
    quarantine: str = ""
    scored: bool = False
    decision: str | None = None
    utility: bool | None = None
    valid: bool | None = None
    expects_refusal: bool | None = None
    refused: bool | None = None
    depth: int | None = None
    level: str | None = None
    backend: str | None = None
    model: str | None = None
    judge: str | None = None
    stale: bool = False
    remark: str = ""
    cached: bool = False
    facets: tuple[tuple[str, str], ...] = ()
    mode: str = FIXTURE

    @property
    def counted(self) -> bool:
        """Whether the result counts in rates: it was scored and passed or failed."""
        return self.verdict in COUNTED and not self.quarantine

    @property
    def due(self) -> bool:
        """Whether the case has to end as passed or failed."""
        return not self.quarantine and is_due(self.verdict, self.mode)

    @property
    def vacuous(self) -> bool:
        """Whether the case ran and could not have failed."""
        return self.verdict == "vacuous" and not self.quarantine

    @property
    def authored(self) -> bool:
        """Whether it is a counted answer written by a person or a script: not a sample of a model's answers."""
        return self.counted and self.backend == AUTHORED

    @property
    def answer_due(self) -> bool:
        """Whether the result counts in rates and its case expects an answer, not a refusal."""
        return self.counted and self.expects_refusal is False


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A share of the results of a run: those that `counts` among those that `among` accepts.

    Attributes:
        among: whether a result belongs to the denominator.
        counts: whether a result of the denominator belongs to the numerator; the second argument is the `depth` of the
            gate, 1 where it has none.
        skips_refusals: whether a group in which every case expects a refusal is left out.
        excluded: a facet and its value; None for none. Cases with it are not what the metric is about: they do not
            count, and its gates pass in a run that has no others.
        apart: a facet and its value; None for none. Cases with it count only in a group without others that count.
    """

    among: Callable[[Profile], object]
    counts: Callable[[Profile, int], object]
    skips_refusals: bool = False
    excluded: tuple[str, str] | None = None
    apart: tuple[str, str] | None = None

    def is_about(self, result: Profile) -> bool:
        """Whether the metric is about a result at all, judged or not."""
        return self.excluded is None or self.excluded not in result.facets


GENERAL_METRICS: Mapping[str, Metric] = {
    COMPLETENESS: Metric(among=lambda result: result.due, counts=lambda result, _: result.counted),
    # cases that could have failed, among those that ran
    EXPOSURE: Metric(among=lambda result: result.counted or result.vacuous, counts=lambda result, _: result.counted),
    "pass_rate": Metric(among=lambda result: result.counted, counts=lambda result, _: result.verdict == "passed"),
    # the numerator is the sum of the scores (`analysis.metrics.measure`)
    MEAN_SCORE: Metric(among=lambda result: result.counted and result.scored, counts=lambda *_: True),
    "over_refusal_rate": Metric(
        among=lambda result: result.answer_due, counts=lambda result, _: result.refused, skips_refusals=True
    ),
    # a refusal where an answer is due agrees to no depth
    "accuracy": Metric(
        among=lambda result: result.answer_due,
        counts=lambda result, depth: (result.depth or 0) >= depth,
        skips_refusals=True,
    ),
}
"""The metrics of every suite, by the name that a gate uses."""


class Interval(NamedTuple):
    """A confidence interval.

    Attributes:
        low: the lower end; for a share 0 to 1, otherwise in the unit of the figure.
        high: the upper end.
        method: the confidence and the method in a few words, such as `95 % Wilson`.
    """

    low: _Number
    high: _Number
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
    count: Count | None = None
    total: Count | None = None
    number: _Number | None = None
    unit: str = ""
    interval: Interval | None = None
    group: str = ""
    headline: Flag = False
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
        try:
            figure: Figure = adapter(Figure).validate_python(stored)
        except ValidationError as error:
            raise ValueError(str(first_problem(error, stored))) from None
        return figure

    def with_texts(self, change: Callable[[str], str]) -> Figure:
        """Return the figure with each of its texts changed, such as by a redactor."""
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in _FIGURE_TEXTS}
        return replace(self, **changed)

    def as_json(self) -> dict[str, Any]:
        """Return the figure as plain JSON, with its share; the interval is an object or null."""
        plain = {name: getattr(self, name) for name in _FIGURE_KEYS}
        return plain | {"interval": None if self.interval is None else self.interval._asdict()}

    def _problems(self) -> Iterator[str]:
        if not self.name or not self.definition:
            yield "got no name or no definition; expected both"
        if any("\n" in getattr(self, name) for name in _FIGURE_TEXTS):
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
