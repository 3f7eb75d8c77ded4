"""The generic suite: the criteria, refusals and forbidden values of its `suite.yaml`, and its cases.

A criterion is written `{exact: /answer, hard_fail: true}`: the name of its rule with the path of the value in the
result, and its other keys. It is validated once per suite, and keeps no state between cases.
"""

from __future__ import annotations

import inspect
import math
import re
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from pytest_packbench.model.case import Case, Fraction, ListOf, Notes, StrictModel, Text, Threshold
from pytest_packbench.model.errors import fold, format_value, json_pointer
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.model.suite import LABEL, LABEL_METRICS, SuiteConfig
from pytest_packbench.packs.generic.rules import (
    CRITERIA,
    FORBIDDEN,
    RULES,
    SCHEMA_FORM,
    Grade,
    Options,
    called,
    schema_error,
    schema_flaw,
)
from pytest_packbench.packs.generic.values import (
    GENERIC,
    MISSING,
    CompiledPath,
    Location,
    PathText,
    compile_path,
    import_extra,
    import_function,
    invalid,
    invalid_at,
    json_equal,
    require_json,
    unknown_word,
    validation_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_PATTERN_TIMEOUT = 1.0
_FIRST_KEYS = re.compile(r"\$(?:\.[A-Za-z_]\w*(?!\())*")
_FIRST_KEY = re.compile(r"\.(\w+)")
_PYTHON = "python"
UNUSED = "correct the path, add the key to a case, or remove the criterion"
"""What to do with a criterion that compares with a key that no case has."""


class Criterion(Options):
    """One comparison of a value in the result with an expected value.

    Attributes:
        rule: how the two values are compared: a key of `RULES`.
        name: the name of its term; default: the rule and the path.
        path: the path of the value in the result: a JSON pointer, or a JSONPath that starts with `$`.
        expected: the path of the expected value under the case's `expected`; default: the same path.
        value: an expected value for all cases, instead of a path.
        weight: the weight of its points in the score.
        hard_fail: true: the case scores 0 if this gets less than full points; a number: if it gets less than that.
        rules: the rules that may be named.
        keys: the keys that all rules have.
        text_keys: the rules that look for their values in texts.
    """

    rules: ClassVar[tuple[str, ...]] = CRITERIA
    keys: ClassVar[tuple[str, ...]] = ("name", "expected", "value", "weight", "hard_fail")
    text_keys: ClassVar = frozenset({"anywhere", "contains", "regex", "text"})

    rule: str
    name: Text | None = None
    path: PathText = ""
    expected: PathText | None = None
    value: Any = None
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    hard_fail: bool | Fraction = False

    @model_validator(mode="before")
    @classmethod
    def _read_written(cls, data: Any) -> Any:
        """Read the form of `suite.yaml`: the name of a rule with the path (or the function), and its other keys."""
        if isinstance(data, Criterion):
            return data
        if form := _written_now(data, cls.rules):
            raise invalid("a form that is no longer read", form)
        if not isinstance(data, dict):
            raise invalid(f"got {format_value(data)}", "a rule and a path, such as {exact: /answer}")
        names = [name for name in data if name in cls.rules]
        if not names:
            raise cls._without_rule(data)
        if len(names) > 1:
            raise invalid(f"{names[0]} and {names[1]} in one criterion", "one rule per criterion")
        (rule,) = names
        known = [*cls.keys, *RULES[rule].keys]
        for key in data:
            if key != rule and key not in known:
                raise invalid_at((key,), unknown_word("unknown key", str(key), known), data)
        _check_place(data[rule], rule)
        return {"rule": rule, RULES[rule].place: data[rule], **{key: data[key] for key in data if key != rule}}

    @classmethod
    def _without_rule(cls, data: dict[Any, Any]) -> PydanticCustomError:
        """Return the error of a criterion that names none of its rules."""
        word = next((str(name) for name in data if name not in cls.model_fields), str(data.get("rule", "")))
        if word and word not in RULES:
            return unknown_word("unknown rule", word, cls.rules)
        wrong = f'the rule "{word}" is not allowed here' if word else "the rule is missing"
        return invalid(wrong, f"one of {', '.join(cls.rules)}")

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
        row = RULES[self.rule]
        for library in row.libraries:
            import_extra(library, extra=row.extra, what=f'the rule "{self.rule}"')
        if self.weight == 0 and self.hard_fail is False:
            raise invalid_at(("weight",), invalid("got 0, which has no effect", "a positive weight, or hard_fail"), 0)
        if self.has_value and self.expected is not None:
            raise invalid_at(("value",), invalid("both value and expected are set", "only one of them"), self.value)
        if self.has_value and (flaw := self.flaw(self.value)):
            raise invalid_at(("value",), invalid(flaw, row.form), self.value)
        # imported with the suite
        _ = self.rule == _PYTHON and self.function
        return self

    @model_serializer(mode="wrap")
    def _keys_of_its_rule(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys of other rules, so that the hash of a suite stays when one of them is added."""
        row = RULES[self.rule]
        others = Options.model_fields.keys() - {*row.options, *(key for key in row.later if getattr(self, key))}
        return {key: value for key, value in handler(self).items() if key not in others}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe one form for each rule."""
        whole = handler.resolve_ref_schema(handler(core_schema))
        known = whole["properties"]
        forms = []
        for rule in cls.rules:
            row = RULES[rule]
            properties = {rule: known[row.place], **{key: known[key] for key in (*cls.keys, *row.keys)}}
            forms.append(
                {"type": "object", "additionalProperties": False, "properties": properties, "required": [rule]}
            )
        return {"description": whole["description"], "anyOf": forms}

    @cached_property
    def function(self) -> Callable[[Any, Any, Any], Any]:
        """The function of the rule `python`; raises ValidationError if it can't be imported."""
        try:
            function: Callable[[Any, Any, Any], Any] = import_function(self.call)
            if inspect.iscoroutinefunction(function):
                raise invalid(f'"{self.call}" is async', "a synchronous function")
        except PydanticCustomError as problem:
            raise invalid_at((_PYTHON,), problem, self.call) from None
        return function

    @cached_property
    def has_value(self) -> bool:
        """Whether the expected value is the same for all cases."""
        return "value" in self.model_fields_set

    @cached_property
    def title(self) -> str:
        """The name of its term."""
        return self.name or f"{self.rule} {self.path}".rstrip()

    @property
    def form(self) -> str:
        """What it can compare with, in words."""
        return RULES[self.rule].form

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

    def flaw(self, expected: Any) -> str:
        """Describe why an expected value can't be compared with; empty if it can."""
        return RULES[self.rule].flaw(expected, self)

    def grade(self, value: Any, expected: Any, case_input: Any) -> Grade:
        """Compare a value in the result with an expected value that has no flaw.

        Args:
            value: the value in the result.
            expected: the expected value.
            case_input: the case's input, which functions of users get.

        Raises:
            CriterionError: the comparison failed to run.
            Exception: whatever a function of a user raises.
        """
        compare = RULES[self.rule].compare
        if compare is None:
            return called(self.function, self.call, (value, expected, case_input))
        grade = compare(value, expected, self)
        if grade.points == 1 or grade.detail:
            return grade
        return grade._replace(detail=f"got {format_value(value)}, expected {self.describe(expected)}")

    def describe(self, expected: Any) -> str:
        """Describe the values that get full points, for tables."""
        said = RULES[self.rule].said.format(format_value(expected), call=self.call, k=self.k)
        absolute = f" ± {self.absolute:g}" if self.absolute else ""
        return f"{said}{absolute}{f' ± {self.relative:.6g} of it' if self.relative else ''}"


class Forbidden(Criterion):
    """What fails a case hard: a text or a number at any depth, or a criterion that must give no points."""

    rules: ClassVar[tuple[str, ...]] = FORBIDDEN
    keys: ClassVar[tuple[str, ...]] = ("name", "expected", "value")

    @model_validator(mode="before")
    @classmethod
    def _read_value(cls, data: Any) -> Any:
        """Read a text or a number."""
        if not isinstance(data, str | int | float):
            return data
        anywhere = RULES["anywhere"]
        if flaw := anywhere.flaw(data, Options()):
            raise invalid(flaw, anywhere.form)
        return {"anywhere": "", "value": data}

    @model_validator(mode="after")
    def _forbids_more_than_what_is_expected(self) -> Self:
        if not self.has_value and self.expected is None and self.rule != _PYTHON:
            raise invalid("it forbids the expected answer", "value, or expected with another path")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe one form for each rule, a text and a number."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "string"}, {"type": "number"}]}


def _check_place(place: Any, rule: str) -> None:
    """Check what stands after the name of a rule, so that its error has the place in the file."""
    is_path = RULES[rule].place == "path"
    try:
        if not isinstance(place, str):
            raise invalid(f"got {format_value(place)}", "a path, such as /answer" if is_path else "package.module:attr")
        if is_path:
            compile_path(place)
    except PydanticCustomError as problem:
        raise invalid_at((rule,), problem, place) from None


def _written_now(data: Any, rules: Sequence[str]) -> str:
    """Return how a criterion in a form of earlier versions is written now; empty for any other value."""
    if isinstance(data, str) and data in rules:
        rule, keys = data, {}
    elif not isinstance(data, dict):
        return ""
    elif data.get("rule") in rules:
        rule, keys = data["rule"], {key: value for key, value in data.items() if key != "rule"}
    else:
        found = next(((name, keys) for name, keys in data.items() if name in rules and isinstance(keys, dict)), None)
        if found is None:
            return ""
        rule, keys = found[0], {**data, **found[1]}
        del keys[rule]
    import yaml  # what needs it is refused

    place = RULES[rule].place
    form = {rule: keys.get(place, ""), **{key: value for key, value in keys.items() if key != place}}
    return yaml.safe_dump(form, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf).strip()


def _not_empty(criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    if not criteria:
        raise invalid("got an empty list", "at least one criterion")
    return criteria


def _validate_schema(schema: dict[str, Any]) -> dict[str, Any]:
    for library in RULES["json_schema"].libraries:
        import_extra(library, extra=GENERIC, what="a JSON Schema of the cases")
    if flaw := schema_flaw(require_json(schema)):
        raise invalid(flaw, SCHEMA_FORM)
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
        labels: the path of a label, such as the class of a message, in the result and under the case's `expected`: its
            precision, recall and F1 are shown, and gates can bound them (`label_precision`, `label_recall`, `label_f1`,
            `by: label`).
        text_keys: the keys whose values are looked for in texts.
    """

    criteria: Annotated[ListOf[Criterion], AfterValidator(_not_empty)] = Field(({"exact": ""},), validate_default=True)
    refusal: RefusalRules = RefusalRules.model_construct()
    forbidden: ListOf[Forbidden] = ()
    input_schema: CaseSchema | None = None
    expected_schema: CaseSchema | None = None
    labels: PathText | None = None

    text_keys: ClassVar = frozenset({"forbidden"})
    metrics: ClassVar = LABEL_METRICS
    not_scoring: ClassVar = SuiteConfig.not_scoring | {"labels"}

    @model_validator(mode="after")
    def _has_labels_for_gates(self) -> Self:
        for index, gate in enumerate(self.gates):
            if gate.metric in LABEL_METRICS and self.labels is None:
                problem = invalid(f"{gate.metric} without labels", "the path of the label under labels: /path")
                raise invalid_at(("gates", index, "metric"), problem, gate.metric)
            if gate.metric in LABEL_METRICS and gate.by not in {None, LABEL}:
                raise invalid_at(("gates", index, "by"), invalid(f'"{gate.by}"', f"{LABEL}, or no by"), gate.by)
        return self

    def labels_of(self, case: GenericCase, answer: Any) -> tuple[tuple[str | None, str | None], ...] | None:
        """Return the expected label and that of an answer; None where there is neither.

        Args:
            case: the case, which expects no label if it expects a refusal.
            answer: the result as plain JSON; `MISSING` for a refusal, and for an answer that can't be read.
        """
        if self.labels is None:
            return None
        path = compile_path(self.labels)
        wanted = MISSING if self.refusal.is_expected(case) else path.find(case.expected)
        expected, given = map(_label, (wanted, MISSING if answer is MISSING else path.find(answer)))
        # where a criterion on the label ignores upper and lower case, so do its figures
        ignores = any(each.path == self.labels and each.ignore_case for each in self.criteria)
        if ignores and expected is not None and given is not None and given.casefold() == expected.casefold():
            given = expected
        return None if expected is given is None else ((expected, given),)

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
        paths += [self.labels] if self.labels else []
        return tuple(read_location(path) for path in (*paths, self.refusal.expected))

    def narrowed(self, case_model: type[Case]) -> type[Case]:  # noqa: ARG002 - the rules decide
        """Return the model of this suite's cases."""
        return self.case_model

    @property
    def accepts_more(self) -> bool:
        """Whether a criterion has a list of accepted values in its cases."""
        return any(map(has_list, self.criteria))

    def unused_rules(self, expected: Sequence[Any]) -> Iterator[str]:
        """Describe the criteria that compare with a key that no case has."""
        for location, wrong in self.unused_criteria(expected):
            yield f"{json_pointer(location)}: {wrong}; {UNUSED}"

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
        rules = self

        class CaseOfSuite(GenericCase):
            @model_validator(mode="after")
            def _validate_by_rules(self) -> Self:
                problems = [*_schema_errors(self, rules), *_errors_in_expected(self, rules), *_undecided(self, rules)]
                if problems:
                    raise validation_error(problems)
                return self

        return CaseOfSuite


def _label(value: Any) -> str | None:
    """Return a value as a label; None for what is none: nothing, null, an empty text, a list, an object."""
    if value is MISSING or value is None or value == "" or isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else format_value(value)


class GenericNotes(Notes):
    """Notes on a generic case.

    Attributes:
        threshold: the lowest score at which this case passes; it takes precedence over the suite's thresholds.
    """

    threshold: Threshold | None = None


class GenericCase(Case):
    """One generic case: `input` and `expected` are any JSON."""

    notes: GenericNotes = GenericNotes.model_construct()

    @property
    def own_threshold(self) -> float | None:
        """The threshold in its notes."""
        return self.notes.threshold


def _schema_errors(case: GenericCase, rules: GenericSuiteConfig) -> Iterator[InitErrorDetails]:
    for field, schema in (("input", rules.input_schema), ("expected", rules.expected_schema)):
        error = None if schema is None else schema_error(getattr(case, field), schema, _PATTERN_TIMEOUT)
        if error is not None:
            problem = invalid(error.message, f"a value that is valid under {field}_schema in suite.yaml")
            yield InitErrorDetails(type=problem, loc=(field, *error.location), input=None)


def _errors_in_expected(case: GenericCase, rules: GenericSuiteConfig) -> Iterator[InitErrorDetails]:
    problems = list(rules.refusal.errors(case.expected))
    yield from problems
    if not problems and not rules.refusal.is_expected(case):
        yield from _missing_or_unusable(rules.criteria, case.expected, required=True)
    yield from _missing_or_unusable(rules.forbidden, case.expected, required=False)
    if rules.labels is not None and not problems and not rules.refusal.is_expected(case):
        path = compile_path(rules.labels)
        if _label(path.find(case.expected)) is None:
            yield _error_at(path, None, f"no label at {path}", "a text, a number, or true or false")
    yield from _unread(case, rules)


def _missing_or_unusable(criteria: Iterable[Criterion], expected: Any, *, required: bool) -> Iterator[InitErrorDetails]:
    for criterion in criteria:
        if criterion.has_value:
            # validated with the suite
            continue
        value = criterion.expected_in(expected)
        if value is MISSING:
            if required:
                yield _error_at(criterion.expected_path, None, no_expected_value(criterion), criterion.form)
        elif problem := criterion.flaw(value):
            wrong = f'{problem} for the criterion "{criterion.title}"'
            yield _error_at(criterion.expected_path, value, wrong, criterion.form)


def undecided(points: float, threshold: float) -> PydanticCustomError:
    """Return the error of rules by which an expected refusal passes with the wrong category."""
    wrong = f"a refusal of the wrong category passes: {points:g} points, threshold {threshold:g}"
    return invalid(wrong, "a higher threshold, or a lower refusal.wrong_category")


def _undecided(case: GenericCase, rules: GenericSuiteConfig) -> Iterator[InitErrorDetails]:
    if not rules.refusal.is_expected(case) or rules.refusal.expected_category_of(case) is None:
        return
    points, own = rules.refusal.wrong_category, case.own_threshold
    general = rules.thresholds.by_type.get(case.case_type, rules.thresholds.refuse)
    threshold = general if own is None else own
    if points >= threshold - TOLERANCE:
        location = ("case_type",) if own is None else ("notes", "threshold")
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


def has_list(criterion: Criterion) -> bool:
    """Return whether a criterion has a list of accepted values in each case."""
    return criterion.rule == "one_of" and not criterion.has_value and bool(criterion.expected_path.location)


def no_expected_value(criterion: Criterion) -> str:
    """Describe that a case has no expected value for a criterion."""
    return f'no value at {criterion.expected_path} for the criterion "{criterion.title}"'


def _error_at(path: CompiledPath, value: Any, wrong: str, expected: str) -> InitErrorDetails:
    return InitErrorDetails(type=invalid(wrong, expected), loc=("expected", *path.location), input=value)
