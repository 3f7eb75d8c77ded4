"""Lint rules: recalculate the expected answers of a suite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from packbench_units.table import converted
from pytest_packbench import Finding, Tools

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from packbench_units.model import Amount, Expected, UnitsCase, UnitsSuiteConfig
    from pytest_packbench import FiledCase

_DIGITS = 1e-4


class UnitsTools(Tools):
    """What commands need of the pack."""

    def lint(
        self, cases: Sequence[FiledCase], rules: UnitsSuiteConfig, options: Mapping[str, Path]
    ) -> Iterator[Finding]:
        """Check the expected answers and forbidden values of all cases."""
        del options
        for filed in cases:
            expected = cast("UnitsCase", filed.loaded.case).expected
            if expected.answer is not None:
                yield from _recalculated(filed.file, expected, expected.answer)
                yield from _forbidden_answer(filed.file, expected, expected.answer, rules)


def _recalculated(file: str, expected: Expected, answer: Amount) -> Iterator[Finding]:
    if expected.of is None:
        message = "the answer can't be recalculated; add the amount that the question converts"
        yield Finding(file=file, pointer="/expected/of", rule="answer_unchecked", message=message, severity="warning")
        return
    right = converted(expected.of.value, expected.of.unit, answer.unit)
    if right is None:
        message = f"{expected.of.unit} can't be converted to {answer.unit}; this case expects a refusal"
        yield Finding(file=file, pointer="/expected/answer", rule="answer_impossible", message=message)
    elif not math.isclose(right, answer.value, rel_tol=_DIGITS):
        message = f"got {answer.value:g}, but the conversion gives {right:.6g} {answer.unit}; correct one of them"
        yield Finding(file=file, pointer="/expected/answer/value", rule="answer_wrong", message=message)


def _forbidden_answer(file: str, expected: Expected, answer: Amount, rules: UnitsSuiteConfig) -> Iterator[Finding]:
    for index, never in enumerate(expected.never):
        if math.isclose(never, answer.value, rel_tol=rules.tolerance):
            message = f"{never:g} is the right answer within the tolerance, so no answer can pass; remove it"
            yield Finding(file=file, pointer=f"/expected/never/{index}", rule="never_is_right", message=message)
