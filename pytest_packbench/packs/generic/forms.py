"""The forms in which `suite.yaml` writes a criterion, and the errors of each at the location where it is written.

All of these are the same criterion: `exact: /answer`, `exact: {path: /answer}`, `{rule: exact, path: /answer}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from pytest_packbench.model.errors import format_value
from pytest_packbench.packs.generic.criteria import (
    Contains,
    ContainsAnywhere,
    Criterion,
    Exact,
    JsonSchema,
    Numeric,
    OneOf,
    PythonFunction,
    Regex,
    SetOf,
    TextSimilarity,
)
from pytest_packbench.packs.generic.values import Location, invalid, invalid_at, unknown_word, validation_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

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
