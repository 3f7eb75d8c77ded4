"""The rules: how a value of the result compares with the expected one, as points from 0 to 1.

A rule is made once for a suite and remembers nothing. What it can't compare in the expected value is the suite's or the
case's mistake; what it can't compare in the result is worth nothing. Settings are those of the criterion of its name.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_packbench.model.errors import format_value, json_pointer
from pytest_packbench.packs.generic.refused import GENERIC, TEXT, import_function, need, refused
from pytest_packbench.packs.generic.values import brief, is_number, key, leaves, same

if TYPE_CHECKING:
    from collections.abc import Callable

_NOISE = 1e-12
_UNBOUNDED = "patternProperties"


class CriterionError(ValueError):
    """A criterion gave no points because it broke, which is another thing than giving none."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What a rule gives.

    Attributes:
        points: 0 to 1.
        detail: why not all of them, in a few words.
    """

    points: float
    detail: str = ""


FULL = Grade(1.0)


class Rule(ABC):
    """One way to compare.

    Attributes:
        wants: what the expected value has to be.
    """

    wants: ClassVar[str] = "a value"

    def usable(self, expected: Any) -> bool:  # noqa: ARG002 - most rules take some values only
        """Whether the rule can compare with an expected value."""
        return True

    def wrong(self, expected: Any) -> str:
        """Say what stands there that the rule can't compare with."""
        return f"got {format_value(expected)}"

    @abstractmethod
    def grade(self, value: Any, expected: Any, given: Any) -> Grade:
        """Compare.

        Args:
            value: what stands in the result.
            expected: what should, usable.
            given: the case's input.

        Raises:
            CriterionError: the comparison broke.
        """

    def wanted(self, expected: Any) -> str:
        """Say what is wanted, for tables."""
        return format_value(expected)


def _apart(value: Any, wanted: str) -> Grade:
    return Grade(0.0, f"got {format_value(value)}, expected {wanted}")


class Exact(Rule):
    """The same JSON value."""

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give 1 or 0."""
        return FULL if same(value, expected) else _apart(value, self.wanted(expected))


class OneOf(Rule):
    """The same JSON value as one of a list."""

    wants = "a list of one value or more"

    def usable(self, expected: Any) -> bool:
        """Take a list that isn't empty."""
        return isinstance(expected, list) and bool(expected)

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give 1 or 0."""
        return FULL if any(same(value, one) for one in expected) else _apart(value, self.wanted(expected))

    def wanted(self, expected: Any) -> str:
        """Name the list."""
        return f"one of {format_value(expected)}"


@dataclass(frozen=True, slots=True)
class Numeric(Rule):
    """A number within a tolerance, the wider of the two; the ends belong to it."""

    wants = "a number"
    absolute: float
    relative: float

    def usable(self, expected: Any) -> bool:
        """Take a finite number."""
        return is_number(expected)

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give 1 or 0."""
        if not is_number(value):
            return Grade(0.0, f"got {format_value(value)}, which is no number")
        return FULL if self._near(value, expected) else _apart(value, self.wanted(expected))

    def _near(self, value: Any, expected: Any) -> bool:
        try:
            # binary fractions do not decide at the ends of a tolerance
            noise = _NOISE * max(abs(value), abs(expected))
            return bool(abs(value - expected) <= max(self.absolute, self.relative * abs(expected)) + noise)
        except OverflowError:
            return bool(value == expected)

    def wanted(self, expected: Any) -> str:
        """Give number and tolerances."""
        absolute = f" ± {self.absolute:g}" if self.absolute else ""
        return f"{format_value(expected)}{absolute}{f' ± {self.relative:.6g} of it' if self.relative else ''}"


@dataclass(frozen=True, slots=True)
class Contains(Rule):
    """A text that contains texts, or a list that contains values; the share that is there."""

    wants = "a text, a value or a list of these, none empty"
    ignore_case: bool

    def usable(self, expected: Any) -> bool:
        """Take what not everything contains."""
        return bool(_listed(expected)) and "" not in _listed(expected)

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give the share of the expected values that are there."""
        if not isinstance(value, str | list):
            return Grade(0.0, f"got {format_value(value)}, which is neither text nor a list")
        wanted = _listed(expected)
        lost = [one for one in wanted if not self._holds(value, one)]
        return Grade(1 - len(lost) / len(wanted), f"without {format_value(lost)}") if lost else FULL

    def _holds(self, value: Any, wanted: Any) -> bool:
        if isinstance(value, str):
            return isinstance(wanted, str) and self._folded(wanted) in self._folded(value)
        return any(same(self._folded(one), self._folded(wanted)) for one in value)

    def _folded(self, value: Any) -> Any:
        return value.casefold() if self.ignore_case and isinstance(value, str) else value

    def wanted(self, expected: Any) -> str:
        """Name the values."""
        return f"contains {format_value(expected)}"


def _listed(expected: Any) -> list[Any]:
    return expected if isinstance(expected, list) else [expected]


class SetOf(Rule):
    """Two lists as sets: the harmonic mean of precision and recall (F1)."""

    wants = "a list"

    def usable(self, expected: Any) -> bool:
        """Take a list; an empty one asks for an empty one."""
        return isinstance(expected, list)

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give F1; 1 where both are empty."""
        if not isinstance(value, list):
            return Grade(0.0, f"got {format_value(value)}, which is no list")
        found, wanted = {key(one): one for one in value}, {key(one): one for one in expected}
        common = found.keys() & wanted.keys()
        if len(common) == len(found) == len(wanted):
            return FULL
        points = 2 * len(common) / (len(found) + len(wanted))
        parts = (("without", wanted, found), ("beyond", found, wanted))
        odd = ((word, [one for name, one in mine.items() if name not in theirs]) for word, mine, theirs in parts)
        return Grade(points, brief("; ".join(f"{word} {format_value(values)}" for word, values in odd if values)))

    def wanted(self, expected: Any) -> str:
        """Name the members."""
        return f"the set {format_value(expected)}"


class Text(Rule):
    """Texts that are alike: the share of characters that need no edit (normalised Levenshtein similarity)."""

    wants = "a text"

    def __init__(self, *, at_least: float, ignore_case: bool) -> None:
        self.at_least = at_least
        self.ignore_case = ignore_case
        library = need("rapidfuzz.distance", extra=TEXT, what='the rule "text"')
        self._similarity: Callable[[str, str], float] = library.Levenshtein.normalized_similarity

    def usable(self, expected: Any) -> bool:
        """Take a text."""
        return isinstance(expected, str)

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give the similarity."""
        if not isinstance(value, str):
            return Grade(0.0, f"got {format_value(value)}, which is no text")
        if self.ignore_case:
            value, expected = value.casefold(), expected.casefold()
        alike = self._similarity(value, expected)
        if alike == 1:
            return FULL
        detail = f"{alike:.0%} alike: got {format_value(value)}"
        return Grade(alike, detail) if alike >= self.at_least else Grade(0.0, f"{detail}, under {self.at_least:.0%}")

    def wanted(self, expected: Any) -> str:
        """Give the text."""
        return f"like {format_value(expected)}"


class Bounded:
    """Patterns whose searches are given up after a time, in seconds."""

    def __init__(self, timeout: float, what: str) -> None:
        self.timeout = timeout
        self._library = need("regex", extra=GENERIC, what=what)
        # a case's pattern is asked for when the case is read, and again when it is scored
        self._compiled = lru_cache(maxsize=1024)(self._library.compile)

    def compiles(self, pattern: Any) -> bool:
        """Whether it is a pattern."""
        try:
            return isinstance(pattern, str) and self._compiled(pattern) is not None
        except self._library.error:
            return False

    def found(self, pattern: str, text: str) -> bool:
        """Whether a pattern is found in a text.

        Raises:
            CriterionError: it took too long.
        """
        try:
            return self._compiled(pattern).search(text, timeout=self.timeout) is not None
        except TimeoutError:
            why = f"the pattern {format_value(pattern)} ran longer than {self.timeout:g} s on {len(text)} characters"
            raise CriterionError(f"{why}; make it simpler, or raise timeout") from None


class Regex(Rule):
    """A text in which a pattern is found."""

    wants = "a regular expression that is not empty"

    def __init__(self, timeout: float) -> None:
        self._patterns = Bounded(timeout, 'the rule "regex"')

    def usable(self, expected: Any) -> bool:
        """Take a pattern."""
        return bool(expected) and self._patterns.compiles(expected)

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give 1 or 0."""
        if not isinstance(value, str):
            return Grade(0.0, f"got {format_value(value)}, which is no text")
        return FULL if self._patterns.found(expected, value) else _apart(value, self.wanted(expected))

    def wanted(self, expected: Any) -> str:
        """Give the pattern."""
        return f"matches {format_value(expected)}"


class Schemas:
    """JSON Schemas (draft 2020-12) that reach no network and whose patterns have a time limit."""

    def __init__(self, timeout: float, what: str) -> None:
        self._library = need("jsonschema", extra=GENERIC, what=what)
        self._registry = need("referencing", extra=GENERIC, what=what).Registry()
        self._patterns = Bounded(timeout, what)
        base = self._library.Draft202012Validator
        self._validator = self._library.validators.extend(base, {"pattern": self._pattern})

    def mistake(self, schema: Any) -> str:
        """Say what is wrong with a schema; empty where nothing is."""
        if not isinstance(schema, dict):
            return f"got {format_value(schema)}"
        if _has_key(schema, _UNBOUNDED):
            return f"{_UNBOUNDED}, whose patterns have no time limit"
        try:
            self._library.Draft202012Validator.check_schema(schema)
        except self._library.SchemaError as error:
            return f"{json_pointer(error.absolute_path) or '/'}: {brief(error.message)}"
        return ""

    def validator(self, schema: Any) -> Any:
        """Make a schema's validator."""
        return self._validator(schema, registry=self._registry)

    def best(self, validator: Any, value: Any) -> tuple[tuple[str | int, ...], str] | None:
        """Give the most telling thing wrong with a value, with its place; None where nothing is.

        Raises:
            CriterionError: a pattern took too long.
        """
        error = self._library.exceptions.best_match(validator.iter_errors(value))
        return None if error is None else (tuple(error.absolute_path), brief(error.message))

    def _pattern(self, validator: Any, pattern: str, value: Any, _schema: Any) -> Any:
        if validator.is_type(value, "string") and not self._patterns.found(pattern, value):
            yield self._library.ValidationError(f"{format_value(value)} does not match {format_value(pattern)}")


def _has_key(value: Any, name: str) -> bool:
    if isinstance(value, dict):
        return name in value or any(_has_key(inner, name) for inner in value.values())
    return isinstance(value, list) and any(_has_key(inner, name) for inner in value)


class JsonSchema(Rule):
    """A value that a JSON Schema takes."""

    wants = "a JSON Schema (draft 2020-12)"

    def __init__(self, timeout: float, fixed: Any = None) -> None:
        self._schemas = Schemas(timeout, 'the rule "json_schema"')
        self._fixed = None if fixed is None or not self.usable(fixed) else self._schemas.validator(fixed)

    def usable(self, expected: Any) -> bool:
        """Take a schema."""
        return not self._schemas.mistake(expected)

    def wrong(self, expected: Any) -> str:
        """Say what is wrong with the schema."""
        return self._schemas.mistake(expected)

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give 1 or 0."""
        validator = self._fixed or self._schemas.validator(expected)
        wrong = self._schemas.best(validator, value)
        return FULL if wrong is None else Grade(0.0, f"{json_pointer(wrong[0]) or '/'}: {wrong[1]}")

    def wanted(self, expected: Any) -> str:
        """Give the schema."""
        return f"by the schema {format_value(expected)}"


class Python(Rule):
    """A function of the user's."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._function = import_function(call)
        if inspect.iscoroutinefunction(self._function):
            raise refused(f'"{call}" is async', "a plain function; scoring waits for nothing")

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:
        """Give what the function gives, which gets copies: it can't spoil what is recorded."""
        points = self._function(deepcopy(value), deepcopy(expected), deepcopy(given))
        if not isinstance(points, bool | int | float):
            raise CriterionError(f"{self._call} gave {type(points).__name__}, expected a bool or a number from 0 to 1")
        if not 0 <= points <= 1:
            raise CriterionError(f"{self._call} gave {points!r}, which is no number from 0 to 1")
        return FULL if points == 1 else Grade(float(points), f"{self._call} on {format_value(value)}")

    def wanted(self, expected: Any) -> str:
        """Name function and expected value."""
        return f"{self._call} with {format_value(expected)}"


@dataclass(frozen=True, slots=True)
class Anywhere(Rule):
    """A value that holds one of these in any depth: a text inside a text, or the same number."""

    wants = "a text or a number, or a list of these, none empty"
    ignore_case: bool

    def usable(self, expected: Any) -> bool:
        """Take what not everything holds."""
        values = _listed(expected)
        return bool(values) and all(is_number(one) or (isinstance(one, str) and one != "") for one in values)

    def grade(self, value: Any, expected: Any, given: Any) -> Grade:  # noqa: ARG002 - see Rule
        """Give 1 or 0."""
        wanted = [self._folded(one) for one in _listed(expected)]
        found = any(_appears(self._folded(leaf), one) for leaf in leaves(value) for one in wanted)
        return FULL if found else Grade(0.0)

    def _folded(self, value: Any) -> Any:
        return value.casefold() if self.ignore_case and isinstance(value, str) else value


def _appears(leaf: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(leaf, str) and wanted in leaf
    return same(leaf, wanted)
