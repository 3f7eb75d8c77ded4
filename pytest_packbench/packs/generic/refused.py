"""Mistakes in a suite's rules or in a case, raised so that they come out with their place and what to do."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from pytest_packbench.model.errors import format_value, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_SPEC = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
GENERIC = "generic"
TEXT = "text"

Location = tuple[str | int, ...]


def refused(wrong: str, expected: str) -> PydanticCustomError:
    """Say what stands somewhere and what should; the place is added by whoever validates it."""
    return PydanticCustomError("generic", "not usable", {"wrong": wrong, "expected": expected})


def refused_word(what: str, word: str, known: Iterable[str]) -> PydanticCustomError:
    """Say that a word isn't known, with the one that was probably meant."""
    meant = suggestion(word, known)
    return refused(
        f'{what} "{word}"', meant.removeprefix("did you mean ").removesuffix("?").replace("known here", "one of")
    )


def refused_at(location: Location, problem: PydanticCustomError, value: object) -> ValidationError:
    """Say what is wrong at a place below the one that is validated."""
    return refused_all([InitErrorDetails(type=problem, loc=location, input=value)])


def refused_all(problems: list[InitErrorDetails]) -> ValidationError:
    """Say several things at once, each with its place."""
    return ValidationError.from_exception_data("generic", problems)


def need(module: str, *, extra: str, what: str) -> ModuleType:
    """Import a library that an extra brings.

    Args:
        module: its name in Python.
        extra: the extra of this package that installs it.
        what: what needs it, for the error.

    Raises:
        PydanticCustomError: it isn't installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise refused(
            f"{what} needs the library {module.partition('.')[0]}, which is not installed",
            f'the extra "{extra}": pip install "pytest-packbench[{extra}]"',
        ) from None


def import_function(spec: str) -> Any:
    """Import a function of the user's, `package.module:attr`.

    Raises:
        PydanticCustomError: it can't be imported, or can't be called.
    """
    if not _SPEC.fullmatch(spec):
        raise refused(f"got {format_value(spec)}", "package.module:attr")
    module, _, path = spec.partition(":")
    try:
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything when it is imported
        wrong = f'"{spec}" can\'t be imported: {type(error).__name__}: {error}'
        raise refused(wrong, "package.module:attr, found from the project's root folder") from None
    if not callable(found):
        raise refused(f'"{spec}" is a {type(found).__name__}', "a function of result value, expected value, case input")
    return found
