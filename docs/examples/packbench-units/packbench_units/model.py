"""The models of cases and of `suite.yaml`. An unknown key is an error in the file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from packbench_units.table import UNITS
from pytest_packbench import Case, Fraction, ListOf, StrictModel, SuiteConfig, Text

Reason = Literal["different_quantities", "unknown_unit"]


def _wrong(wrong: str, expected: str) -> PydanticCustomError:
    # pytest-packbench adds the file and the location
    return PydanticCustomError("units", "not usable", {"wrong": wrong, "expected": expected})


def _known(unit: str) -> str:
    if unit not in UNITS:
        raise _wrong(f'unknown unit "{unit}"', f"one of {', '.join(UNITS)}")
    return unit


UnitName = Annotated[str, AfterValidator(_known)]


class Question(StrictModel):
    """The input of the pipeline."""

    question: Text


class Amount(StrictModel):
    """A value in a unit."""

    value: float
    unit: UnitName


class Expected(StrictModel):
    """The expected result: an amount, or a refusal.

    Attributes:
        answer: the right amount.
        of: the amount that the question converts; lint recalculates `answer` from it.
        never: values in the unit of `answer` that only come from a wrong table; they are a hard fail.
        refuse: why the question has no answer.
    """

    answer: Amount | None = None
    of: Amount | None = None
    never: ListOf[float] = ()
    refuse: Reason | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.answer is None) is (self.refuse is None):
            raise _wrong("answer and refuse" if self.answer else "neither answer nor refuse", "one of them")
        return self


class UnitsCase(Case):
    """One question."""

    case_type: Literal["convert", "refuse"]
    input: Question
    expected: Expected


class Points(StrictModel):
    """The points of each part of an answer; a right answer has all of `value`, `unit` and `working`.

    Attributes:
        value: the right value, within `tolerance`.
        near: instead of `value`, if it is only within `near_tolerance`.
        unit: the requested unit.
        working: any calculation shown.
        wrong_reason: an expected refusal for another reason.
    """

    value: Fraction = 0.7
    near: Fraction = 0.3
    unit: Fraction = 0.2
    working: Fraction = 0.1
    wrong_reason: Fraction = 0.5


class UnitsSuiteConfig(SuiteConfig):
    """The `suite.yaml` of this pack.

    Attributes:
        tolerance: of the right value, as a share of it.
        near_tolerance: of an almost right value.
        points: see `Points`.
    """

    tolerance: Fraction = 0.005
    near_tolerance: Fraction = 0.05
    points: Points = Points()
