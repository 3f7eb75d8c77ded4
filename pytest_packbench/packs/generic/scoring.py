"""Read a result, and score it: the weighted mean of the points of its criteria, one term for each.

A hard fail makes the score exactly 0, whatever the other terms are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.errors import CaseError, Problem, fold, format_value, json_pointer, spellings
from pytest_packbench.model.result import Outcome, ResultError, Score, Term, judged
from pytest_packbench.packs.generic.rules import Grade
from pytest_packbench.packs.generic.suite import no_expected_value
from pytest_packbench.packs.generic.values import MISSING, CriterionError, leaves, look_alike, truncate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.generic.suite import Criterion, GenericCase, GenericSuiteConfig

REFUSAL = "refusal"
WRONG_CATEGORY = "refusal_category_mismatch"
UNEXPECTED_REFUSAL = "unexpected_refusal"
UNEXPECTED_ANSWER = "unexpected_acceptance"
FORBIDDEN = "forbidden"

_DECIMALS = 9
# what they compare with is the value that they find
_LIST_RULES = frozenset({"anywhere", "contains", "one_of"})
_PLAIN_RULES = _LIST_RULES | {"exact"}
# `json.dumps` creates an encoder on each call
_ENCODER = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericOutcome(Outcome):
    """A result as the suite's rules read it.

    Attributes:
        result: the result as plain JSON, a copy.
        category: the category of the refusal; None without one.
    """

    result: Any
    category: str | None = None


def read(result: object, rules: GenericSuiteConfig) -> GenericOutcome:
    """Read a result by the suite's rules.

    Raises:
        ResultError: it is null or not JSON, or the category of a refusal is not a string.
    """
    if result is None:
        raise ResultError("", "got null, expected JSON; does the target return its result?")
    try:
        # criteria see what a stored result will contain when it is scored again
        plain = json.loads(_ENCODER.encode(result))
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError("", f"is not JSON: {error}") from None
    if not rules.refusal.is_refusal(plain):
        return GenericOutcome(result=plain, answer=_answer(plain, rules))
    category = rules.refusal.category_in(plain)
    if not isinstance(category, str | None):
        raise ResultError(
            rules.refusal.category, f"got {format_value(category)}, expected the category of the refusal, a string"
        )
    return GenericOutcome(result=plain, refused=True, category=category)


def _answer(result: Any, rules: GenericSuiteConfig) -> str | None:
    value = rules.criteria[0].result_path.find(result)
    if value is MISSING:
        return None
    return truncate(value) if isinstance(value, str) else format_value(value)


def score(case: GenericCase, outcome: GenericOutcome, rules: GenericSuiteConfig) -> Score:
    """Score an outcome.

    Returns:
        A score of 0 to 1 with its terms in the order of the suite. `match_level` is `refusal`,
        `refusal_category_mismatch`, `unexpected_refusal` or `unexpected_acceptance`; None if the case expects an answer
        and the result is one.

    Raises:
        CaseError: the case has no expected value for a criterion.
        CriterionError: a criterion failed to run, or returned something other than a number from 0 to 1.
    """
    level = None
    if outcome.refused or rules.refusal.is_expected(case):
        term = _refusal_term(case, outcome, rules)
        level, terms = term.name, [term]
    else:
        terms = [_term(criterion, case, outcome, rules) for criterion in rules.criteria]
    matches = forbidden_matches(case, outcome, rules)
    terms += [Term(name=FORBIDDEN, effect="zero", detail=f"{name}: {match}") for name, match in matches]
    hard_fail = any(term.effect == "zero" for term in terms)
    points = 0.0 if hard_fail else min(1.0, round(sum(term.value for term in terms), _DECIMALS))
    threshold = rules.threshold_of(case)
    verdict = judged(points, threshold)
    return Score(score=points, threshold=threshold, verdict=verdict, terms=tuple(terms), match_level=level)


def forbidden_matches(
    case: GenericCase, outcome: GenericOutcome, rules: GenericSuiteConfig
) -> Iterator[tuple[str, str]]:
    """Yield the title of each forbidden criterion that matches the result, and what it forbids.

    Raises:
        CriterionError: a criterion failed to run.
    """
    forms = list(spellings(outcome.result)) if rules.forbidden else []
    for criterion in rules.forbidden:
        expected = criterion.expected_in(case.expected)
        if expected is MISSING:
            continue
        # a pattern and a function look at what is written
        is_plain = criterion.rule in _PLAIN_RULES
        spelled = forms if is_plain else forms[:1]
        found = criterion.value_in(outcome.result, expected)
        # a path names a key as it is written, or in its plain form
        values = (
            spellings(found)
            if is_plain and found is not outcome.result and found is not MISSING
            else (criterion.value_in(form, expected) for form in spelled)
        )
        for value, wanted in zip(values, spellings(expected), strict=False):
            if value is not MISSING and _grade(criterion, value, wanted, case.input).points > 0:
                spelling = _spelling(criterion, outcome.result, expected) if is_plain else ""
                yield criterion.title, f"{criterion.describe(expected)}{spelling}"
                break


def _spelling(criterion: Criterion, result: Any, expected: Any) -> str:
    """Describe how a result spells what is forbidden, with escapes; empty if as plainly as can be."""

    def matches(text: str) -> bool:
        return any(
            criterion.grade(*pair, None).points for pair in zip(spellings(text), spellings(expected), strict=True)
        )

    value = criterion.value_in(result, expected)
    text = next((leaf for leaf in leaves(value) if isinstance(leaf, str) and matches(leaf)), "")
    # from both ends, each time half as much as before, so that the time grows with the length of the text
    step = 1 << len(text).bit_length()
    while step := step // 2:
        text = text[:-step] if matches(text[:-step]) else text
        text = text[step:] if matches(text[step:]) else text
    return f", spelled {json.dumps(text)}" if text != fold(text) else ""


def missed_criteria(
    case: GenericCase, outcome: GenericOutcome, rules: GenericSuiteConfig
) -> Iterator[tuple[Criterion, Any]]:
    """Yield the criteria that an answer does not get full points for, each with its value in the answer, or `MISSING`.

    Raises:
        CriterionError: a criterion failed to run.
    """
    for criterion in rules.criteria:
        expected = criterion.expected_in(case.expected)
        value = criterion.value_in(outcome.result, expected)
        if value is MISSING or _grade(criterion, value, expected, case.input).points < 1:
            yield criterion, value


def with_forbidden(criterion: Criterion, result: Any, expected: Any) -> Any:
    """Return a copy of a result that contains what a criterion forbids; None where it is not a plain value.

    Args:
        criterion: the forbidden criterion.
        result: the result, plain JSON.
        expected: what it forbids in the case.
    """
    if criterion.rule not in _PLAIN_RULES:
        return None
    value = expected[0] if isinstance(expected, list) and criterion.rule in _LIST_RULES and expected else expected
    keys = criterion.result_path.location
    copy = json.loads(_ENCODER.encode(result))
    if criterion.rule == "anywhere" and not keys:
        # in a key of its own, a text, or in the place of the result
        if isinstance(copy, dict):
            return {**copy, "forbidden": value}
        return f"{copy} {value}" if isinstance(copy, str) else value
    if not keys or not all(isinstance(key, str) for key in keys) or not isinstance(copy, dict):
        return value if not criterion.path else None
    parent = copy
    for key in keys[:-1]:
        inner = parent.get(key)
        parent[key] = parent = inner if isinstance(inner, dict) else {}
    parent[keys[-1]] = value
    return copy


def _refusal_term(case: GenericCase, outcome: GenericOutcome, rules: GenericSuiteConfig) -> Term:
    category = outcome.category or "no category"
    if not outcome.refused:
        return Term(name=UNEXPECTED_ANSWER, effect="zero", detail="an answer, expected a refusal")
    if not rules.refusal.is_expected(case):
        return Term(name=UNEXPECTED_REFUSAL, effect="zero", detail=f"{category}, expected an answer")
    expected = rules.refusal.expected_category_of(case)
    if expected is None or fold(outcome.category) == fold(expected):
        return Term(name=REFUSAL, value=1.0, detail=category)
    return Term(name=WRONG_CATEGORY, value=rules.refusal.wrong_category, detail=f"{category}, expected {expected}")


def _term(criterion: Criterion, case: GenericCase, outcome: GenericOutcome, rules: GenericSuiteConfig) -> Term:
    expected = criterion.expected_in(case.expected)
    if expected is MISSING:
        pointer = json_pointer(("expected", *criterion.expected_path.location))
        problem = Problem(pointer, no_expected_value(criterion), f"expected {criterion.form}")
        raise CaseError(f"case {case.id}", [problem])
    value = criterion.value_in(outcome.result, expected)
    grade = Grade(0.0, no_value(criterion)) if value is MISSING else _grade(criterion, value, expected, case.input)
    detail = grade.detail + (look_alike(value, expected) if grade.points < 1 else "")
    if grade.points < criterion.hard_fail:
        return Term(name=criterion.title, effect="zero", detail=f"hard fail: {detail}")
    share = criterion.weight / rules.total_weight
    return Term(name=criterion.title, value=share * grade.points, detail=detail)


def no_value(criterion: Criterion) -> str:
    """Describe that a result has no value for a criterion."""
    return f"nothing at {criterion.result_path}"


def _grade(criterion: Criterion, value: Any, expected: Any, case_input: Any) -> Grade:
    try:
        return criterion.grade(value, expected, case_input)
    except CriterionError as error:
        raise CriterionError(f'criterion "{criterion.title}": {error}') from None
    except Exception as error:
        message = f'criterion "{criterion.title}" raised {type(error).__name__}: {error}'
        # with its traceback: the frames of the user's function help most
        raise CriterionError(message).with_traceback(error.__traceback__) from error
