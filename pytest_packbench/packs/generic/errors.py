"""Validation errors of suites and cases, with their location, and imports that fail with one."""

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


def invalid(wrong: str, expected: str) -> PydanticCustomError:
    """Return an error of the value that is being validated; pydantic adds its location."""
    return PydanticCustomError("generic", "invalid", {"wrong": wrong, "expected": expected})


def unknown_word(what: str, word: str, known: Iterable[str]) -> PydanticCustomError:
    """Return the error of a word that isn't known, with the closest known word or all of them."""
    hint = suggestion(word, known).removeprefix("did you mean ").removesuffix("?").removeprefix("expected ")
    return invalid(f'{what} "{word}"', hint)


def invalid_at(location: Location, problem: PydanticCustomError, value: object) -> ValidationError:
    """Return an error at a location below the value that is being validated."""
    return validation_error([InitErrorDetails(type=problem, loc=location, input=value)])


def validation_error(problems: list[InitErrorDetails]) -> ValidationError:
    """Return several errors as one, each with its location."""
    return ValidationError.from_exception_data("generic", problems)


def import_extra(module: str, *, extra: str, what: str) -> ModuleType:
    """Import a library that an extra installs.

    Args:
        module: the name of the module.
        extra: the extra of this package that installs it.
        what: what requires it, for the error.

    Raises:
        PydanticCustomError: it isn't installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise invalid(
            f"{what} requires the library {module.partition('.')[0]}, which is not installed",
            f'the extra "{extra}": pip install "pytest-packbench[{extra}]"',
        ) from None


def import_function(spec: str) -> Any:
    """Import a user's function.

    Args:
        spec: `package.module:attr`.

    Raises:
        PydanticCustomError: it can't be imported, or isn't callable.
    """
    if not _SPEC.fullmatch(spec):
        raise invalid(f"got {format_value(spec)}", "package.module:attr")
    module, _, attributes = spec.partition(":")
    try:
        function: Any = import_module(module)
        for name in attributes.split("."):
            function = getattr(function, name)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything when it is imported
        wrong = f'can\'t import "{spec}": {type(error).__name__}: {error}'
        raise invalid(wrong, "package.module:attr, importable from the project's root folder") from None
    if not callable(function):
        raise invalid(f'"{spec}" is a {type(function).__name__}', "a function of (value, expected, case_input)")
    return function
