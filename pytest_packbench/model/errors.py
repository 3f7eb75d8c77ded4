"""Errors in the files of users, each described in one line, and texts for messages.

A problem consists of a JSON pointer (RFC 6901), what was found there and what was expected; the errors add the file.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from pytest_packbench.files import InputLimitError, escape_unprintable, has_surrogate, printable_repr, walk
from pytest_packbench.model.case import CASE_ID, DATE, NAME, SHA256, TARGET
from pytest_packbench.model.run import SUITE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from traceback import FrameSummary

    from pydantic_core import ErrorDetails


_PACKAGE = str(Path(__file__).resolve().parent.parent)
_LIBRARY = str(Path(os.__file__).parent) + os.sep
# In this order. What has no width goes first, so that a letter and its accent become neighbours; so do the signs of a
# run behind the 30th, because the time to sort accents grows with their number squared.
_PLAIN = {
    "": "[\u00ad\u034f\u061c\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e0fff]|[^\\w\\s\x00-\x7f](?<=[^\\w\\s\x00-\x7f]{31})[^\\w\\s\x00-\x7f]*",
    "'": "[\u00b4\u02bc\u2018-\u201b\u2032\u2039\u203a]",
    '"': "[\u00ab\u00bb\u201c-\u201f\u2033\u301d-\u301f]",
    "-": "[\u2010-\u2015\u2212\u2e3a\u2e3b\u30a0\ufe58]",
    # a single space stays as it is, which is faster
    " ": r"\s{2,}|[^\S ]",
}


def fold(value: Any, gap: str = "") -> Any:
    """Return a JSON value with its texts in one form, keys of objects included.

    The form is NFKC with one space for white space, plain quotes and hyphens, and nothing that has no width. Upper and
    lower case stay. A text without letters and digits stays as it is: whoever looks for a dash means it.

    Args:
        value: the value.
        gap: what a zero-width space stands for.
    """
    if isinstance(value, dict):
        folded: dict[str, Any] = {}
        for name, member in value.items():
            plain = fold(name, gap)
            # none hides another
            folded[name if plain in folded else plain] = fold(member, gap)
        return folded
    if isinstance(value, list):
        return [fold(element, gap) for element in value]
    if not isinstance(value, str) or not any(map(str.isalnum, value)):
        return value
    value = value.replace("\u200b", gap)
    for plain, pattern in _PLAIN.items():
        value = re.sub(pattern, plain, value)
    return unicodedata.normalize("NFKC", value)


def spellings(value: Any) -> Iterator[Any]:
    """Yield a JSON value as it is, then folded: with each zero-width space as nothing, and as a space."""
    yield value
    yield fold(value)
    yield fold(value, " ")


UNREADABLE = "(its message cannot be read)"
_MAX_LENGTH = 60
# `json.dumps` would create one at each call
_SHOWN = json.JSONEncoder(ensure_ascii=False, default=repr)
_LONGEST_COMPARED = 100
_EXPECTED = {
    "string_type": "a string",
    "string_unicode": "a string of valid Unicode",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object",
    "dataclass_type": "an object",
    "dataclass_exact_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
    "finite_number": "a finite number",
}
# descriptions for users who do not read regular expressions
_PATTERNS = {
    CASE_ID: "letters, digits, _ and -, starting with a letter or digit",
    NAME: "lower-case letters, digits, _ and -, starting with a letter or digit",
    DATE: "a date as YYYY-MM-DD",
    SHA256: "a SHA-256 in hexadecimal",
    SUITE_NAME: "a name, no path",
    TARGET: "package.module:attr, http://... or cmd:...",
}
_RANGES = {
    "greater_than_equal": ("ge", "{} or more"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "{} or less"),
    "less_than": ("lt", "less than {}"),
    "too_short": ("min_length", "at least {} of them"),
}


class Problem(NamedTuple):
    """One problem at one location in a file.

    Attributes:
        pointer: JSON pointer of the location; empty for the whole document.
        wrong: what is wrong, such as `got 5`.
        expected: what was expected, or what to do.
    """

    pointer: str
    wrong: str
    expected: str

    def __str__(self) -> str:
        """Return the problem in one line."""
        location = f"{self.pointer}: " if self.pointer else ""
        return f"{location}{self.wrong}; {self.expected}"


class InputError(ValueError):
    """A file of the user is invalid.

    Attributes:
        source: the file, named as the user names it.
        problems: its problems, at least one; the message shows the first.
    """

    def __init__(self, source: object, problems: Sequence[Problem]) -> None:
        self.source = str(source)
        self.problems = tuple(problems)
        first, *more = self.problems
        rest = f" (and {len(more)} more: {', '.join(p.pointer or '/' for p in more)})" if more else ""
        super().__init__(escape_unprintable(single_spaced(f"{self.source}: {first}{rest}")))


class CaseError(InputError):
    """A case is invalid."""


class SuiteError(InputError):
    """A `suite.yaml` is invalid."""


class CassetteError(InputError):
    """A cassette is invalid, or does not belong to its case."""


class ControlError(InputError):
    """A control is invalid, could not fail, or is one of no case."""


def unreadable(error: OSError, expected: str) -> Problem:
    """Return the problem of a file that can't be read."""
    if isinstance(error, InputLimitError):
        return Problem("", error.wrong, error.expected)
    return Problem("", f"cannot be read: {error.strerror or error}", expected)


def describe_error(error: BaseException) -> str:
    """Return the type and message of an exception, `ValueError: too long`; the type alone without a message."""
    text = error_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def user_frames(error: BaseException) -> tuple[str, ...]:
    """Return an error's traceback, one line per frame, without this package, the event loop and the import system."""
    return tuple(
        f"{frame.filename}:{frame.lineno}: in {frame.name}: {frame.line or ''}" for frame in _frames_of_user(error)
    )


def describe_raised(error: BaseException) -> str:
    """Return the type and message of an exception, and the file and line of the user's code that raised it."""
    # not that of a library that the user's code has called
    own = [
        frame
        for frame in _frames_of_user(error)
        if "site-packages" in frame.filename or not frame.filename.startswith((_LIBRARY, "<"))
    ]
    return " ".join([describe_error(error), *(f"({_below(frame.filename)}:{frame.lineno})" for frame in own[-1:])])


def _below(file: str) -> str:
    """Return the path of a file from the current folder; only its name elsewhere, as a page may be for others."""
    path = Path(file)
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else path.name


def _frames_of_user(error: BaseException) -> list[FrameSummary]:
    hidden = _PACKAGE, f"{_LIBRARY}asyncio", f"{_LIBRARY}importlib", "<frozen importlib"
    return [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(hidden)]


def error_text(error: BaseException) -> str:
    """Return the message of an exception, or `UNREADABLE` if its `__str__` raises."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - any code may have defined its `__str__`
        return UNREADABLE


def json_pointer(location: Iterable[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of a sequence of keys and indexes."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in location)


def surrogate_at(value: object) -> str | None:
    """Return a pointer to the first text with a surrogate, or to the object with such a key; None if there is none."""
    for path, item in walk(value):
        texts = item if isinstance(item, dict) else (item,)
        if any(isinstance(text, str) and has_surrogate(text) for text in texts):
            return json_pointer(path)
    return None


def format_value(value: object) -> str:
    """Return a value as JSON, at most 60 characters; values that are not JSON appear as their `repr`."""
    try:
        text = _SHOWN.encode(value)
    except (TypeError, ValueError, RecursionError):
        # a key that is no text, a value that contains itself
        return printable_repr(value)
    # half of a surrogate pair can't be printed, nor be part of an error of pydantic
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `did you mean "..."?` if a known word is similar, otherwise the list of known words."""
    names = list(known)
    return _close_match(word, names) or f"expected one of {', '.join(names)}"


def _close_match(word: str, known: Sequence[str]) -> str:
    """Return `did you mean "..."?` if a known word is similar; otherwise an empty text."""
    # only the beginning, since comparing takes time
    close = get_close_matches(word[:_LONGEST_COMPARED], known, n=1, cutoff=0.6)
    return _did_you_mean(close[0]) if close else ""


def duplicate_id(case_id: str, other: str, *, key: str = "id") -> Problem:
    """Return the problem of a case with the id of another, or of a second recording of a case.

    Args:
        case_id: the id.
        other: the location of the other case, or several with commas.
        key: the key with the id.
    """
    return Problem(f"/{key}", f'duplicate id "{case_id}", also in {other}', "use a unique id")


def validation_problems(
    error: ValidationError, model: type[BaseModel] | None = None, data: object = None
) -> list[Problem]:
    """Convert pydantic's errors on a model to problems, in the order of the file.

    Args:
        error: the errors.
        model: the model, which knows the keys that a misspelt one may stand for.
        data: what was validated, to find what pydantic can't write: a key with half of a surrogate pair.
    """
    try:
        found = error.errors(include_url=False)
    except UnicodeEncodeError:
        # pydantic can't write its message
        wrong = "contains half of a surrogate pair"
        return [Problem(surrogate_at(data) or "", wrong, "write the whole character")]
    details = [(detail, _problem(detail, model)) for detail in found]
    # a misspelt key is also missing under its right name: only the misspelling is reported
    misspelt = {
        (detail["loc"][:-1], problem.expected) for detail, problem in details if detail["type"] == "extra_forbidden"
    }
    return [
        problem
        for detail, problem in details
        if detail["type"] != "missing" or (detail["loc"][:-1], _did_you_mean(str(detail["loc"][-1]))) not in misspelt
    ]


def unknown_keys(error: ValidationError, data: Any) -> list[tuple[str | int, ...]]:
    """Return where a value has keys that no model knows, by pydantic's errors on it; each once.

    Of a union, a key that one of its members knows is none of them.

    Args:
        error: the errors.
        data: what was validated. What a validator of the model has made of it is not looked into.
    """
    try:
        details = error.errors(include_url=False, include_context=False, include_input=False)
    except UnicodeEncodeError:
        # as in `validation_problems`
        return []
    # by the place of a union: what each member that was tried does not know
    found: dict[tuple[str | int, ...], dict[str | int | None, set[tuple[str | int, ...]]]] = {}
    for detail in details:
        union, member, path = _in_data(detail["loc"], data)
        unknown = found.setdefault(union, {}).setdefault(member, set())
        if detail["type"] == "extra_forbidden" and _has(data, path):
            unknown.add(path)
    paths = (path for members in found.values() for path in set.intersection(*members.values()))
    return sorted(paths, key=json_pointer)


def _in_data(
    location: Sequence[str | int], data: Any
) -> tuple[tuple[str | int, ...], str | int | None, tuple[str | int, ...]]:
    """Split pydantic's location: the place of the first union on the way, the member that was tried, and the path.

    Without a union the first is empty and the second None. What pydantic inserts is no key of the data.
    """
    union: tuple[str | int, ...] = ()
    member: str | int | None = None
    path: list[str | int] = []
    *containers, last = location or ("",)
    for step in containers:
        if _has(data, (step,)):
            path.append(step)
            data = data[step]
        elif member is None:
            union, member = tuple(path), step
    return union, member, (*path, last)


def _has(data: Any, path: Sequence[str | int]) -> bool:
    """Return whether there is a value at a path."""
    for step in path:
        is_there = step in data if isinstance(data, dict) else isinstance(data, list) and step in range(len(data))
        if not is_there:
            return False
        data = data[step]
    return True


def without_keys(data: Any, paths: Iterable[Sequence[str | int]]) -> Any:
    """Return a copy of a JSON value without the keys at some paths, each of which leads to a key of an object."""
    inner: dict[str | int, list[Sequence[str | int]]] = {}
    for first, *rest in paths:
        inner.setdefault(first, []).append(rest)
    gone = {key for key, rests in inner.items() if [] in rests}
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    kept = {key: without_keys(value, inner[key]) if key in inner else value for key, value in pairs if key not in gone}
    return kept if isinstance(data, dict) else list(kept.values())


def first_problem(error: ValidationError, data: object = None) -> Problem:
    """Return the first of pydantic's errors on a value that was read from a file."""
    return validation_problems(error, data=data)[0]


def _did_you_mean(name: str) -> str:
    return f'did you mean "{name}"?'


def _problem(detail: ErrorDetails, model: type[BaseModel] | None) -> Problem:
    location: tuple[str | int, ...] = detail["loc"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    kind = detail["type"]
    # pydantic inserts names of union members and of constraints, which are not in the file
    # an unknown key is the user's, whatever it is
    end = len(location) - (kind == "extra_forbidden")
    steps = [step for step in location[:end] if isinstance(step, int) or not step.startswith(("tuple[", "nullable"))]
    steps += location[end:]
    if kind == "extra_forbidden" and model is not None:
        word = str(steps[-1])
        names = [step for step in steps[:-1] if isinstance(step, str)]
        return Problem(json_pointer(steps), f'unknown key "{word}"', suggestion(word, _keys_at(model, names)))
    # the second is pydantic 2.10's for named tuples
    if kind in {"missing", "missing_argument"}:
        return Problem(json_pointer(steps), f'the key "{steps[-1]}" is missing', "add it")
    # of the document itself it is one of its keys
    wrong = f"got {'the key ' if kind == 'string_unicode' and not steps else ''}{format_value(detail['input'])}"
    expected = context.get("expected") or _expected(kind, context)
    if expected:
        is_word = kind == "literal_error" and isinstance(detail["input"], str)
        meant = _close_match(detail["input"], re.findall("'([^']*)'", expected)) if is_word else ""
        hint = f"; {meant}" if meant else ""
        return Problem(json_pointer(steps), str(context.get("wrong", wrong)), f"expected {expected}{hint}")
    message = detail["msg"].removeprefix("Value error, ")
    return Problem(json_pointer(steps), wrong, message[:1].lower() + message[1:])


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    """Describe what pydantic expected; empty if only its own message describes that."""
    if kind in _RANGES:
        bound, text = _RANGES[kind]
        return text.format(str(context[bound]).removesuffix(".0"))
    return _PATTERNS.get(context.get("pattern", ""), "") or _EXPECTED.get(kind, "")


def _keys_at(model: type[BaseModel], names: Sequence[str]) -> list[str]:
    """Return the keys of the object under the keys `names`; an empty list if no model defines them."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    if not names:
        return list(fields)
    inner = model_in(fields[names[0]].annotation) if names[0] in fields else None
    return _keys_at(inner, names[1:]) if inner else []


def model_in(annotation: object) -> type[BaseModel] | None:
    """Return the first model in the type of a field; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := model_in(part))), None)


def single_spaced(text: str) -> str:
    """Return a text with one space in place of all white space between its words."""
    return " ".join(text.split())


def first_of(lines: Sequence[str], limit: int, total: int = 0) -> list[str]:
    """Return at most `limit` lines; one more counts the others, if there are any: of `total` lines in all, if more."""
    hidden = max(len(lines), total) - limit
    return [*lines[:limit], f"and {hidden:,} more"] if hidden > 0 else [*lines]


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1: `1 case`, `2 cases`, `1,000 cases`.

    Args:
        number: how many.
        noun: in the singular; its plural ends in "s".
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class StoredRunError(ValueError):
    """A stored run is missing or unreadable; the message is one line with the file and the problem."""


class NoReportError(StoredRunError):
    """A file is no report of a run.

    Attributes:
        raw: its content.
    """

    def __init__(self, problem: str, raw: bytes) -> None:
        super().__init__(problem)
        self.raw = raw


MAX_SKIPPED_NAMED = 10


@dataclass(slots=True)
class SkippedLines:
    """The lines that could not be read.

    Attributes:
        count: their number.
        first: the first `MAX_SKIPPED_NAMED` of them, as `FILE:LINE: why`.
    """

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Add one line."""
        self.count += 1
        if len(self.first) < MAX_SKIPPED_NAMED:
            self.first.append(problem)
