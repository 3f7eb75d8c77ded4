"""What is wrong, said to people in one line.

A problem in a file of the user's names a place (a JSON pointer, RFC 6901), what stands there and what was expected;
the errors join it to the file. Of what somebody's code raised, the type and the text are said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from pytest_packbench.model.case import CASE_ID, DATE, NAME
from pytest_packbench.model.suite import TARGET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


UNREADABLE = "(its text can't be read)"
_SHOWN = 60
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
    "finite_number": "a finite number",
}
# a pattern says nothing to who reads no code
_FORMS = {
    CASE_ID: "letters, digits, _ and -, beginning with a letter or digit",
    NAME: "small letters, digits, _ and -, beginning with a letter or digit",
    DATE: "a date as YYYY-MM-DD",
    TARGET: "package.module:attr, http://... or cmd:...",
}
_RANGES = {
    "greater_than_equal": ("ge", "{} or more"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "{} or less"),
    "less_than": ("lt", "less than {}"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in one place of a file.

    Attributes:
        pointer: JSON pointer of the place; empty for the whole document.
        wrong: what stands there.
        expected: what should stand there, or what to do.
    """

    pointer: str
    wrong: str
    expected: str

    def __str__(self) -> str:
        """Say it in one line."""
        place = f"{self.pointer}: " if self.pointer else ""
        return f"{place}{self.wrong}; {self.expected}"


class InputError(ValueError):
    """A file of the user's can't be used.

    Attributes:
        source: the file as the user knows it.
        problems: what is wrong in it, at least one.
    """

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        first, *more = self.problems
        rest = f" (and {len(more)} more: {', '.join(p.pointer or '/' for p in more)})" if more else ""
        super().__init__(" ".join(f"{source}: {first}{rest}".split()))


class CaseError(InputError):
    """A case file can't be used."""


class SuiteError(InputError):
    """A `suite.yaml` can't be used."""


class CassetteError(InputError):
    """A cassette can't be used for its case."""


def describe_error(error: BaseException) -> str:
    """Give an error's type and its text, `ValueError: too long`; the type alone where it has no text."""
    text = error_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def error_text(error: BaseException) -> str:
    """Give an error's text, or words that say that it can't be read: it may be anybody's."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - its `__str__` may be anybody's
        return UNREADABLE


def json_pointer(location: Iterable[str | int]) -> str:
    """Give the JSON pointer (RFC 6901) of a path of keys and positions."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in location)


def format_value(value: object) -> str:
    """Show a JSON value in at most 60 characters, with the name of its type where it isn't plain."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def suggestion(word: str, known: Iterable[str]) -> str:
    """Say which known word was probably meant, or list them all."""
    names = list(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    return _guess(close[0]) if close else f"known here: {', '.join(names)}"


def validation_problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Translate pydantic's errors on `model` into problems, in the order of the file."""
    found = [(detail, _problem(detail, model)) for detail in error.errors(include_url=False)]
    # a misspelt key is missing under its right name as well: only the misspelling is said, and said first
    meant = {(detail["loc"][:-1], problem.expected) for detail, problem in found if detail["type"] == "extra_forbidden"}
    return [
        problem
        for detail, problem in found
        if detail["type"] != "missing" or (detail["loc"][:-1], _guess(str(detail["loc"][-1]))) not in meant
    ]


def _guess(name: str) -> str:
    return f'did you mean "{name}"?'


def _problem(detail: ErrorDetails, model: type[BaseModel]) -> Problem:
    location: tuple[str | int, ...] = detail["loc"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    kind = detail["type"]
    # pydantic inserts names of union members and of constraints, which stand in no file
    steps = [step for step in location if isinstance(step, int) or not step.startswith(("tuple[", "nullable"))]
    if kind == "extra_forbidden":
        word, names = str(steps[-1]), [step for step in steps[:-1] if isinstance(step, str)]
        return Problem(json_pointer(steps), f'unknown key "{word}"', suggestion(word, _keys_at(model, names)))
    if kind == "missing":
        return Problem(json_pointer(steps), f'the key "{steps[-1]}" is missing', "add it")
    wrong = f"got {format_value(detail['input'])}"
    expected = context.get("expected") or _expected(kind, context)
    if expected:
        return Problem(json_pointer(steps), str(context.get("wrong", wrong)), f"expected {expected}")
    message = detail["msg"].removeprefix("Value error, ")
    return Problem(json_pointer(steps), wrong, message[:1].lower() + message[1:])


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    """Say in words what pydantic expected; empty where its own message has to do."""
    if kind in _RANGES:
        bound, text = _RANGES[kind]
        return text.format(str(context[bound]).removesuffix(".0"))
    return _FORMS.get(context.get("pattern", ""), "") or _EXPECTED.get(kind, "")


def _keys_at(model: type[BaseModel], names: Sequence[str]) -> list[str]:
    """Give the keys of the object that stands under the keys `names`; none where no model says them."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    if not names:
        return list(fields)
    inner = _model_in(fields[names[0]].annotation) if names[0] in fields else None
    return _keys_at(inner, names[1:]) if inner else []


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
