"""The rules of `suite.yaml`, one row each: what a rule accepts as expected, how it compares, how it is described.

A comparison takes the value in the result, the expected value, and the keys of the rule; it gives 0 to 1 points. An
expected value that a rule can't compare with is a mistake in the suite or the case; a value in the result that it can't
compare gets no points.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from pytest_packbench.model.case import Flaw, Fraction, StrictModel
from pytest_packbench.model.errors import format_value, json_pointer, spellings
from pytest_packbench.packs.generic.values import (
    GENERIC,
    MISSING,
    TEXT,
    CriterionError,
    import_extra,
    imported,
    leaves,
    truncate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from types import UnionType

    from pytest_packbench.model.case import Location

# relative error of binary fractions at the bounds of a tolerance
_ROUNDING = 1e-12
# a rule that accepts all of them accepts everything
_DIFFERENT_TEXTS = ("", "a", "0", " ", "\n\t-é")
_DIFFERENT_VALUES: tuple[Any, ...] = (None, True, 0, 1.5, *_DIFFERENT_TEXTS, [], [0], {}, {"a": 0})
# of members of two lists, compared in some seconds
_MAX_PAIRS = 10**7
_NO_TIME_LIMIT = "patternProperties"
SCHEMA_FORM = "a JSON Schema (draft 2020-12)"

Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Options(StrictModel):
    """The keys that only some rules have.

    Attributes:
        absolute: how far a number may be from the expected one, in its unit; the wider of the two tolerances decides.
        relative: likewise, as a share of the expected number.
        ignore_case: whether upper and lower case of texts, and of texts in lists, are equal.
        at_least: the similarity of two texts below which there are no points.
        timeout: the time limit of a search for a pattern, in seconds; above it the case is an error.
        k: how many of the first members of a list count.
        reciprocal: whether a hit among them gets 1 divided by its rank.
    """

    absolute: Tolerance = 0.0
    relative: Tolerance = 0.0
    ignore_case: bool = False
    at_least: Fraction = 0.0
    timeout: Annotated[float, Field(gt=0, le=10)] = 0.1
    k: Annotated[int, Field(ge=1)] = 10
    reciprocal: bool = False


PYTHON = "python"
"""The rule whose comparison is a function of the user."""
ANYWHERE = "anywhere"
"""The rule of what is forbidden in any depth; a plain text or number is short for it."""


class Grade(NamedTuple):
    """The result of a comparison.

    Attributes:
        points: 0 to 1.
        detail: in a few words, why there are not full points; empty if the two values say it.
    """

    points: float
    detail: str = ""


class Rule(NamedTuple):
    """A rule of `suite.yaml`.

    Attributes:
        compare: compares a value in a result with an expected one: a grade, or points, of which true is 1 and false 0.
            None for the rule `python`, whose function does.
        form: what it can compare with, in words.
        expects: the type of an expected value.
        accepts: whether it can compare with a value of that type.
        flaw: describes why an accepted value can't be compared with all the same; empty if it can.
        said: the values that get full points, in words, of `{expected}`, the expected one as text, and the `{options}`.
        takes: the types of what it can compare in a result; other values get no points.
        options: its own keys.
        later: those that it got later: as long as they are not set, they are not part of the hash of a suite.
        libraries: the modules that it requires.
        extra: the extra of this package that installs them.
    """

    compare: Callable[[Any, Any, Any], Grade | float] | None = None
    form: str = "a value"
    expects: type = object
    accepts: Callable[[Any], bool] = lambda _expected: True
    flaw: Callable[[Any, Any], str] = lambda _expected, _options: ""
    said: str = "{expected}"
    takes: type | UnionType = object
    options: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    extra: str = GENERIC


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    # Python's own comparison is fast, and wrong for booleans only
    return left == right and hashable(left) == hashable(right)


def hashable(value: Any) -> Hashable:
    """Return a hashable object that is equal for equal JSON values only."""
    if isinstance(value, dict):
        return "object", frozenset((name, hashable(member)) for name, member in value.items())
    if isinstance(value, list):
        return "list", tuple(hashable(element) for element in value)
    return isinstance(value, bool), value


def is_number(value: Any) -> bool:
    """Whether a value of plain JSON, which is finite, is a number; booleans are not numbers."""
    return type(value) in {int, float}


def _fold(value: Any, options: Any) -> Any:
    if not options.ignore_case:
        return value
    if isinstance(value, list):
        return [_fold(element, options) for element in value]
    return value.casefold() if isinstance(value, str) else value


def as_list(expected: Any) -> list[Any]:
    """Return a list as it is, and another value as the only one of a list."""
    return expected if isinstance(expected, list) else [expected]


def exact(value: Any, expected: Any, options: Any) -> bool:
    """Give full points for an equal JSON value."""
    return json_equal(_fold(value, options), _fold(expected, options))


def _one_of(value: Any, expected: list[Any], options: Any) -> bool:
    """Give full points for a value that is equal to one of the expected list."""
    return any(exact(value, option, options) for option in expected)


def _numeric(value: Any, expected: Any, options: Any) -> bool:
    """Give full points for a number within the wider of the tolerances, bounds included."""
    if not is_number(value):
        return False
    try:
        rounding = _ROUNDING * max(abs(value), abs(expected))
        tolerance = max(options.absolute, options.relative * abs(expected))
        return bool(abs(value - expected) <= tolerance + rounding)
    except OverflowError:
        return bool(value == expected)


def _contains(value: Any, expected: Any, options: Any) -> Grade | float:
    """Give the share of the expected texts found in a text, or of the expected values found in a list."""
    forms, expected_values = [_fold(form, options) for form in spellings(value)], as_list(expected)
    missing = [
        part
        for part in expected_values
        if not any(map(_is_in, forms, (_fold(spelling, options) for spelling in spellings(part))))
    ]
    return Grade(1 - len(missing) / len(expected_values), f"without {format_value(missing)}") if missing else 1


@lru_cache
def _in_text(value: float) -> str:
    """Return a pattern for a number in a text: not a part of a longer number, nor of a negative one."""
    plain = format(Decimal(repr(value)), "f")
    number = re.escape(plain.rstrip("0").rstrip(".") if "." in plain else plain)
    zeros = "0*" if "\\." in number else r"(?:\.0+)?"
    # the digits come first, which is faster
    before = "".join(f"(?<!{sign}{number})" for sign in (r"\d", r"\d[.,]", r"\d[eE]", r"(?<!\w)[-\u2212]"))
    return rf"{number}{before}{zeros}(?![.,]?\d|[eE][-+]?\d)"


def _is_in(value: Any, part: Any) -> bool:
    """Whether a part is inside a text or one of a list, or is equal to another value."""
    if isinstance(value, list):
        return any(json_equal(element, part) for element in value)
    if isinstance(value, str) and is_number(part):
        return re.search(_in_text(part), value) is not None
    return part in value if isinstance(value, str) and isinstance(part, str) else json_equal(value, part)


def _anywhere(value: Any, expected: Any, options: Any) -> bool:
    """Find a forbidden value at any depth, in keys as well: inside a text, or an equal number."""
    texts = (_fold(leaf, options) for leaf in leaves(value))
    parts = [_fold(part, options) for part in as_list(expected)]
    return any(_is_in(text, part) for text in texts for part in parts)


def _is_searchable(expected: Any) -> bool:
    values = as_list(expected)
    return bool(values) and all(is_number(part) or (isinstance(part, str) and part != "") for part in values)


def _set(value: Any, expected: list[Any], _options: Any) -> Grade | float:
    """Give the harmonic mean of precision and recall (F1) of two lists as sets; 1 if both are empty."""
    actual, wanted = ({hashable(element): element for element in part} for part in (value, expected))
    faults = {
        "without": [element for key, element in wanted.items() if key not in actual],
        "beyond": [element for key, element in actual.items() if key not in wanted],
    }
    detail = "; ".join(f"{word} {format_value(elements)}" for word, elements in faults.items() if elements)
    common = len(wanted.keys() & actual)
    return Grade(2 * common / (len(wanted) + len(actual)), truncate(detail)) if detail else 1


def _text(value: Any, expected: str, options: Any) -> Grade | float:
    """Give the normalized Levenshtein similarity of two texts: the share of characters that need no edit."""
    distance = import_module("rapidfuzz.distance").Levenshtein
    similarity: float = distance.normalized_similarity(_fold(value, options), _fold(expected, options))
    if similarity == 1:
        return similarity
    detail = f"{similarity:.0%} alike: got {format_value(value)}"
    if similarity < options.at_least:
        return Grade(0.0, f"{detail}, under {options.at_least:.0%}")
    return Grade(similarity, detail)


def _matches(pattern: str, text: str, timeout: float) -> bool:
    """Whether a pattern matches somewhere in a text.

    Raises:
        CriterionError: the search took too long.
    """
    try:
        found: object = import_module("regex").search(pattern, text, timeout=timeout)
    except TimeoutError:
        wrong = f"the pattern {format_value(pattern)} ran longer than {timeout:g} s on {len(text)} characters"
        raise CriterionError(f"{wrong}; simplify it, or increase timeout") from None
    return found is not None


def _regex(value: Any, expected: str, options: Any) -> bool:
    """Give full points for a text in which the expected regular expression matches."""
    return _matches(expected, value, options.timeout)


def _pattern_flaw(expected: str, options: Any) -> str:
    """Describe why a text is no regular expression, or that every text has it."""
    try:
        decides = not all(_matches(expected, text, options.timeout) for text in _DIFFERENT_TEXTS)
    except import_module("regex").error as error:
        return f"got {format_value(expected)}: {error}"
    return "" if decides else f"{format_value(expected)} matches every text, so that it decides nothing"


@lru_cache
def _validator(timeout: float) -> Any:
    """Return a class that validates by a JSON Schema without network access, with a time limit for its patterns."""
    library = import_module("jsonschema")

    def check(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "string") and not _matches(pattern, value, timeout):
            yield library.ValidationError(f"{format_value(value)} does not match {format_value(pattern)}")

    return library.validators.extend(library.Draft202012Validator, {"pattern": check})


def schema_error(value: Any, schema: dict[str, Any], timeout: float) -> Flaw | None:
    """Return the most relevant error of a value under a JSON Schema; None if it is valid.

    Args:
        value: the value, plain JSON.
        schema: a schema without a flaw.
        timeout: the time limit of a search for a pattern, in seconds.

    Raises:
        CriterionError: the search for a pattern took too long.
    """
    validator = _validator(timeout)(schema, registry=import_module("referencing").Registry())
    error = import_module("jsonschema").exceptions.best_match(validator.iter_errors(value))
    return error and Flaw(tuple(error.absolute_path), truncate(error.message), "a value that is valid under the schema")


def schema_flaw(schema: dict[str, Any]) -> str:
    """Describe why an object is not a schema; empty if it is."""
    if f'"{_NO_TIME_LIMIT}":' in json.dumps(schema):
        return f"{_NO_TIME_LIMIT} is not supported, because its patterns have no time limit"
    library = import_module("jsonschema")
    try:
        library.Draft202012Validator.check_schema(schema)
    except library.SchemaError as error:
        return f"{json_pointer(error.absolute_path) or '/'}: {truncate(error.message)}"
    return ""


def _deciding_schema_flaw(expected: dict[str, Any], options: Any) -> str:
    """Describe why an object is not a schema, or that every value is valid under it."""
    flaw = schema_flaw(expected)
    try:
        decides = flaw or any(schema_error(value, expected, options.timeout) for value in _DIFFERENT_VALUES)
    except Exception:  # noqa: BLE001 - a reference that can't be resolved is an error of each comparison
        decides = True
    return flaw if decides else f"every value is valid under {format_value(expected)}, so that it decides nothing"


def _json_schema(value: Any, expected: dict[str, Any], options: Any) -> Grade | float:
    """Give full points for a value that is valid under the expected JSON Schema."""
    error = schema_error(value, expected, options.timeout)
    return 1 if error is None else Grade(0.0, f"{json_pointer(error.location) or '/'}: {error.wrong}")


def _subset(value: Any, expected: dict[str, Any], _options: Any) -> Grade | float:
    """Give the share of the expected leaves that the result has, whatever else its objects have."""
    found = list(_expected_leaves(expected, value, ()))
    wrong = [
        f"{json_pointer(place)}: {'nothing' if given is MISSING else f'got {format_value(given)}'}"
        for place, given, is_right in found
        if not is_right
    ]
    return Grade(1 - len(wrong) / len(found), truncate("; ".join(wrong))) if wrong else 1


def _expected_leaves(expected: Any, value: Any, place: Location) -> Iterator[tuple[Location, Any, bool]]:
    """Yield the place of each expected leaf, the value there, and whether it is right; lists have the same length."""
    wanted, given = _members(expected), _members(value)
    if isinstance(expected, list) and len(given) != len(wanted):
        given = {}
    for key, member in wanted.items():
        yield from _expected_leaves(member, given.get(key, MISSING), (*place, key))
    if not wanted:
        # an empty object is in every object
        is_right = isinstance(value, dict) if expected == {} else json_equal(value, expected)
        yield place, value, is_right


def _members(value: Any) -> dict[Any, Any]:
    """Return the members of an object by key, or of a list by index."""
    return value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}


def _sequence(value: Any, expected: list[Any], _options: Any) -> Grade | float:
    """Give the length of the longest common subsequence of two lists as a share of the longer one; 0 if too long."""
    given, wanted = ([hashable(each) for each in part] for part in (value, expected))
    if given == wanted:
        return 1
    longest = max(len(given), len(wanted))
    same = 0
    # without the common beginning, then without the common end
    for _ in range(2):
        start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(given, wanted, strict=False)))
        same, given, wanted = same + start, given[start:][::-1], wanted[start:][::-1]
    if len(given) * len(wanted) > _MAX_PAIRS:
        # an answer of any length is one that can be judged
        return Grade(0.0, f"a list of {len(value)}, too long to compare with {len(expected)} in order")
    # of what has been read of the given list, with each beginning of the expected one
    common = [0] * (len(wanted) + 1)
    for each in given:
        before = 0
        for index, other in enumerate(wanted, start=1):
            length = before + 1 if each == other else max(common[index], common[index - 1])
            before, common[index] = common[index], length
    return (same + common[-1]) / longest


def _ranked(value: Any, expected: Any, options: Any) -> Grade | float:
    """Give points for an expected value among the first `k`: 1, or 1 divided by its rank."""
    wanted = as_list(expected)
    for rank, each in enumerate(value[: options.k], start=1):
        if any(json_equal(each, one) for one in wanted):
            return Grade(1 / rank, f"at rank {rank}") if options.reciprocal and rank > 1 else 1
    return 0


def called(name: str, compared: Sequence[Any]) -> Grade:
    """Give the points of a function of a user: a bool, or a number from 0 to 1.

    Args:
        name: the name of the function, `package.module:attr`.
        compared: its arguments: the value in the result, the expected value, the case's input. It gets copies, so that
            it can't change what is recorded.

    Raises:
        CriterionError: it returns something else.
        Exception: whatever it raises.
    """
    points = imported(name)(*deepcopy(tuple(compared)))
    if not isinstance(points, bool | int | float) or not 0 <= points <= 1:
        raise CriterionError(f"{name} returned {format_value(points)}; expected a bool or a number from 0 to 1")
    return Grade(float(points), "" if points == 1 else f"{name} on {format_value(compared[0])}")


RULES: dict[str, Rule] = {
    "exact": Rule(exact, later=("ignore_case",)),
    "one_of": Rule(
        _one_of,
        form="a non-empty list",
        expects=list,
        accepts=bool,
        said="one of {expected}",
        later=("ignore_case",),
    ),
    "numeric": Rule(
        _numeric,
        form="a number",
        accepts=is_number,
        said="{expected}{options.tolerances}",
        options=("absolute", "relative"),
    ),
    "contains": Rule(
        _contains,
        form='a value other than "", or a non-empty list of such values',
        accepts=lambda expected: expected != [] and "" not in as_list(expected),
        said="contains {expected}",
        takes=str | list,
        options=("ignore_case",),
    ),
    "regex": Rule(
        _regex,
        form="a regular expression",
        expects=str,
        flaw=_pattern_flaw,
        said="matches {expected}",
        takes=str,
        options=("timeout",),
        libraries=("regex",),
    ),
    "set": Rule(_set, form="a list", expects=list, said="the set {expected}", takes=list),
    "json_schema": Rule(
        _json_schema,
        form=SCHEMA_FORM,
        expects=dict,
        flaw=_deciding_schema_flaw,
        said="valid under the schema {expected}",
        options=("timeout",),
        libraries=("jsonschema", "referencing", "regex"),
    ),
    "text": Rule(
        _text,
        form="a string",
        expects=str,
        said="like {expected}",
        takes=str,
        options=("at_least", "ignore_case"),
        libraries=("rapidfuzz.distance",),
        extra=TEXT,
    ),
    "subset": Rule(
        _subset,
        form="a non-empty object",
        expects=dict,
        accepts=bool,
        said="at least {expected}",
    ),
    "sequence": Rule(_sequence, form="a list", expects=list, said="in order {expected}", takes=list),
    "ranked": Rule(
        _ranked,
        form="a value, or a non-empty list of values of which one is enough",
        accepts=lambda expected: expected not in (None, []),
        said="among the first {options.k}: {expected}",
        takes=list,
        options=("k", "reciprocal"),
    ),
    PYTHON: Rule(said="{options.call} with {expected}", options=("path",)),
    ANYWHERE: Rule(
        _anywhere,
        form="a number or a non-empty string, or a non-empty list of these",
        accepts=_is_searchable,
        options=("ignore_case",),
    ),
}
"""The rules by their names in `suite.yaml`, in the order of the docs."""

FORBIDDEN = (ANYWHERE, "exact", "one_of", "contains", "regex", "python")
"""The rules of `forbidden`."""

LIST_RULES = frozenset({ANYWHERE, "contains", "one_of"})
"""The rules of `forbidden` that look for one of a list."""

PLAIN_RULES = LIST_RULES | {"exact"}
"""The rules of `forbidden` whose expected value is what they find."""

CRITERIA = tuple(name for name in RULES if name != ANYWHERE)
"""The rules of `criteria`."""


def import_libraries(rule: str, what: str) -> None:
    """Import what a rule requires.

    Args:
        rule: the name of the rule.
        what: what is said to require it.

    Raises:
        PydanticCustomError: it isn't installed.
    """
    row = RULES[rule]
    for library in row.libraries:
        import_extra(library, extra=row.extra, what=what)
