"""Criteria as `suite.yaml` declares them: one strict model a rule, and the short forms of all."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - pydantic reads annotations at run time
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pytest_packbench.model.case import Fraction, StrictModel, Text
from pytest_packbench.model.errors import format_value
from pytest_packbench.packs.generic import rules
from pytest_packbench.packs.generic.refused import Location, refused, refused_all, refused_at, refused_word
from pytest_packbench.packs.generic.values import PathText, plain_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=10)]
_TIMEOUT = 0.1
_JUDGES = ("weight", "hard_fail")


class Criterion(StrictModel):
    """One thing that a result is held to.

    Attributes:
        rule: how the value in the result compares with the expected one.
        name: how its term is called; the rule and the path unless given.
        path: where the value stands in the result: a JSON pointer, or a JSONPath that begins with `$`; the whole
            result unless given.
        expected: where the expected value stands under the case's `expected`; the same path unless given.
        value: an expected value for all cases, instead of a path.
        weight: its share of the score, beside the other weights.
        hard_fail: whether the case scores 0 where this gives less than full points; a number: less than that.
    """

    main: ClassVar[str] = "path"

    rule: str
    name: Text | None = None
    path: PathText = ""
    expected: PathText | None = None
    value: Any = None
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    hard_fail: bool | Fraction = False

    _made: rules.Rule = PrivateAttr()

    @field_validator("value")
    @classmethod
    def _is_json(cls, value: Any) -> Any:
        return plain_json(value)

    @field_validator("hard_fail", mode="wrap")
    @classmethod
    def _is_a_floor(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> bool | float:
        floor: bool | float | None
        try:
            floor = handler(value)
        except ValidationError:
            floor = None
        if floor is None or (floor == 0 and floor is not False):
            raise refused(
                f"got {format_value(value)}", "true, false, or the points under which the case fails, over 0 to 1"
            )
        return floor

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        if self.weight == 0 and self.hard_fail is False:
            raise refused_at(("weight",), refused("got 0: it decides nothing", "a weight, or hard_fail"), 0)
        if self.is_fixed and self.expected is not None:
            raise refused_at(("value",), refused("a value beside expected", "one of them"), self.value)
        self._made = self._make()
        if self.is_fixed and not self._made.usable(self.value):
            raise refused_at(("value",), refused(self._made.wrong(self.value), self._made.wants), self.value)
        return self

    @property
    def is_fixed(self) -> bool:
        """Whether the expected value is the same for all cases."""
        return "value" in self.model_fields_set

    @property
    def title(self) -> str:
        """How its term is called."""
        return self.name or f"{self.rule} {self.path}".rstrip()

    @property
    def made(self) -> rules.Rule:
        """The rule, ready to compare."""
        return self._made

    def _make(self) -> rules.Rule:
        raise NotImplementedError

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the long form and both short ones."""
        schema = handler(core_schema)
        long = handler.resolve_ref_schema(schema)
        properties = dict(long["properties"])
        rule = properties.pop("rule", {}).get("const")
        if rule is None:
            return schema
        shared = {"type": "object", "additionalProperties": False}
        inner = {**shared, "properties": properties}
        needed = [name for name in long.get("required", ()) if name not in {"rule", cls.main}]
        short = {rule: {"anyOf": [properties[cls.main], inner]}}
        rest = {name: part for name, part in properties.items() if name != cls.main}
        forms = [
            {**shared, "properties": long["properties"], "required": long["required"]},
            {**shared, "properties": {**short, **rest}, "required": [rule, *needed]},
        ]
        for name in long.keys() - {"title", "description"}:
            del long[name]
        long["anyOf"] = forms
        return schema


class Exact(Criterion):
    """The same JSON value."""

    rule: Literal["exact"]

    def _make(self) -> rules.Rule:
        return rules.Exact()


class OneOf(Criterion):
    """One of the expected values, which are a list."""

    rule: Literal["one_of"]

    def _make(self) -> rules.Rule:
        return rules.OneOf()


class Numeric(Criterion):
    """A number within a tolerance: the wider of the two.

    Attributes:
        absolute: in the number's unit.
        relative: as a share of the expected number.
    """

    rule: Literal["numeric"]
    absolute: Tolerance = 0.0
    relative: Tolerance = 0.0

    def _make(self) -> rules.Rule:
        return rules.Numeric(self.absolute, self.relative)


class Contains(Criterion):
    """A text or a list that holds the expected values; points are the share that it holds.

    Attributes:
        ignore_case: whether upper and lower case are one.
    """

    rule: Literal["contains"]
    ignore_case: bool = False

    def _make(self) -> rules.Rule:
        return rules.Contains(self.ignore_case)


class Regex(Criterion):
    """A text in which the expected regular expression is found.

    Attributes:
        timeout: seconds that a search may take; longer is an error of the case.
    """

    rule: Literal["regex"]
    timeout: Seconds = _TIMEOUT

    def _make(self) -> rules.Rule:
        return rules.Regex(self.timeout)


class SetOf(Criterion):
    """A list with the same members as the expected one; points are F1."""

    rule: Literal["set"]

    def _make(self) -> rules.Rule:
        return rules.SetOf()


class JsonSchema(Criterion):
    """A value that the expected JSON Schema takes.

    Attributes:
        timeout: seconds that a search for a `pattern` may take; longer is an error of the case.
    """

    rule: Literal["json_schema"]
    timeout: Seconds = _TIMEOUT

    def _make(self) -> rules.Rule:
        return rules.JsonSchema(self.timeout, self.value if self.is_fixed else None)


class Similar(Criterion):
    """A text like the expected one; points are the similarity.

    Attributes:
        at_least: the similarity under which there are no points.
        ignore_case: whether upper and lower case are one.
    """

    rule: Literal["text"]
    at_least: Fraction = 0.0
    ignore_case: bool = False

    def _make(self) -> rules.Rule:
        return rules.Text(at_least=self.at_least, ignore_case=self.ignore_case)


class Python(Criterion):
    """A function that is given result value, expected value and case input, and gives a bool or a number from 0 to 1.

    Attributes:
        call: `package.module:attr`.
    """

    main = "call"

    rule: Literal["python"]
    call: str

    def _make(self) -> rules.Rule:
        try:
            return rules.Python(self.call)
        except PydanticCustomError as problem:
            raise refused_at(("call",), problem, self.call) from None


class Anywhere(Criterion):
    """A forbidden value in any depth of the result: a text inside a text, or the same number.

    Attributes:
        ignore_case: whether upper and lower case are one.
    """

    rule: Literal["anywhere"]
    ignore_case: bool = False

    def _make(self) -> rules.Rule:
        return rules.Anywhere(self.ignore_case)


_CRITERIA: dict[str, type[Criterion]] = {
    "exact": Exact,
    "one_of": OneOf,
    "numeric": Numeric,
    "contains": Contains,
    "regex": Regex,
    "set": SetOf,
    "json_schema": JsonSchema,
    "text": Similar,
    "python": Python,
}
_FORBIDDEN: dict[str, type[Criterion]] = {
    "anywhere": Anywhere,
    "exact": Exact,
    "one_of": OneOf,
    "contains": Contains,
    "regex": Regex,
    "python": Python,
}


def _criterion(data: object) -> object:
    return data if isinstance(data, Criterion) else _read(data, _CRITERIA)


def _forbidden(data: object) -> object:
    if isinstance(data, Criterion):
        return data
    if isinstance(data, str | int | float):
        return _made("anywhere", {"value": data}, _FORBIDDEN, _whole)
    read = _read(data, _FORBIDDEN)
    for name in _JUDGES:
        if name in read.model_fields_set:
            raise refused_at((name,), refused(f'"{name}" of what is forbidden', "none: it always fails the case"), data)
    if not read.is_fixed and read.expected is None and not isinstance(read, Python):
        raise refused("forbids what is expected", "value, or expected with a path of its own")
    return read


def _read(data: object, models: Mapping[str, type[Criterion]]) -> Criterion:
    return _made(*_unfolded(data, models))


def _made(
    rule: str, fields: dict[str, Any], models: Mapping[str, type[Criterion]], placed: Callable[[Location], Location]
) -> Criterion:
    try:
        return models[rule].model_validate({**fields, "rule": rule})
    except ValidationError as error:
        raise _replaced(error, models[rule], placed) from None


def _whole(_place: Location) -> Location:
    return ()


def _unfolded(
    data: object, models: Mapping[str, type[Criterion]]
) -> tuple[str, dict[str, Any], Mapping[str, type[Criterion]], Callable[[Location], Location]]:
    """Give the rule's name, its fields, the models, and where a field stands in what was written."""
    if isinstance(data, str):
        if data not in models:
            raise _unknown(data, models)
        return data, {}, models, _whole
    if not isinstance(data, dict):
        raise refused(f"got {format_value(data)}", "a rule, such as exact: /answer")
    if "rule" in data:
        rule = data["rule"]
        if rule not in models:
            raise refused_at(("rule",), _unknown(rule, models), rule)
        return rule, {name: value for name, value in data.items() if name != "rule"}, models, tuple
    named = [name for name in data if name in models]
    if len(named) != 1:
        raise _several(named) if named else _unknown(_odd(data, models), models)
    (rule,) = named
    rest = {name: value for name, value in data.items() if name != rule}
    if isinstance(data[rule], dict):
        if rest:
            wrong = f'"{next(iter(rest))}" beside {rule} with fields of its own'
            raise refused(wrong, f"all of them under {rule}")
        return rule, data[rule], models, lambda place: (rule, *place)
    main = models[rule].main
    if main in rest:
        raise refused(f'"{main}" beside {rule}: {format_value(data[rule])}', "one of them")
    fields = {main: data[rule], **rest}
    return rule, fields, models, lambda place: (rule, *place[1:]) if place[:1] == (main,) else place


def _several(named: list[str]) -> PydanticCustomError:
    return refused(f"two rules, {named[0]} and {named[1]}", "a criterion of its own for each")


def _unknown(rule: object, models: Iterable[str]) -> PydanticCustomError:
    if not rule:
        return refused("no rule is named", f"one of: {', '.join(models)}")
    if rule in _CRITERIA:
        return refused(f'the rule "{rule}" can\'t forbid', f"one of: {', '.join(models)}")
    return refused_word("no rule is called", str(rule), models)


def _odd(data: Mapping[Any, Any], models: Mapping[str, type[Criterion]]) -> str:
    fields = {name for model in models.values() for name in model.model_fields}
    return next((str(name) for name in data if name not in fields), "")


def _replaced(
    error: ValidationError, model: type[Criterion], placed: Callable[[Location], Location]
) -> ValidationError:
    """Name the places of a criterion's mistakes as they were written, and the keys that its rule knows."""
    found = []
    for detail in error.errors(include_url=False):
        problem = PydanticCustomError(detail["type"], detail["msg"], detail.get("ctx"))
        if detail["type"] == "extra_forbidden":
            problem = refused_word("unknown key", str(detail["loc"][-1]), model.model_fields)
        found.append(InitErrorDetails(type=problem, loc=placed(detail["loc"]), input=detail["input"]))
    return refused_all(found)


_Compares = Exact | OneOf | Numeric | Contains | Regex | SetOf | JsonSchema | Similar | Python
_Bare = Literal["exact", "one_of", "numeric", "contains", "regex", "set", "json_schema", "text"]
_Forbids = Anywhere | Exact | OneOf | Contains | Regex | Python

AnyCriterion = Annotated[_Compares, BeforeValidator(_criterion, json_schema_input_type=_Compares | _Bare)]
"""A criterion in any of its forms: `exact`, `exact: /answer`, `exact: {path: /answer}`, `{rule: exact, path: ...}`."""

AnyForbidden = Annotated[_Forbids, BeforeValidator(_forbidden, json_schema_input_type=_Forbids | str | float)]
"""What is forbidden: a text or a number wherever it stands, or a criterion that must give no points."""
