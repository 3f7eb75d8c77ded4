"""Read a result, and score it: the weighted mean of the points of its criteria, one term for each.

A hard fail makes the score exactly 0, whatever the other terms are.
"""

from __future__ import annotations

import json
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from pydantic import ValidationInfo, model_validator

from pytest_packbench.model.answer import Answer
from pytest_packbench.model.case import misfit
from pytest_packbench.model.errors import fold, format_value, spellings
from pytest_packbench.model.result import Term
from pytest_packbench.packs.generic.suite import no_expected_value
from pytest_packbench.packs.generic.values import (
    MISSING,
    CriterionError,
    Flaw,
    compile_path,
    leaves,
    refused,
    truncate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.generic.rules import Grade
    from pytest_packbench.packs.generic.suite import Criterion, GenericCase, GenericSuiteConfig

REFUSAL = "refusal"
WRONG_CATEGORY = "refusal_category_mismatch"
UNEXPECTED_REFUSAL = "unexpected_refusal"
UNEXPECTED_ANSWER = "unexpected_acceptance"
FORBIDDEN = "forbidden"

# what they compare with is the value that they find
LIST_RULES = frozenset({"anywhere", "contains", "one_of"})
PLAIN_RULES = LIST_RULES | {"exact"}
# `json.dumps` creates an encoder on each call
_ENCODER = json.JSONEncoder(allow_nan=False)


class GenericAnswer(Answer):
    """Any JSON but null, read by the rules of the suite, which are the context of the validation.

    Attributes:
        result: the result as plain JSON, a copy.
        refusal: whether it is a refusal by the rules of the suite.
        category: the category of the refusal; None without one.
        first: the value of the first criterion; `MISSING` for a refusal, and where there is none.
    """

    result: Any
    refusal: bool = False
    category: str | None = None
    first: Any = MISSING

    @model_validator(mode="before")
    @classmethod
    def _read(cls, result: Any, info: ValidationInfo) -> dict[str, Any]:
        if result is None:
            raise misfit("got null", "JSON; does the target return its result?")
        try:
            # criteria see what a stored result will contain when it is scored again
            plain = json.loads(_ENCODER.encode(result))
        except (TypeError, ValueError, RecursionError) as error:
            raise misfit(f"is not JSON: {error}", "JSON") from None
        rules: GenericSuiteConfig | None = info.context
        if rules is None:
            raise RuntimeError("the generic pack reads results by the rules of a suite: call for_suite first")
        if not rules.refusal.is_refusal(plain):
            return {"result": plain, "first": rules.criteria[0].result_path.find(plain)}
        category = rules.refusal.category_in(plain)
        if not isinstance(category, str | None):
            location = compile_path(rules.refusal.category).location
            raise refused(Flaw(location, f"got {format_value(category)}", "the category of the refusal, a string"))
        return {"result": plain, "refusal": True, "category": category}

    @classmethod
    def __get_pydantic_json_schema__(cls, *_: object) -> dict[str, Any]:
        """Describe the result, not what is read of it."""
        return {"description": "Any JSON but null.", "not": {"type": "null"}}

    @property
    def shown(self) -> str | None:
        """The value of the first criterion; None for a refusal, and where there is none."""
        if self.first is MISSING:
            return None
        return truncate(self.first) if isinstance(self.first, str) else format_value(self.first)


def forbidden_matches(case: GenericCase, answer: GenericAnswer, rules: GenericSuiteConfig) -> Iterator[tuple[str, str]]:
    """Yield the title of each forbidden criterion that matches the result, and what it forbids.

    Raises:
        CriterionError: a criterion failed to run.
    """
    forms = list(spellings(answer.result)) if rules.forbidden else []
    for criterion in rules.forbidden:
        expected = criterion.expected_in(case.expected)
        if expected is MISSING:
            continue
        # a pattern and a function look at what is written
        is_plain = criterion.rule in PLAIN_RULES
        values = [criterion.value_in(form, expected) for form in (forms if is_plain else forms[:1])]
        if is_plain and criterion.path:
            # a path names a key as it is written, or in its plain form
            values += spellings(values[0])
        wanted = [*spellings(expected)] * 2
        for place, (value, one) in enumerate(zip(values, wanted, strict=False)):
            if value is not MISSING and criterion.grade(value, one, case.input).points > 0:
                spelled = ", in another spelling" if place else ""
                yield criterion.title, f"{criterion.describe(expected)}{spelled}"
                break


def refusal_term(case: GenericCase, answer: GenericAnswer, rules: GenericSuiteConfig) -> Term:
    """Return the term of a refusal, or of a case that expects one; its name is the level of the agreement."""
    category = answer.category or "no category"
    if not answer.refused:
        return Term(name=UNEXPECTED_ANSWER, effect="zero", detail="an answer, expected a refusal")
    if not rules.refusal.is_expected(case):
        return Term(name=UNEXPECTED_REFUSAL, effect="zero", detail=f"{category}, expected an answer")
    expected = rules.refusal.expected_category_of(case)
    if expected is None or fold(answer.category) == fold(expected):
        return Term(name=REFUSAL, value=1.0, detail=category)
    return Term(name=WRONG_CATEGORY, value=rules.refusal.wrong_category, detail=f"{category}, expected {expected}")


def compared(
    case: GenericCase, answer: GenericAnswer, rules: GenericSuiteConfig
) -> Iterator[tuple[Criterion, Any, Any, Grade]]:
    """Yield each criterion with the expected value, the value in the result, which may be `MISSING`, and its points.

    Raises:
        CriterionError: the case has no expected value for a criterion, or a criterion failed to run.
    """
    for criterion in rules.criteria:
        expected = criterion.expected_in(case.expected)
        if expected is MISSING:
            raise CriterionError(no_expected_value(criterion))
        value = criterion.value_in(answer.result, expected)
        yield criterion, expected, value, criterion.grade(value, expected, case.input)


def criterion_term(criterion: Criterion, expected: Any, value: Any, grade: Grade, rules: GenericSuiteConfig) -> Term:
    """Return the term of a criterion: its share of the score, or a hard fail."""
    detail = grade.detail + (look_alike(value, expected) if grade.points < 1 else "")
    if grade.points < criterion.hard_fail:
        return Term(name=criterion.title, effect="zero", detail=f"hard fail: {detail}")
    share = criterion.weight / rules.total_weight
    return Term(name=criterion.title, value=share * grade.points, detail=detail)


def look_alike(value: Any, expected: Any) -> str:
    """Describe the first text in a value that prints like an expected one and is another; empty without one."""
    printed = {fold(format_value(text)): text for text in leaves(expected)}
    for text in leaves(value):
        other = printed.get(fold(format_value(text)), text)
        if text != other and isinstance(text, str):
            at = len(commonprefix([text, other]))  # noqa: RUF071 - of texts
            return f"; it differs from character {at + 1}: {json.dumps(text[at : at + 8])}"
    return ""
