"""Paths to JSON values, checks of them, and errors with their location.

A path is a JSON pointer (RFC 6901), or a JSONPath (RFC 9535) if it starts with `$`.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from functools import lru_cache
from importlib import import_module
from inspect import iscoroutinefunction
from os.path import commonprefix
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator

from pytest_packbench.files import is_plain
from pytest_packbench.model.case import misfit
from pytest_packbench.model.errors import fold, format_value
from pytest_packbench.model.request import TargetError
from pytest_packbench.packs import NOT_IMPORTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from pytest_packbench.model.case import Location

_MAX_LENGTH = 80
_INDEX = r"0|[1-9][0-9]*"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# the top of the document, with keys and indexes
_NARROW = r"\$(?:\s*\.\s*\w+|\s*\[[^\[\]*?:,]*\])*"
_WIDE = r"\$\s*[.\[]"
# a second list of selectors, such as [*,*]: repeated ones multiply the visits
_TWO_LISTS = r",[^\]]*\][^,]*,"
_FIRST_KEYS = r"\$(?:\.[A-Za-z_]\w*(?!\())*"
_FIRST_KEY = r"\.(\w+)"
# their patterns come from documents and have no time limit
_DISABLED_FUNCTIONS = ("match", "search")


class Missing(Enum):
    """The result of a path that matches nothing; null is a value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class CriterionError(ValueError):
    """A comparison failed to run, which is not the same as no points."""


class CompiledPath(NamedTuple):
    """A path that is ready to be evaluated.

    Attributes:
        text: the path as it was written.
        find: returns the value at the path in a document, or `MISSING`; raises `CriterionError` if a JSONPath meets too
            many levels.
        is_multiple: whether it may match several values, which are returned as a list.
        location: the keys and indexes of a JSON pointer; of a JSONPath the keys before what may match several values.
    """

    text: str
    find: Callable[[Any], Any]
    is_multiple: bool
    location: Location

    def __str__(self) -> str:
        """Return the path for a message."""
        return self.text or "the top level"


@lru_cache(maxsize=1024)
def compile_path(text: str) -> CompiledPath:
    """Compile a path.

    A JSONPath that can match one value only finds that value. Any other finds the list of its matches, or `MISSING` if
    there are none.

    Raises:
        PydanticCustomError: it is neither a JSON pointer nor a JSONPath.
    """
    if text.startswith("$"):
        return _compile_json_path(text)
    if text and not text.startswith("/"):
        raise misfit(f'"{text}" is not a path', f'a JSON pointer such as "/{text}", or a JSONPath that starts with $')
    tokens = tuple(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])

    def find(document: Any) -> Any:
        value = document
        for token in tokens:
            if isinstance(value, dict):
                value = value.get(token, MISSING)
            elif isinstance(value, list) and re.fullmatch(_INDEX, token) and int(token) < len(value):
                value = value[int(token)]
            else:
                return MISSING
        return value

    return CompiledPath(text, find, is_multiple=False, location=tokens)


def _compile_json_path(text: str) -> CompiledPath:
    library = import_extra("jsonpath", extra=GENERIC, what=f"the path {text}")
    environment = library.JSONPathEnvironment(strict=True)
    for name in _DISABLED_FUNCTIONS:
        del environment.function_extensions[name]
    try:
        query = environment.compile(text)
    except library.JSONPathError as error:
        # what follows shows the place
        why, *_ = str(error).splitlines()
        wrong = f'"{text}" is not a valid JSONPath: {why}'
        raise misfit(wrong, "RFC 9535 syntax, such as $.items[*].name") from None
    # else the values of a document with a million of them could be visited a million times a million times
    plain = re.sub(_QUOTED, "''", text)
    if plain.count("..") > 1 or re.search(_TWO_LISTS, plain) or re.search(_WIDE, re.sub(_NARROW, "$", plain[1:])):
        wrong = f'"{text}" may visit a value many times'
        raise misfit(wrong, "at most one .., one list with commas, and in a filter $ with keys and indexes only")
    is_multiple = not query.singular_query()

    def find(document: Any) -> Any:
        # the library would parse a text as JSON
        if isinstance(document, str):
            return document if text == "$" else MISSING
        try:
            matches = query.findall(document)
        except library.JSONPathError:
            wrong = f"the path {text}: recursion limit exceeded in the value"
            raise CriterionError(f"{wrong}; expected fewer levels") from None
        return MISSING if not matches else matches if is_multiple else matches[0]

    keys = re.match(_FIRST_KEYS, text)
    return CompiledPath(text, find, is_multiple, tuple(re.findall(_FIRST_KEY, keys[0])) if keys else ())


PathText = Annotated[str, AfterValidator(lambda text: compile_path(text).text)]
"""A path in a model; kept as text, so that the suite's hash is that of the text in its file."""


def leaves(value: Any) -> Iterator[Any]:
    """Yield every string, number, boolean and null in a value, and the keys of its objects."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for element in value:
            yield from leaves(element)
    else:
        yield value


def look_alike(value: Any, expected: Any) -> str:
    """Describe the first text in a value that prints like an expected one and is another; empty without one."""
    printed = {fold(format_value(text)): text for text in leaves(expected)}
    for text in leaves(value):
        other = printed.get(fold(format_value(text)), text)
        if text != other and isinstance(text, str):
            at = len(commonprefix([text, other]))  # noqa: RUF071 - of texts
            shown = ", expected ".join(json.dumps(one[at : at + 8]) for one in (text, other))
            return f"; they differ from character {at + 1}: {shown}"
    return ""


def require_json(value: Any) -> Any:
    """Return a value if it can be written as JSON.

    Raises:
        PydanticCustomError: YAML, or a program, gave something else, such as a key that is no text.
    """
    if not is_plain([value]):
        raise misfit(f"got {format_value(value)}", "a JSON value, whose keys are texts in quotes")
    return value


JsonValue = Annotated[Any, AfterValidator(require_json)]
"""A JSON value in a model."""


def truncate(text: str) -> str:
    """Cut a text to what fits in a table."""
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


GENERIC = "generic"
TEXT = "text"


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
        raise misfit(
            f"{what} requires the library {module.partition('.')[0]}, which is not installed",
            f'the extra "{extra}": pip install "pytest-packbench[{extra}]"',
        ) from None


def importable(spec: str) -> str:
    """Return the name of a user's function that can be called; where the rules of a suite are only read, any name.

    Args:
        spec: `package.module:attr`.

    Raises:
        PydanticCustomError: it can't be imported, or is no synchronous function.
    """
    not_imported = NOT_IMPORTED.get()
    if not_imported is not None:
        not_imported.append(spec)
        return spec
    try:
        function = imported(spec)
    except TargetError as error:
        raise misfit(str(error), "package.module:attr, importable from the project's root folder") from None
    if not callable(function) or iscoroutinefunction(function):
        raise misfit(f"got {format_value(spec)}", "a synchronous function of (value, expected, case_input)")
    return spec


def imported(spec: str) -> Any:
    """Return a user's function by its name; raises `TargetError` if it can't be imported."""
    from pytest_packbench.engine.targets import import_object  # a run has it anyway

    return import_object(spec, "function")


FunctionName = Annotated[str, AfterValidator(importable)]
"""The name of a user's function in a model, `package.module:attr`; it is imported with the suite."""
