"""The generic suite: the criteria, refusals and forbidden values of its `suite.yaml`, and its cases.

A criterion is written `{exact: /answer, hard_fail: true}`: the name of its rule with the path of the value in the
result, and its other keys. It is validated once per suite, and keeps no state between cases.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from pytest_packbench.model.case import (
    Case,
    Expected,
    Flaw,
    Fraction,
    ListOf,
    Notes,
    StrictModel,
    Text,
    Threshold,
    misfit,
    refused,
)
from pytest_packbench.model.errors import fold, format_value
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.model.suite import LABEL_METRICS, SuiteConfig
from pytest_packbench.packs.generic.rules import (
    ANYWHERE,
    CRITERIA,
    FORBIDDEN,
    PYTHON,
    RULES,
    SCHEMA_FORM,
    Grade,
    Options,
    Rule,
    as_list,
    called,
    exact,
    import_libraries,
    json_equal,
    schema_error,
    schema_flaw,
)
from pytest_packbench.packs.generic.values import (
    MISSING,
    CompiledPath,
    CriterionError,
    FunctionName,
    JsonValue,
    PathText,
    compile_path,
    require_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic_core import CoreSchema

    from pytest_packbench.model.case import Location

_PATTERN_TIMEOUT = 1.0
_BOUND_POINTS = "true, false, or the minimum points, above 0 and at most 1"


class Comparing(Options):
    """One comparison of a value in the result with an expected value: `{exact: /answer, name: x}` in `suite.yaml`.

    Attributes:
        rule: how the two values are compared: a key of `RULES`, which is the key that is written.
        path: the path of the value in the result, a JSON pointer or a JSONPath that starts with `$`: what is written
            after the name of the rule, except for a function, whose own name (`call`) is.
        call: the function of the rule `python`.
        name: the name of its term; default: the rule and the path.
        expected: the path of the expected value under the case's `expected`; default: the same path as in the result.
        value: an expected value for all cases, instead of a path.
        rules: the rules that can be written.
        keys: the keys beside those of the rule.
        text_keys: the rules that look for their values in texts.
    """

    rules: ClassVar[tuple[str, ...]]
    keys: ClassVar[tuple[str, ...]] = ("name", "expected", "value")
    text_keys: ClassVar = frozenset({ANYWHERE, "contains", "regex", "text"})

    rule: str
    path: PathText = Field("", validation_alias=AliasChoices(*(rule for rule in RULES if rule != PYTHON), "path"))
    call: FunctionName = Field("", validation_alias=PYTHON)
    name: Text | None = None
    expected: PathText | None = None
    value: JsonValue = None

    @classmethod
    def keys_of(cls, rule: str) -> list[str]:
        """Return the keys that can be written with a rule."""
        row = RULES[rule]
        return [*cls.keys, rule, *row.options, *row.later]

    @model_validator(mode="before")
    @classmethod
    def _of_one_rule(cls, data: Any) -> Any:
        """Find the rule among the keys."""
        if isinstance(data, cls):
            return data
        if ANYWHERE in cls.rules and isinstance(data, str | int | float):
            data = {ANYWHERE: "", "value": data}
        named = [rule for rule in cls.rules if isinstance(data, dict) and isinstance(data.get(rule), str)]
        if len(named) != 1:
            form = "one rule with its path, and its other keys next to it, such as {exact: /answer, weight: 2}"
            raise misfit(f"got {format_value(data)}", f"{form}; the rules are {', '.join(cls.rules)}")
        (rule,) = named
        import_libraries(rule, f'the rule "{rule}"')
        known = cls.keys_of(rule)
        for key in data:
            if key not in known:
                raise refused(Flaw((key,), f'unknown key "{key}"', f"one of {', '.join(known)}"))
        return {**data, "rule": rule}

    @model_validator(mode="after")
    def _validate_value(self) -> Self:
        if self.has_value:
            wrong, form = self.flaw(self.value), self.row.form
            if self.expected is not None:
                wrong, form = "both value and expected are set", "only one of them"
            if wrong:
                raise refused(Flaw(("value",), wrong, form))
        return self

    @model_serializer(mode="wrap")
    def _as_hashed(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the keys by which suites are hashed; of options that a rule got later those that are set."""
        left_out = {"call", *Options.model_fields} - {*self.row.options, *self.model_fields_set}
        keys = {"weight": 1.0, "hard_fail": False, **handler(self)}
        return {key: value for key, value in keys.items() if key not in left_out}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe one form for each rule."""
        form = handler.resolve_ref_schema(handler(schema))
        types, path = form["properties"], {"type": "string"}
        forms = [
            {**form, "properties": {key: types.get(key, path) for key in cls.keys_of(rule)}, "required": [rule]}
            for rule in cls.rules
        ]
        return {"anyOf": [{"type": ["string", "number"]}, *forms] if ANYWHERE in cls.rules else forms}

    @property
    def row(self) -> Rule:
        """The row of its rule."""
        return RULES[self.rule]

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

    def flaw(self, expected: Any) -> str:
        """Describe why an expected value can't be compared with; empty if it can."""
        if isinstance(expected, self.row.expects) and self.row.accepts(expected):
            return self.row.flaw(expected, self)
        return f"got {format_value(expected)}"

    def grade(self, value: Any, expected: Any, case_input: Any) -> Grade:
        """Compare a value in the result with an expected value that has no flaw.

        Args:
            value: the value in the result, or `MISSING`.
            expected: the expected value.
            case_input: the case's input, which functions of users get.

        Raises:
            CriterionError: the comparison failed to run, or a function of the user raised; it names the criterion.
        """
        if value is MISSING:
            return Grade(0.0, self.nothing)
        try:
            if self.row.compare is None:
                grade: Grade | float = called(self.call, (value, expected, case_input))
            else:
                grade = isinstance(value, self.row.takes) and self.row.compare(value, expected, self)
        except CriterionError as error:
            raise CriterionError(f'criterion "{self.title}": {error}') from None
        except Exception as error:
            message = f'criterion "{self.title}" raised {type(error).__name__}: {error}'
            # with its traceback: the frames of the user's function help most
            raise CriterionError(message).with_traceback(error.__traceback__) from error
        if not isinstance(grade, Grade):
            grade = Grade(float(grade))
        if grade.points == 1 or grade.detail:
            return grade
        return grade._replace(detail=f"got {format_value(value)}, expected {self.describe(expected)}")

    @property
    def nothing(self) -> str:
        """Describe that a result has no value for it."""
        return f"nothing at {self.result_path}"

    def describe(self, expected: Any) -> str:
        """Describe the values that get full points, for tables."""
        return self.row.said.format(expected=format_value(expected), options=self)

    @property
    def tolerances(self) -> str:
        """How far a number may be from the expected one, in words, of the options of `numeric`."""
        bounds = {"": self.absolute, " of it": self.relative}
        return "".join(f" ± {bound:.6g}{of}" for of, bound in bounds.items() if bound)


class Criterion(Comparing):
    """A comparison whose points count.

    Attributes:
        weight: the weight of its points in the score.
        hard_fail: true: the case scores 0 if this gets less than full points; a number: if it gets less than that.
    """

    rules = CRITERIA
    keys = (*Comparing.keys, "weight", "hard_fail")

    weight: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] = 1.0
    hard_fail: Annotated[bool | Annotated[float, Field(gt=0, le=1)], Expected(_BOUND_POINTS)] = False

    @model_validator(mode="after")
    def _has_an_effect(self) -> Self:
        if self.weight == 0 and self.hard_fail is False:
            raise refused(Flaw(("weight",), "got 0, which has no effect", "a positive weight, or hard_fail"))
        return self


class Forbidden(Comparing):
    """A comparison that must give no points: else it fails a case hard."""

    rules = FORBIDDEN

    @model_validator(mode="after")
    def _forbids_more_than_what_is_expected(self) -> Self:
        if not self.has_value and self.expected is None and self.rule != PYTHON:
            raise misfit("it forbids the expected answer", "value, or expected with another path")
        return self


def _validate_schema(schema: dict[str, Any]) -> dict[str, Any]:
    import_libraries("json_schema", "a JSON Schema of the cases")
    if flaw := schema_flaw(require_json(schema)):
        raise misfit(flaw, SCHEMA_FORM)
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
    value: JsonValue = None
    category: PathText = "/refusal/category"
    expected: PathText = "/refuse"
    expected_category: PathText = "/category"
    wrong_category: Fraction = 0.5

    @model_validator(mode="after")
    def _is_no_answer(self) -> Self:
        if not self.path and "value" not in self.model_fields_set:
            raise refused(
                Flaw(("path",), "with the path of the whole result, every answer is a refusal", "a path, or value")
            )
        return self

    def is_refusal(self, result: Any) -> bool:
        """Whether a result is a refusal."""
        value = compile_path(self.path).find(result)
        if value is MISSING:
            return False
        if "value" not in self.model_fields_set:
            return bool(value)
        return any(json_equal(fold(value), fold(refusal)) for refusal in as_list(self.value))

    def is_expected(self, case: Case) -> bool:
        """Whether a case expects a refusal."""
        return compile_path(self.expected).find(case.expected) is True

    def expected_category_of(self, case: Case) -> str | None:
        """Return the category that a case expects; None if any will do."""
        category = compile_path(self.expected_category).find(case.expected)
        return category if isinstance(category, str) else None

    def flaws(self, case: Case) -> Iterator[Flaw]:
        """Yield what is wrong in a case's `expected` with the keys of refusals."""
        category: Any = str | None if self.is_expected(case) else object
        for text, types, form in (
            (self.expected, bool, "true if a refusal is expected, else false"),
            (self.expected_category, category, "the category of the refusal, a string"),
        ):
            path = compile_path(text)
            value = path.find(case.expected)
            if value is not MISSING and not isinstance(value, types):
                yield _flaw_at(path, f"got {format_value(value)}", form)


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

    criteria: ListOf[Criterion] = Field(({"exact": ""},), validate_default=True)
    refusal: RefusalRules = RefusalRules.model_construct()
    forbidden: ListOf[Forbidden] = ()
    input_schema: CaseSchema | None = None
    expected_schema: CaseSchema | None = None
    labels: PathText | None = None

    text_keys: ClassVar = frozenset({"forbidden"})
    metrics: ClassVar = LABEL_METRICS
    not_scoring: ClassVar = SuiteConfig.not_scoring | {"labels"}

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
        found = MISSING if answer is MISSING else path.find(answer)
        expected, given = map(_label, (wanted, found))
        # where a criterion on the label ignores upper and lower case, so do its figures
        ignores = any(each.path == self.labels and each.ignore_case for each in self.criteria)
        if exact(found, wanted, Options(ignore_case=ignores)):
            given = expected
        elif given == expected is not None:
            # a text and another value that is written like it
            given = json.dumps(found) if isinstance(found, str) else f"{given} (no text)"
        return None if expected is given is None else ((expected, given),)

    def compared(self, case: GenericCase, result: Any) -> Iterator[tuple[Criterion, Any, Any, Grade]]:
        """Yield each criterion with the expected value, the value in a result, which may be `MISSING`, and its points.

        Raises:
            CriterionError: the case has no expected value for a criterion, or a criterion failed to run.
        """
        for criterion in self.criteria:
            expected = criterion.expected_in(case.expected)
            if expected is MISSING:
                raise CriterionError(f'no value at {criterion.expected_path} for the criterion "{criterion.title}"')
            value = criterion.value_in(result, expected)
            yield criterion, expected, value, criterion.grade(value, expected, case.input)

    @model_validator(mode="after")
    def _validate_criteria(self) -> Self:
        titles = [criterion.title for criterion in self.criteria]
        for index, title in enumerate(titles):
            if title in titles[:index]:
                raise refused(Flaw(("criteria", index), f'duplicate criterion "{title}"', "a unique name"))
        if not self.total_weight:
            raise refused(Flaw(("criteria",), "all weights are 0", "at least one positive weight"))
        return self

    @property
    def accepts_more(self) -> bool:
        """Whether a criterion has a list of accepted values in its cases."""
        return any(map(has_list, self.criteria))

    def unused_rules(self, expected: Sequence[Any]) -> Iterator[str]:
        """Describe the criteria that compare with a key that no case has, each with its location."""
        for name, criteria in (("criteria", self.criteria), ("forbidden", self.forbidden)):
            for index, criterion in enumerate(criteria):
                path = criterion.expected_path
                if not criterion.has_value and path.text and all(path.find(value) is MISSING for value in expected):
                    wrong = f"no case has a value at {path} in expected, so this decides nothing"
                    yield f"/{name}/{index}: {wrong}; correct the path, add the key to a case, or remove the criterion"

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights of all criteria."""
        return sum(criterion.weight for criterion in self.criteria)

    def flaws(self, case: GenericCase) -> Iterator[Flaw]:
        """Yield what a case lacks for the criteria, and what is wrong with it."""
        return _flaws_of(case, self)


def _label(value: Any) -> str | None:
    """Return a value as a label; None for what is none: nothing, null, an empty text, a list, an object."""
    if isinstance(value, str):
        return value or None
    return format_value(value) if isinstance(value, int | float) else None


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


def _flaws_of(case: GenericCase, rules: GenericSuiteConfig) -> Iterator[Flaw]:
    """Yield what a case lacks, and what is wrong with it, by the rules of its suite."""
    refusal, expected = rules.refusal, case.expected
    for field, schema in (("input", rules.input_schema), ("expected", rules.expected_schema)):
        if schema is not None and (error := schema_error(getattr(case, field), schema, _PATTERN_TIMEOUT)):
            form = f"a value that is valid under {field}_schema in suite.yaml"
            yield error._replace(location=(field, *error.location), expected=form)
    of_refusal = [*refusal.flaws(case)]
    yield from of_refusal
    is_refusal = refusal.is_expected(case)
    is_answer = not of_refusal and not is_refusal
    # a value of the suite was validated with it
    of_cases = [each for each in (*rules.criteria, *rules.forbidden) if not each.has_value]
    for criterion in of_cases:
        path, value = criterion.expected_path, criterion.expected_in(expected)
        is_due = value is not MISSING if isinstance(criterion, Forbidden) else is_answer
        if is_due and (wrong := f"no value at {path}" if value is MISSING else criterion.flaw(value)):
            yield _flaw_at(path, f'{wrong} for the criterion "{criterion.title}"', criterion.row.form)
    if is_answer and rules.labels is not None and rules.labels_of(case, MISSING) is None:
        path = compile_path(rules.labels)
        yield _flaw_at(path, f"no label at {path}", "a text, a number, or true or false")
    category = compile_path(refusal.expected_category)
    read = {category.location} if is_refusal or category.find(expected) is None else set()
    read |= {compile_path(path).location for path in (rules.labels, refusal.expected) if path is not None}
    read |= {criterion.expected_path.location for criterion in of_cases}
    yield from _unread(expected, read)
    points = refusal.wrong_category
    threshold = rules.thresholds.of(case, refuses=True)
    if is_refusal and refusal.expected_category_of(case) is not None and points >= threshold - TOLERANCE:
        wrong = f"a refusal of the wrong category passes: {points:g} points, threshold {threshold:g}"
        yield _flaw_at(category, wrong, "a higher threshold, or a lower refusal.wrong_category in suite.yaml")


def _unread(value: Any, read: set[Location], place: Location = ("expected",)) -> Iterator[Flaw]:
    """Yield the keys of a value that none of the locations below it reads, which is read with all that it contains."""
    for key, member in value.items() if isinstance(value, dict) and () not in read else ():
        if inner := {location[1:] for location in read if location[0] == key}:
            yield from _unread(member, inner, (*place, key))
        else:
            wrong = f'no rule in suite.yaml reads the key "{key}"'
            yield Flaw((*place, key), wrong, f"one of {', '.join(sorted({str(location[0]) for location in read}))}")


def has_list(criterion: Comparing) -> bool:
    """Return whether a criterion has a list of accepted values in each case."""
    path = criterion.expected_path
    return criterion.rule == "one_of" and not criterion.has_value and path.text.startswith("/")


def _flaw_at(path: CompiledPath, wrong: str, expected: str) -> Flaw:
    return Flaw(("expected", *path.location), wrong, expected)
