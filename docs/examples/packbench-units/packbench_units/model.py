"""What a case and a `suite.yaml` of this pack may say. An unknown key is an error of the file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from packbench_units.table import UNITS
from pytest_packbench import Case, Fraction, ListOf, StrictModel, SuiteConfig, Text

Reason = Literal["different_quantities", "unknown_unit"]


def _wrong(wrong: str, expected: str) -> PydanticCustomError:
    # the house joins file and place to these two
    return PydanticCustomError("units", "not usable", {"wrong": wrong, "expected": expected})


def _known(unit: str) -> str:
    if unit not in UNITS:
        raise _wrong(f'no unit is called "{unit}"', f"one of: {', '.join(UNITS)}")
    return unit


UnitName = Annotated[str, AfterValidator(_known)]


class Question(StrictModel):
    """What the pipeline is asked."""

    question: Text


class Amount(StrictModel):
    """A value in a unit."""

    value: float
    unit: UnitName


class Expected(StrictModel):
    """What is right: an amount, or a refusal.

    Attributes:
        answer: the right amount.
        of: the amount that the question converts; lint recalculates `answer` from it.
        never: values in the unit of `answer` that only a wrong table gives; they fail the case hard.
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
    """What each part of an answer is worth; a right answer has all of `value`, `unit` and `working`.

    Attributes:
        value: the right value, within `tolerance`.
        near: instead of `value`, where it is only within `near_tolerance`.
        unit: the unit that was asked for.
        working: any calculation shown.
        wrong_reason: a due refusal for another reason.
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
        near_tolerance: of a value that is nearly right.
        points: see `Points`.
    """

    tolerance: Fraction = 0.005
    near_tolerance: Fraction = 0.05
    points: Points = Points()
