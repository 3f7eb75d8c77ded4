"""The sums of a table of figures: shares, means and sums, when they are shown, and when they have an interval."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pytest_packbench import FigureRow, FigureSums, SumsByModel
from tests.unit.run_builders import data

DATA: dict[str, Any] = data("table.yaml")

Shown = dict[str, Any]
# what cases show: the right ones, of which one is not known; points; words
CASES: list[Shown] = [
    {"right": True, "points": 0.1, "words": 3, "of": 10},
    {"right": False, "points": 0.2, "words": 0, "of": 5},
    {"right": None, "points": 0.3, "words": 1, "of": 0},
    {"right": True, "points": None, "words": 0, "of": 1},
]


def row(**changes: Any) -> FigureRow:
    return FigureRow("right", "Right ones.", lambda shown: shown["right"])._replace(**changes)


def added(rows: list[FigureRow], *, sampled: tuple[bool | None, ...] = (), shared: str = "") -> FigureSums:
    sums = FigureSums(shared)
    for number, case in enumerate(CASES):
        sums.add(rows, case, f"cluster {number % 2}", *sampled)
    return sums


ROWS: list[tuple[FigureRow, tuple[Any, ...]]] = [
    # without `among`, all of which it is known
    (row(), (2, 3, None, "")),
    (row(among=lambda shown: shown["of"] > 1), (1, 2, None, "")),
    # one that could not be judged is none of them, and the note says so
    (row(among=lambda shown: None if shown["right"] is None else True), (2, 3, None, "3 judged, 1 not judged")),
    # amounts among amounts
    (row(counts=lambda shown: shown["words"], among=lambda shown: shown["of"]), (4, 16, None, "")),
    (row(counts=lambda shown: shown["words"], unit="words"), (None, None, 4, "")),
    (row(counts=lambda shown: shown["points"], unit="", per="answer"), (None, None, 0.2, "over 3 answers")),
    (row(counts=lambda shown: shown["words"], unit="USD", per="case"), (None, None, 1.0, "over 4 cases")),
]


@pytest.mark.parametrize(("each", "value"), ROWS)
def test_a_row_is_a_share_a_sum_or_a_mean(each: FigureRow, value: tuple[Any, ...]) -> None:
    (figure,) = added([each]).figures([each])
    assert (figure.count, figure.total, figure.number, figure.note) == value


def test_sums_do_not_depend_on_the_order() -> None:
    mean = row(counts=lambda points: points, unit="", per="case")
    # their mean is 0.3485, which floating point rounds up or down by the order in which it adds
    points = [0.241, 0.31, 0.105, 0.738]
    found = set()
    for seed in range(20):
        Random(seed).shuffle(points)  # noqa: S311 - an order that is always the same
        sums = FigureSums()
        for each in points:
            sums.add([mean], each)
        found |= {figure.number for figure in sums.figures([mean])}
    assert len(found) == 1


LISTED: Any = DATA["listed"]


@pytest.mark.parametrize(("when", "shown"), LISTED)
def test_a_row_says_when_it_is_listed_and_when_a_headline(when: Any, shown: tuple[bool, ...]) -> None:
    of_cases: list[list[bool]] = [[], [False], [True, False]]
    for cases, is_shown in zip(of_cases, shown, strict=True):
        each = row(counts=lambda right: right)
        sums = FigureSums()
        for case in cases:
            sums.add([each], case)
        assert bool([*sums.figures([each._replace(listed=when)])]) is is_shown
        (figure,) = sums.figures([each._replace(headline=when)], unmeasured="nobody asked")
        assert (figure.headline, figure.note) == (is_shown, "" if cases else "nobody asked")


INTERVALS: Any = DATA["intervals"]


@pytest.mark.parametrize(("shared", "sampled", "method"), INTERVALS)
def test_only_a_share_of_sampled_answers_has_an_interval(
    shared: str, sampled: tuple[bool | None, ...], method: str | None
) -> None:
    each, points = row(), row(name="points", counts=lambda shown: shown["points"], unit="", per="answer")
    share, mean = added([each, points], sampled=sampled, shared=shared).figures([each, points], group="g", of=", all")
    assert (share.interval and share.interval.method) == method
    assert (mean.interval, share.group, share.name) == (None, "g", "right, all")


WRITERS: Any = DATA["writers"]


@pytest.mark.parametrize(("writers", "shown"), WRITERS)
def test_answers_of_models_and_of_people_are_never_added_up(writers: list[Any], shown: list[Any]) -> None:
    each, sums = row(group="g"), SumsByModel("task")
    for number, (backend, model) in enumerate(writers):
        sums.of({"llm_backend": backend, "llm_model": model}).add([each], CASES[0], f"cluster {number}")
    found = [[figure.group, figure.total, figure.interval is not None] for figure in sums.figures([each])]
    assert found == shown
