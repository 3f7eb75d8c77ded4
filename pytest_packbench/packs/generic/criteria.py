"""The criteria of `suite.yaml`: each compares a value in the result with an expected one, and gives 0 to 1 points.

A criterion is validated once per suite and keeps no state between cases. An expected value that it can't compare with
is a mistake in the suite or the case; a value in the result that it can't compare gets no points.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pytest_packbench.model.case import Fraction, StrictModel, Text
from pytest_packbench.model.errors import format_value, json_pointer, spellings
from pytest_packbench.packs.generic.values import (
    GENERIC,
    MISSING,
    TEXT,
    CompiledPath,
    CriterionError,
    Location,
    PathText,
    compile_path,
    hashable,
    import_extra,
    import_function,
    invalid,
    invalid_at,
    is_number,
    json_equal,
    leaves,
    require_json,
    truncate,
)

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=10)]
_TIMEOUT = 0.1
# relative error of binary fractions at the bounds of a tolerance
_ROUNDING = 1e-12
# a rule that accepts all of them accepts everything
_DIFFERENT_TEXTS = ("", "a", "0", " ", "\n\t-é")
_DIFFERENT_VALUES: tuple[Any, ...] = (None, True, 0, 1.5, *_DIFFERENT_TEXTS, [], [0], {}, {"a": 0})
_NO_TIME_LIMIT = "patternProperties"


class Grade(NamedTuple):
    """The result of a comparison.

    Attributes:
        points: 0 to 1.
        detail: in a few words, why there are not full points.
    """

    points: float
    detail: str = ""


FULL = Grade(1.0)


class Criterion(StrictModel):
    """One comparison of a value in the result with an expected value.

    Attributes:
        rule: how the two values are compared.
        name: the name of its term; default: the rule and the path.
        path: the path of the value in the result: a JSON pointer, or a JSONPath that starts with `$`; default: the
            whole result.
        expected: the path of the expected value under the case's `expected`; default: the same path.
        value: an expected value for all cases, instead of a path.
        weight: the weight of its points in the score.
        hard_fail: true: the case scores 0 if this gets less than full points; a number: if it gets less than that.
        text_keys: the rules that look for their values in texts.
    """

    main_key: ClassVar[str] = "path"
    expected_form: ClassVar[str] = "a value"
    text_keys: ClassVar = frozenset({"anywhere", "contains", "regex", "text"})

    rule: str
    name: Text | None = None
    path: PathText = ""
    expected: PathText | None = None
    value: Any = None
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    hard_fail: bool | Fraction = False

    @field_validator("value")
    @classmethod
    def _require_json(cls, value: Any) -> Any:
        return require_json(value)

    @field_validator("hard_fail", mode="wrap")
    @classmethod
    def _require_positive_minimum(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> bool | float:
        minimum: bool | float | None
        try:
            minimum = handler(value)
        except ValidationError:
            minimum = None
        if minimum is None or (minimum == 0 and minimum is not False):
            raise invalid(f"got {format_value(value)}", "true, false, or the minimum points, above 0 and at most 1")
        return minimum

    @model_validator(mode="after")
    def _validate(self) -> Self:
        if self.weight == 0 and self.hard_fail is False:
            raise invalid_at(("weight",), invalid("got 0, which has no effect", "a positive weight, or hard_fail"), 0)
        if self.has_value and self.expected is not None:
            raise invalid_at(("value",), invalid("both value and expected are set", "only one of them"), self.value)
        self._prepare()
        problem = self.expected_problem(self.value) if self.has_value else ""
        if problem:
            raise invalid_at(("value",), invalid(problem, self.expected_form), self.value)
        return self

    def _prepare(self) -> object:
        """Import and return what the comparison requires; it is kept for all cases of the suite.

        Raises:
            PydanticCustomError: it can't be imported.
        """
        return None

    @cached_property
    def has_value(self) -> bool:
        """Whether the expected value is the same for all cases."""
        return "value" in self.model_fields_set

    @cached_property
    def title(self) -> str:
        """The name of its term."""
        return self.name or f"{self.rule} {self.path}".rstrip()

    @cached_property
    def result_path(self) -> CompiledPath:
        """The path of the value in the result."""
        return compile_path(self.path)

    @cached_property
    def expected_path(self) -> CompiledPath:
        """The path of the expected value under the case's `expected`."""
        return compile_path(self.path if self.expected is None else self.expected)

    def expected_in(self, expected: Any) -> Any:
        """Return the expected value of a case, `MISSING` if the case has none.

        Args:
            expected: the case's `expected`.
        """
        return self.value if self.has_value else self.expected_path.find(expected)

    def value_in(self, result: Any, expected: Any) -> Any:
        """Return the value in a result, `MISSING` if there is none.

        Args:
            result: the result as plain JSON.
            expected: the expected value. If it is an empty list, a path that may match several values finds one, too.
        """
        path = self.result_path
        value = path.find(result)
        return [] if value is MISSING and path.is_multiple and expected == [] else value

    def expected_problem(self, expected: Any) -> str:
        """Describe why an expected value can't be compared with; empty if it can."""
        return "" if self.accepts(expected) else f"got {format_value(expected)}"

    def accepts(self, expected: Any) -> bool:  # noqa: ARG002 - most rules accept some expected values only
        """Whether the rule can compare with an expected value."""
        return True

    def grade(self, value: Any, expected: Any, case_input: Any) -> Grade:  # noqa: ARG002 - only users' functions get it
        """Compare a value in the result with an expected value that the rule accepts.

        Raises:
            CriterionError: the comparison failed to run.
        """
        return self.compare(value, expected)

    def compare(self, value: Any, expected: Any) -> Grade:
        """Compare two values; see `grade`."""
        raise NotImplementedError

    def describe(self, expected: Any) -> str:
        """Describe the values that get full points, for tables."""
        return format_value(expected)

    def _mismatch(self, value: Any, expected: Any) -> Grade:
        return Grade(0.0, f"got {format_value(value)}, expected {self.describe(expected)}")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the long form and both short forms."""
        schema = handler(core_schema)
        long_form = handler.resolve_ref_schema(schema)
        properties = dict(long_form["properties"])
        rule = properties.pop("rule", {}).get("const")
        if rule is None:
            return schema
        shared = {"type": "object", "additionalProperties": False}
        nested = {**shared, "properties": properties}
        required = [name for name in long_form.get("required", ()) if name not in {"rule", cls.main_key}]
        short = {rule: {"anyOf": [properties[cls.main_key], nested]}}
        others = {name: part for name, part in properties.items() if name != cls.main_key}
        forms = [
            {**shared, "properties": long_form["properties"], "required": long_form["required"]},
            {**shared, "properties": {**short, **others}, "required": [rule, *required]},
        ]
        for name in long_form.keys() - {"title", "description"}:
            del long_form[name]
        long_form["anyOf"] = forms
        return schema


class Exact(Criterion):
    """Full points for an equal JSON value."""

    rule: Literal["exact"]

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return 1 or 0 points."""
        return FULL if json_equal(value, expected) else self._mismatch(value, expected)


class OneOf(Criterion):
    """Full points for a value that is equal to one of the expected list."""

    expected_form = "a non-empty list"

    rule: Literal["one_of"]

    def accepts(self, expected: Any) -> bool:
        """Accept a list that isn't empty."""
        return isinstance(expected, list) and bool(expected)

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return 1 or 0 points."""
        return FULL if any(json_equal(value, option) for option in expected) else self._mismatch(value, expected)

    def describe(self, expected: Any) -> str:
        """Return the list."""
        return f"one of {format_value(expected)}"


class Numeric(Criterion):
    """Full points for a number within a tolerance: the wider of the two, bounds included.

    Attributes:
        absolute: in the unit of the number.
        relative: as a share of the expected number.
    """

    expected_form = "a number"

    rule: Literal["numeric"]
    absolute: Tolerance = 0.0
    relative: Tolerance = 0.0

    def accepts(self, expected: Any) -> bool:
        """Accept a finite number."""
        return is_number(expected)

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return 1 or 0 points."""
        if not is_number(value):
            return Grade(0.0, f"got {format_value(value)}, which is not a number")
        try:
            rounding = _ROUNDING * max(abs(value), abs(expected))
            tolerance = max(self.absolute, self.relative * abs(expected))
            is_close = abs(value - expected) <= tolerance + rounding
        except OverflowError:
            is_close = value == expected
        return FULL if is_close else self._mismatch(value, expected)

    def describe(self, expected: Any) -> str:
        """Return the number and its tolerances."""
        absolute = f" ± {self.absolute:g}" if self.absolute else ""
        return f"{format_value(expected)}{absolute}{f' ± {self.relative:.6g} of it' if self.relative else ''}"


class CaseCriterion(Criterion):
    """A criterion that may ignore the case of strings.

    Attributes:
        ignore_case: whether upper and lower case are equal.
    """

    ignore_case: bool = False

    def _fold(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._fold(element) for element in value]
        return value.casefold() if self.ignore_case and isinstance(value, str) else value


class Contains(CaseCriterion):
    """The share of the expected strings found in a string, or of the expected values found in a list.

    Attributes:
        ignore_case: whether upper and lower case are equal.
    """

    expected_form = 'a value other than "", or a non-empty list of such values'

    rule: Literal["contains"]

    def accepts(self, expected: Any) -> bool:
        """Accept anything but what every string or list contains."""
        return bool(_as_list(expected)) and "" not in _as_list(expected)

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return the share of the expected values that are found."""
        if not isinstance(value, str | list):
            return Grade(0.0, f"got {format_value(value)}, which is neither a string nor a list")
        forms, expected_values = [self._fold(form) for form in spellings(value)], _as_list(expected)
        missing = [part for part in expected_values if not any(map(_is_in, forms, map(self._fold, spellings(part))))]
        return Grade(1 - len(missing) / len(expected_values), f"without {format_value(missing)}") if missing else FULL

    def describe(self, expected: Any) -> str:
        """Return the expected values."""
        return f"contains {format_value(expected)}"


def _as_list(expected: Any) -> list[Any]:
    return expected if isinstance(expected, list) else [expected]


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


class ContainsAnywhere(CaseCriterion):
    """A forbidden value at any depth of the result, in keys as well: inside a string, or an equal number.

    Attributes:
        ignore_case: whether upper and lower case are equal.
    """

    expected_form = "a number or a non-empty string, or a non-empty list of these"

    rule: Literal["anywhere"]

    def accepts(self, expected: Any) -> bool:
        """Accept numbers and strings that aren't empty, or a list of these."""
        values = _as_list(expected)
        return bool(values) and all(is_number(part) or (isinstance(part, str) and part != "") for part in values)

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return 1 or 0 points."""
        parts, texts = [self._fold(part) for part in _as_list(expected)], map(self._fold, leaves(value))
        return FULL if any(_is_in(text, part) for text in texts for part in parts) else Grade(0.0)


class SetOf(Criterion):
    """The harmonic mean of precision and recall (F1) of two lists, compared as sets."""

    expected_form = "a list"

    rule: Literal["set"]

    def accepts(self, expected: Any) -> bool:
        """Accept a list; an empty one expects an empty one."""
        return isinstance(expected, list)

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return F1; 1 if both are empty."""
        if not isinstance(value, list):
            return Grade(0.0, f"got {format_value(value)}, which is not a list")
        actual = {hashable(element): element for element in value}
        wanted = {hashable(element): element for element in expected}
        common = actual.keys() & wanted.keys()
        if len(common) == len(actual) == len(wanted):
            return FULL
        missing = [element for key, element in wanted.items() if key not in actual]
        unexpected = [element for key, element in actual.items() if key not in wanted]
        details = [f"without {format_value(missing)}"] * bool(missing) + [f"beyond {format_value(unexpected)}"] * bool(
            unexpected
        )
        return Grade(2 * len(common) / (len(actual) + len(wanted)), truncate("; ".join(details)))

    def describe(self, expected: Any) -> str:
        """Return the members."""
        return f"the set {format_value(expected)}"


class TextSimilarity(CaseCriterion):
    """The normalized Levenshtein similarity of two strings: the share of characters that need no edit.

    Attributes:
        at_least: the similarity below which there are no points.
        ignore_case: whether upper and lower case are equal.
    """

    expected_form = "a string"

    rule: Literal["text"]
    at_least: Fraction = 0.0

    @cached_property
    def _similarity(self) -> Callable[[str, str], float]:
        library = import_extra("rapidfuzz.distance", extra=TEXT, what='the rule "text"')
        similarity: Callable[[str, str], float] = library.Levenshtein.normalized_similarity
        return similarity

    def _prepare(self) -> object:
        return self._similarity

    def accepts(self, expected: Any) -> bool:
        """Accept a string."""
        return isinstance(expected, str)

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return the similarity."""
        if not isinstance(value, str):
            return Grade(0.0, f"got {format_value(value)}, which is not a string")
        similarity = self._similarity(self._fold(value), self._fold(expected))
        if similarity == 1:
            return FULL
        detail = f"{similarity:.0%} alike: got {format_value(value)}"
        if similarity < self.at_least:
            return Grade(0.0, f"{detail}, under {self.at_least:.0%}")
        return Grade(similarity, detail)

    def describe(self, expected: Any) -> str:
        """Return the text."""
        return f"like {format_value(expected)}"


class TimedPatterns:
    """Regular expressions whose searches have a time limit, in seconds."""

    def __init__(self, timeout: float, what: str) -> None:
        self.timeout = timeout
        self._library = import_extra("regex", extra=GENERIC, what=what)
        # a case's pattern is compiled when the case is validated, and again when it is scored
        self._compile = lru_cache(maxsize=1024)(self._library.compile)

    def is_valid(self, pattern: Any) -> bool:
        """Whether a value is a regular expression."""
        try:
            return isinstance(pattern, str) and self._compile(pattern) is not None
        except self._library.error:
            return False

    def matches(self, pattern: str, text: str) -> bool:
        """Whether a pattern matches somewhere in a text.

        Raises:
            CriterionError: the search took too long.
        """
        try:
            return self._compile(pattern).search(text, timeout=self.timeout) is not None
        except TimeoutError:
            wrong = f"the pattern {format_value(pattern)} ran longer than {self.timeout:g} s on {len(text)} characters"
            raise CriterionError(f"{wrong}; simplify it, or increase timeout") from None


class Regex(Criterion):
    """Full points for a string in which the expected regular expression matches.

    Attributes:
        timeout: the time limit of a search, in seconds; above it the case is an error.
    """

    expected_form = "a non-empty regular expression"

    rule: Literal["regex"]
    timeout: Seconds = _TIMEOUT

    @cached_property
    def _patterns(self) -> TimedPatterns:
        return TimedPatterns(self.timeout, 'the rule "regex"')

    def _prepare(self) -> object:
        return self._patterns

    def accepts(self, expected: Any) -> bool:
        """Accept a regular expression that isn't empty."""
        return bool(expected) and self._patterns.is_valid(expected)

    def expected_problem(self, expected: Any) -> str:
        """Describe why a value is not a regular expression, or that every text has it."""
        if self.accepts(expected) and all(self._patterns.matches(expected, text) for text in _DIFFERENT_TEXTS):
            return f"got {format_value(expected)}, which matches every text, so that it decides nothing"
        return super().expected_problem(expected)

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return 1 or 0 points."""
        if not isinstance(value, str):
            return Grade(0.0, f"got {format_value(value)}, which is not a string")
        return FULL if self._patterns.matches(expected, value) else self._mismatch(value, expected)

    def describe(self, expected: Any) -> str:
        """Return the pattern."""
        return f"matches {format_value(expected)}"


class SchemaError(NamedTuple):
    """An error of a value under a JSON Schema, and its location in the value."""

    location: Location
    message: str


FirstError = Callable[[Any], SchemaError | None]


class JsonSchemas:
    """JSON Schemas (draft 2020-12) without network access, whose patterns have a time limit."""

    FORM = "a JSON Schema (draft 2020-12)"

    def __init__(self, timeout: float, what: str) -> None:
        self._library = import_extra("jsonschema", extra=GENERIC, what=what)
        self._registry = import_extra("referencing", extra=GENERIC, what=what).Registry()
        self._patterns = TimedPatterns(timeout, what)
        base = self._library.Draft202012Validator
        self._validator = self._library.validators.extend(base, {"pattern": self._check_pattern})

    def problem(self, schema: Any) -> str:
        """Describe why a value is not a schema; empty if it is."""
        if not isinstance(schema, dict):
            return f"got {format_value(schema)}"
        if _has_key(schema, _NO_TIME_LIMIT):
            return f"{_NO_TIME_LIMIT} is not supported, because its patterns have no time limit"
        try:
            self._library.Draft202012Validator.check_schema(schema)
        except self._library.SchemaError as error:
            return f"{json_pointer(error.absolute_path) or '/'}: {truncate(error.message)}"
        return ""

    def compile(self, schema: Any) -> FirstError:
        """Return the function that finds the most relevant error of a value.

        It raises `CriterionError` if the search for a pattern takes too long.
        """
        validator = self._validator(schema, registry=self._registry)

        def first_error(value: Any) -> SchemaError | None:
            error = self._library.exceptions.best_match(validator.iter_errors(value))
            return None if error is None else SchemaError(tuple(error.absolute_path), truncate(error.message))

        return first_error

    def _check_pattern(self, validator: Any, pattern: str, value: Any, _schema: Any) -> Any:
        if validator.is_type(value, "string") and not self._patterns.matches(pattern, value):
            yield self._library.ValidationError(f"{format_value(value)} does not match {format_value(pattern)}")


def _has_key(value: Any, name: str) -> bool:
    if isinstance(value, dict):
        return name in value or any(_has_key(member, name) for member in value.values())
    return isinstance(value, list) and any(_has_key(element, name) for element in value)


class JsonSchema(Criterion):
    """Full points for a value that is valid under the expected JSON Schema.

    Attributes:
        timeout: the time limit of a search for a `pattern`, in seconds; above it the case is an error.
    """

    expected_form = JsonSchemas.FORM

    rule: Literal["json_schema"]
    timeout: Seconds = _TIMEOUT

    @cached_property
    def _schemas(self) -> JsonSchemas:
        return JsonSchemas(self.timeout, 'the rule "json_schema"')

    def _prepare(self) -> object:
        return self._schemas

    @cached_property
    def _first_error(self) -> FirstError:
        return self._schemas.compile(self.value)

    def expected_problem(self, expected: Any) -> str:
        """Describe why an expected value is not a schema, or that every value is valid under it; empty otherwise."""
        problem = self._schemas.problem(expected)
        if not problem and self._accepts_everything(expected):
            return f"every value is valid under {format_value(expected)}, so that it decides nothing"
        return problem

    def _accepts_everything(self, schema: Any) -> bool:
        first_error = self._schemas.compile(schema)
        try:
            return all(first_error(value) is None for value in _DIFFERENT_VALUES)
        except Exception:  # noqa: BLE001 - a reference that can't be resolved is an error of each comparison
            return False

    def compare(self, value: Any, expected: Any) -> Grade:
        """Return 1 or 0 points."""
        error = (self._first_error if self.has_value else self._schemas.compile(expected))(value)
        return FULL if error is None else Grade(0.0, f"{json_pointer(error.location) or '/'}: {error.message}")

    def describe(self, expected: Any) -> str:
        """Return the schema."""
        return f"valid under the schema {format_value(expected)}"


class PythonFunction(Criterion):
    """The points that a function returns: a bool, or a number from 0 to 1.

    Attributes:
        call: the function, `package.module:attr`; its arguments are the value in the result, the expected value, and
            the case's input.
    """

    main_key = "call"

    rule: Literal["python"]
    call: str

    @cached_property
    def _function(self) -> Callable[[Any, Any, Any], Any]:
        try:
            function: Callable[[Any, Any, Any], Any] = import_function(self.call)
            if inspect.iscoroutinefunction(function):
                raise invalid(f'"{self.call}" is async', "a synchronous function")
        except PydanticCustomError as problem:
            raise invalid_at(("call",), problem, self.call) from None
        return function

    def _prepare(self) -> object:
        return self._function

    def grade(self, value: Any, expected: Any, case_input: Any) -> Grade:
        """Return the points of the function, which gets copies, so that it can't change what is recorded."""
        points = self._function(deepcopy(value), deepcopy(expected), deepcopy(case_input))
        if not isinstance(points, bool | int | float):
            returned = type(points).__name__
            raise CriterionError(f"{self.call} returned {returned}, expected a bool or a number from 0 to 1")
        if not 0 <= points <= 1:
            raise CriterionError(f"{self.call} returned {points!r}, expected a number from 0 to 1")
        return FULL if points == 1 else Grade(float(points), f"{self.call} on {format_value(value)}")

    def describe(self, expected: Any) -> str:
        """Return the function and the expected value."""
        return f"{self.call} with {format_value(expected)}"
