"""The generic suite's rules, the forms in which `suite.yaml` writes them, and its cases.

A criterion has several forms: `exact: /answer`, `exact: {path: /answer}` and `{rule: exact, path: /answer}` are the
same one. Errors name the location where it is written.
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from pytest_packbench.model.case import Case, Fraction, ListOf, Notes, StrictModel, Threshold
from pytest_packbench.model.errors import fold, format_value
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.generic.criteria import (
    Contains,
    ContainsAnywhere,
    Criterion,
    Exact,
    JsonSchema,
    JsonSchemas,
    Numeric,
    OneOf,
    PythonFunction,
    Regex,
    SetOf,
    TextSimilarity,
)
from pytest_packbench.packs.generic.values import (
    MISSING,
    CompiledPath,
    Location,
    PathText,
    compile_path,
    invalid,
    invalid_at,
    json_equal,
    require_json,
    unknown_word,
    validation_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

    from pytest_packbench.packs.generic.criteria import FirstError

_PATTERN_TIMEOUT = 1.0
_FIRST_KEYS = re.compile(r"\$(?:\.[A-Za-z_]\w*(?!\())*")
_FIRST_KEY = re.compile(r"\.(\w+)")


def _not_empty(criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    if not criteria:
        raise invalid("got an empty list", "at least one criterion")
    return criteria


def _schemas() -> JsonSchemas:
    return JsonSchemas(_PATTERN_TIMEOUT, "a JSON Schema of the cases")


def _validate_schema(schema: dict[str, Any]) -> dict[str, Any]:
    problem = _schemas().problem(require_json(schema))
    if problem:
        raise invalid(problem, JsonSchemas.FORM)
    return schema


CaseSchema = Annotated[dict[str, Any], AfterValidator(_validate_schema)]


class RefusalRules(StrictModel):
    """How a result says that it is a refusal, and how a case says that a refusal is expected.

    Attributes:
        path: the path in the result; it is a refusal if there is a value that isn't null, false, 0 or empty.
        value: the value at `path` in a refusal, or a list of such values; default: any value as above.
        category: the path of the refusal's category in the result.
        expected: the path under the case's `expected` at which true means that a refusal is expected.
        expected_category: the path under the case's `expected` of the expected category; without one, any will do.
        wrong_category: the points of an expected refusal with another category.
    """

    path: PathText = "/refusal"
    value: Any = None
    category: PathText = "/refusal/category"
    expected: PathText = "/refuse"
    expected_category: PathText = "/category"
    wrong_category: Fraction = 0.5

    @model_validator(mode="after")
    def _require_json_value(self) -> Self:
        require_json(self.value)
        if not self.path and "value" not in self.model_fields_set:
            problem = invalid("with the path of the whole result, every answer is a refusal", "a path, or value")
            raise invalid_at(("path",), problem, self.path)
        return self

    def is_refusal(self, result: Any) -> bool:
        """Whether a result is a refusal."""
        value = compile_path(self.path).find(result)
        if value is MISSING:
            return False
        if "value" not in self.model_fields_set:
            return bool(value)
        refusals = self.value if isinstance(self.value, list) else [self.value]
        return any(json_equal(fold(value), fold(refusal)) for refusal in refusals)

    def category_in(self, result: Any) -> Any:
        """Return the category in a refusal, whatever its type; None if it has none."""
        category = compile_path(self.category).find(result)
        return None if category is MISSING else category

    def is_expected(self, case: Case) -> bool:
        """Whether a case expects a refusal."""
        return compile_path(self.expected).find(case.expected) is True

    def expected_category_of(self, case: Case) -> str | None:
        """Return the category that a case expects; None if any will do."""
        category = compile_path(self.expected_category).find(case.expected)
        return category if isinstance(category, str) else None

    def errors(self, expected: Any) -> Iterator[InitErrorDetails]:
        """Yield what is wrong in a case's `expected` with the keys of refusals."""
        path = compile_path(self.expected)
        value = path.find(expected)
        if value is not MISSING and not isinstance(value, bool):
            yield _error_at(path, value, f"got {format_value(value)}", "true if a refusal is expected, else false")
        if value is True:
            path = compile_path(self.expected_category)
            category = path.find(expected)
            if category is not MISSING and not isinstance(category, str | None):
                yield _error_at(
                    path, category, f"got {format_value(category)}", "the category of the refusal, a string"
                )


class GenericSuiteConfig(SuiteConfig):
    """The `suite.yaml` of a generic suite.

    Attributes:
        criteria: what an answer is compared with; the score is the weighted mean of their points. Default: the whole
            result has to be equal to the case's `expected`.
        refusal: how results and cases describe refusals.
        forbidden: what fails a case hard, in a refusal as well.
        input_schema: the JSON Schema of every case's `input`.
        expected_schema: the JSON Schema of every case's `expected`.
        text_keys: the keys whose values are looked for in texts.
    """

    criteria: Annotated[ListOf[AnyCriterion], AfterValidator(_not_empty)] = Field(
        ({"rule": "exact"},), validate_default=True
    )
    refusal: RefusalRules = RefusalRules.model_construct()
    forbidden: ListOf[AnyForbidden] = ()
    input_schema: CaseSchema | None = None
    expected_schema: CaseSchema | None = None

    text_keys: ClassVar = frozenset({"forbidden"})

    @model_validator(mode="after")
    def _validate_criteria(self) -> Self:
        titles: set[str] = set()
        for index, criterion in enumerate(self.criteria):
            if criterion.title in titles:
                problem = invalid(f'duplicate criterion "{criterion.title}"', "a unique name")
                raise invalid_at(("criteria", index), problem, criterion.title)
            titles.add(criterion.title)
        if not self.total_weight:
            problem = invalid("all weights are 0", "at least one positive weight")
            raise invalid_at(("criteria",), problem, self.total_weight)
        if self.total_weight == math.inf:
            problem = invalid("the sum of the weights is too large for a number", "smaller weights")
            raise invalid_at(("criteria",), problem, self.total_weight)
        return self

    @model_validator(mode="after")
    def _validate_category(self) -> Self:
        points, threshold = self.refusal.wrong_category, self.thresholds.refuse
        if points >= threshold - TOLERANCE:
            raise invalid_at(("refusal", "wrong_category"), undecided(points, threshold), points)
        return self

    @cached_property
    def read_locations(self) -> tuple[Location, ...]:
        """Where the rules read a case's `expected`, apart from the category of a refusal."""
        criteria = [criterion for criterion in (*self.criteria, *self.forbidden) if not criterion.has_value]
        paths = [criterion.path if criterion.expected is None else criterion.expected for criterion in criteria]
        return tuple(read_location(path) for path in (*paths, self.refusal.expected))

    def threshold_of(self, case: GenericCase) -> float:
        """Return the lowest score at which a case passes: its own, that of its type, or by what it expects."""
        if case.notes.threshold is not None:
            return case.notes.threshold
        default = self.thresholds.refuse if self.refusal.is_expected(case) else self.thresholds.accept
        return self.thresholds.by_type.get(case.case_type, default)

    def unused_criteria(self, expected: Sequence[Any]) -> Iterator[tuple[Location, str]]:
        """Yield the location and the problem of each criterion that compares with a key that no case has.

        Args:
            expected: the `expected` of all cases.
        """
        for name, criteria in (("criteria", self.criteria), ("forbidden", self.forbidden)):
            for index, criterion in enumerate(criteria):
                is_read = criterion.has_value or not criterion.expected_path.text
                if not is_read and all(criterion.expected_in(value) is MISSING for value in expected):
                    decides = "forbids" if name == "forbidden" else "compares"
                    wrong = f"no case has a value at {criterion.expected_path} in expected, so this {decides} nothing"
                    yield (name, index), wrong

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights of all criteria."""
        return sum(criterion.weight for criterion in self.criteria)

    @cached_property
    def case_model(self) -> type[GenericCase]:
        """The model of this suite's cases: each has to contain what the criteria compare with."""
        schemas = (("input", self.input_schema), ("expected", self.expected_schema))
        checks = [(field, _schemas().compile(schema)) for field, schema in schemas if schema is not None]
        rules = self

        class CaseOfSuite(GenericCase):
            @model_validator(mode="after")
            def _validate_by_rules(self) -> Self:
                problems = [*_schema_errors(self, checks), *_errors_in_expected(self, rules), *_undecided(self, rules)]
                if problems:
                    raise validation_error(problems)
                return self

        return CaseOfSuite


class GenericNotes(Notes):
    """Notes on a generic case.

    Attributes:
        threshold: the lowest score at which this case passes; it takes precedence over the suite's thresholds.
    """

    threshold: Threshold | None = None


class GenericCase(Case):
    """One generic case: `input` and `expected` are any JSON."""

    notes: GenericNotes = GenericNotes.model_construct()


def _schema_errors(case: GenericCase, checks: list[tuple[str, FirstError]]) -> Iterator[InitErrorDetails]:
    for field, first_error in checks:
        error = first_error(getattr(case, field))
        if error is not None:
            problem = invalid(error.message, f"a value that is valid under {field}_schema in suite.yaml")
            yield InitErrorDetails(type=problem, loc=(field, *error.location), input=None)


def _errors_in_expected(case: GenericCase, rules: GenericSuiteConfig) -> Iterator[InitErrorDetails]:
    problems = list(rules.refusal.errors(case.expected))
    yield from problems
    if not problems and not rules.refusal.is_expected(case):
        yield from _missing_or_unusable(rules.criteria, case.expected, required=True)
    yield from _missing_or_unusable(rules.forbidden, case.expected, required=False)
    yield from _unread(case, rules)


def _missing_or_unusable(criteria: Iterable[Criterion], expected: Any, *, required: bool) -> Iterator[InitErrorDetails]:
    for criterion in criteria:
        if criterion.has_value:
            # validated with the suite
            continue
        value = criterion.expected_in(expected)
        if value is MISSING:
            if required:
                yield _error_at(criterion.expected_path, None, no_expected_value(criterion), criterion.expected_form)
        elif problem := criterion.expected_problem(value):
            wrong = f'{problem} for the criterion "{criterion.title}"'
            yield _error_at(criterion.expected_path, value, wrong, criterion.expected_form)


def undecided(points: float, threshold: float) -> PydanticCustomError:
    """Return the error of rules by which an expected refusal passes with the wrong category."""
    wrong = f"a refusal of the wrong category passes: {points:g} points, threshold {threshold:g}"
    return invalid(wrong, "a higher threshold, or a lower refusal.wrong_category")


def _undecided(case: GenericCase, rules: GenericSuiteConfig) -> Iterator[InitErrorDetails]:
    if not rules.refusal.is_expected(case) or rules.refusal.expected_category_of(case) is None:
        return
    points, threshold = rules.refusal.wrong_category, rules.threshold_of(case)
    if points >= threshold - TOLERANCE:
        own = case.notes.threshold is not None
        location = ("notes", "threshold") if own else ("case_type",)
        yield InitErrorDetails(type=undecided(points, threshold), loc=location, input=threshold)


def _unread(case: GenericCase, rules: GenericSuiteConfig) -> Iterator[InitErrorDetails]:
    """Yield the keys of a case's `expected` that no rule of the suite reads."""
    read = list(rules.read_locations)
    category = compile_path(rules.refusal.expected_category)
    if rules.refusal.is_expected(case) or category.find(case.expected) is None:
        read.append(read_location(category.text))
    for location in _unread_locations(case.expected, (), read):
        known = {str(path[len(location) - 1]) for path in read if path[: len(location) - 1] == location[:-1]}
        problem = unknown_word("no rule in suite.yaml reads the key", str(location[-1]), sorted(known))
        yield InitErrorDetails(type=problem, loc=("expected", *location), input=None)


def _unread_locations(value: Any, location: Location, read: Sequence[Location]) -> Iterator[Location]:
    if any(path == location[: len(path)] for path in read):
        return
    if location and not any(location == path[: len(location)] for path in read):
        yield location
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _unread_locations(member, (*location, key), read)


def read_location(path: str) -> Location:
    """Return the keys that a path begins with; of a JSONPath those before the first part that may match several."""
    if not path.startswith("$"):
        return compile_path(path).location
    matched = _FIRST_KEYS.match(path)
    return tuple(_FIRST_KEY.findall(matched[0])) if matched is not None else ()


def no_expected_value(criterion: Criterion) -> str:
    """Describe that a case has no expected value for a criterion."""
    return f'no value at {criterion.expected_path} for the criterion "{criterion.title}"'


def _error_at(path: CompiledPath, value: Any, wrong: str, expected: str) -> InitErrorDetails:
    return InitErrorDetails(type=invalid(wrong, expected), loc=("expected", *path.location), input=value)


_CRITERIA: dict[str, type[Criterion]] = {
    "exact": Exact,
    "one_of": OneOf,
    "numeric": Numeric,
    "contains": Contains,
    "regex": Regex,
    "set": SetOf,
    "json_schema": JsonSchema,
    "text": TextSimilarity,
    "python": PythonFunction,
}
_FORBIDDEN: dict[str, type[Criterion]] = {
    "anywhere": ContainsAnywhere,
    "exact": Exact,
    "one_of": OneOf,
    "contains": Contains,
    "regex": Regex,
    "python": PythonFunction,
}
_NOT_IN_FORBIDDEN = ("weight", "hard_fail")


class _LongForm(NamedTuple):
    """A criterion in its long form.

    Attributes:
        rule: the name of its rule.
        fields: its other fields.
        locate: returns the location of a field as it was written.
    """

    rule: str
    fields: dict[str, Any]
    locate: Callable[[Location], Location]


def _validate_criterion(data: object) -> object:
    return data if isinstance(data, Criterion) else _criterion(_expand(data, _CRITERIA), _CRITERIA)


def _validate_forbidden(data: object) -> object:
    if isinstance(data, Criterion):
        return data
    if isinstance(data, str | int | float):
        return _criterion(_LongForm("anywhere", {"value": data}, _at_top), _FORBIDDEN)
    criterion = _criterion(_expand(data, _FORBIDDEN), _FORBIDDEN)
    for name in _NOT_IN_FORBIDDEN:
        if name in criterion.model_fields_set:
            wrong = f'"{name}" is not allowed in forbidden'
            raise invalid_at((name,), invalid(wrong, f'no "{name}": what is forbidden always fails the case'), data)
    if not criterion.has_value and criterion.expected is None and not isinstance(criterion, PythonFunction):
        raise invalid("it forbids the expected answer", "value, or expected with another path")
    return criterion


def _criterion(form: _LongForm, models: Mapping[str, type[Criterion]]) -> Criterion:
    model = models[form.rule]
    try:
        return model.model_validate({**form.fields, "rule": form.rule})
    except ValidationError as error:
        raise validation_error([_relocated(detail, model, form.locate) for detail in error.errors()]) from None


def _relocated(detail: Any, model: type[Criterion], locate: Callable[[Location], Location]) -> InitErrorDetails:
    """Return an error of a criterion at the location where it is written, with the keys that its rule knows."""
    problem = PydanticCustomError(detail["type"], detail["msg"], detail.get("ctx"))
    if detail["type"] == "extra_forbidden":
        problem = unknown_word("unknown key", str(detail["loc"][-1]), model.model_fields)
    return InitErrorDetails(type=problem, loc=locate(detail["loc"]), input=detail["input"])


def _at_top(_location: Location) -> Location:
    return ()


def _expand(data: object, models: Mapping[str, type[Criterion]]) -> _LongForm:
    """Return the long form of a criterion."""
    if isinstance(data, str):
        if data not in models:
            raise _unknown_rule(data, models)
        return _LongForm(data, {}, _at_top)
    if not isinstance(data, dict):
        raise invalid(f"got {format_value(data)}", "a rule, such as exact: /answer")
    if "rule" in data:
        rule = data["rule"]
        if not isinstance(rule, str) or rule not in models:
            raise invalid_at(("rule",), _unknown_rule(rule, models), rule)
        return _LongForm(rule, {name: value for name, value in data.items() if name != "rule"}, tuple)
    return _expand_short_form(data, models)


def _expand_short_form(data: dict[Any, Any], models: Mapping[str, type[Criterion]]) -> _LongForm:
    rules = [name for name in data if name in models]
    if not rules:
        known = {name for model in models.values() for name in model.model_fields}
        raise _unknown_rule(next((str(name) for name in data if name not in known), ""), models)
    if len(rules) > 1:
        raise invalid(f"{rules[0]} and {rules[1]} in one criterion", "one rule per criterion")
    (rule,) = rules
    others = {name: value for name, value in data.items() if name != rule}
    if isinstance(data[rule], dict):
        if others:
            raise invalid(f'"{next(iter(others))}" next to the keys under {rule}', f"all keys under {rule}")
        if "rule" in data[rule]:
            keys = [name for name in models[rule].model_fields if name != "rule"]
            raise invalid_at((rule, "rule"), unknown_word("unknown key", "rule", keys), data[rule])
        return _LongForm(rule, data[rule], lambda location: (rule, *location))
    main_key = models[rule].main_key
    if main_key in others:
        raise invalid(f'"{main_key}" and {rule}: {format_value(data[rule])}', "only one of them")
    fields = {main_key: data[rule], **others}
    return _LongForm(rule, fields, lambda location: (rule, *location[1:]) if location[:1] == (main_key,) else location)


def _unknown_rule(rule: object, models: Iterable[str]) -> PydanticCustomError:
    if not rule or not isinstance(rule, str):
        return invalid(f"got {format_value(rule)}" if rule else "the rule is missing", f"one of {', '.join(models)}")
    if rule in _CRITERIA:
        return invalid(f'the rule "{rule}" is not allowed in forbidden', f"one of {', '.join(models)}")
    return unknown_word("unknown rule", rule, models)


_AnyCriterion = Exact | OneOf | Numeric | Contains | Regex | SetOf | JsonSchema | TextSimilarity | PythonFunction
_RuleName = Literal["exact", "one_of", "numeric", "contains", "regex", "set", "json_schema", "text"]
_AnyForbidden = ContainsAnywhere | Exact | OneOf | Contains | Regex | PythonFunction


class _Forms(NamedTuple):
    """How pydantic validates a criterion, and what its JSON Schema is.

    A union of all rules would do as well, but pydantic would prepare each of them in every run.

    Attributes:
        validate: returns the criterion of a value.
        forms: the type of the value, for the JSON Schema.
    """

    validate: Callable[[object], object]
    forms: Any

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(TypeAdapter(self.forms).core_schema)


AnyCriterion = Annotated[Criterion, _Forms(_validate_criterion, _AnyCriterion | _RuleName)]
"""A criterion in any of its forms, the name of a rule included."""

AnyForbidden = Annotated[Criterion, _Forms(_validate_forbidden, _AnyForbidden | str | float)]
"""A forbidden string or number at any depth, or a criterion that must give no points."""
