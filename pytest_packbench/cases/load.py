"""Loading cases, cassettes and `suite.yaml` into strict models; every error names the location in the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_packbench.model.case import LoadedCase, canonical_sha256
from pytest_packbench.model.errors import (
    CaseError,
    CassetteError,
    ControlError,
    InputError,
    Problem,
    SuiteError,
    format_value,
    suggestion,
    validation_problems,
)
from pytest_packbench.model.suite import CONFIG_NAME, Suite, SuiteConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.model.case import Case
    from pytest_packbench.model.cassette import Cassette
    from pytest_packbench.model.control import Control
    from pytest_packbench.model.policy import AllowedChanges


ModelT = TypeVar("ModelT", bound=BaseModel)


# deeper values can't be written as JSON again
_MAX_DEPTH, _NAMED = 100, 2
_FIELD_NAMES: dict[frozenset[str], set[str]] = {}


class JsonError(ValueError):
    """A text is not valid JSON.

    Attributes:
        problem: the problem, with line and column if they are known.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def parse_json(raw: bytes) -> Any:
    """Parse a JSON document of the user.

    Stricter than `json`: duplicate keys, NaN and infinities are errors, because other programs read them differently.
    A byte order mark is allowed.

    Raises:
        JsonError: the document is not valid.
    """
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise JsonError(Problem("", f"byte {error.start} is not UTF-8", "save the file as UTF-8")) from None
    except json.JSONDecodeError as error:
        raise JsonError(_not_json(error)) from None
    except RecursionError:
        raise JsonError(Problem("", "nested too deeply", "expected a JSON object of a few levels")) from None
    except JsonError:
        raise
    except ValueError:
        # Python converts no integer of more than 4,300 digits
        raise JsonError(Problem("", "contains a number with thousands of digits", "expected a number")) from None


def parse_case(raw: bytes, model: type[Case], *, source: str, stem: str | None, pack: str | None) -> LoadedCase:
    """Parse and validate one case.

    Args:
        raw: the bytes of the case.
        model: the pack's case model.
        source: the name of the file for error messages.
        stem: the name of the file without its suffix, which must be the id; None if the case has no file of its own.
        pack: the name of the suite's pack, which the case must name as well; None to accept any.

    Raises:
        CaseError: the case is invalid; one line with file, JSON pointer, problem and what was expected.
    """
    try:
        data = parse_json(raw)
    except JsonError as error:
        raise CaseError(source, [error.problem]) from None
    return check_case(data, model, source=source, stem=stem, pack=pack)


def check_case(data: object, model: type[Case], *, source: str, stem: str | None, pack: str | None) -> LoadedCase:
    """Validate one parsed case; arguments and errors as in `parse_case`."""
    case = _validated(data, model, source, CaseError)
    if stem is not None and case.id != stem:
        problem = Problem("/id", f"got {format_value(case.id)}", f'expected "{stem}", the name of the file')
        raise CaseError(source, [problem])
    if pack is not None and case.pack_id != pack:
        problem = Problem("/pack_id", f"got {format_value(case.pack_id)}", f'expected "{pack}", the pack of this suite')
        raise CaseError(source, [problem])
    _share_field_names(case)
    # the model has validated that `data` is an object
    input_sha256 = canonical_sha256(data["input"])  # type: ignore[index]  # see above
    return LoadedCase(case=case, sha256=case_sha256(data), input_sha256=input_sha256)


def _share_field_names(case: Case) -> None:
    """Give equal cases one set of field names: a set of its own takes as much memory as the text of a case."""
    names = case.model_fields_set
    object.__setattr__(case, "__pydantic_fields_set__", _FIELD_NAMES.setdefault(frozenset(names), names))


def case_sha256(data: object) -> str:
    """Return the hash of a parsed case without its `$schema`."""
    plain = {key: value for key, value in data.items() if key != "$schema"} if isinstance(data, dict) else data
    return canonical_sha256(plain)


def load_cassette(path: Path, *, source: str) -> tuple[Cassette, str]:
    """Load the cassette of a file and return it with the hash of its content.

    Args:
        path: its file.
        source: the name of the file for error messages.

    Raises:
        FileNotFoundError: the file does not exist.
        CassetteError: the cassette is invalid; one line with file, JSON pointer, problem and what was expected.
    """
    return parse_cassette(path.read_bytes(), source=source)


def parse_cassette(raw: bytes, *, source: str, is_line: bool = False) -> tuple[Cassette, str]:
    """Parse a cassette and return it with the hash of its content.

    Args:
        raw: its bytes.
        source: the name of the file for error messages, with the line if it is one.
        is_line: whether it is one line of a file.

    Raises:
        CassetteError: the cassette is invalid; one line with file, JSON pointer, problem and what was expected.
    """
    from pytest_packbench.model.cassette import Cassette  # many cases have none

    try:
        data = parse_json(raw)
    except JsonError as error:
        raise CassetteError(source, [in_line(error.problem) if is_line else error.problem]) from None
    if isinstance(data, dict) and "conditions" not in data:
        version = data.get("cassette_version")
        problem = Problem(
            "/conditions",
            f"the key is missing{' (version 1)' if version == 1 else ''}: the recording does not state its target, "
            "guards, judges and tools",
            "packbench accept --adopt SUITE adds those of today",
        )
        raise CassetteError(source, [problem])
    return _validated(data, Cassette, source, CassetteError), canonical_sha256(data)


def parse_control(raw: bytes, *, source: str, name: str | None, names_checks: bool | None = None) -> Control:
    """Parse a control and check that it could fail.

    Args:
        raw: its bytes.
        source: the name of the file for error messages, with the line if it is one.
        name: the name of its file without the suffix, which has to be its id; None for a line.
        names_checks: whether the suite's pack names the check that decides; None if that is not known.

    Raises:
        ControlError: it is invalid; one line with file, JSON pointer, problem and what was expected.
    """
    from pytest_packbench.model.control import Control, control_problems  # most suites have none

    try:
        data = parse_json(raw)
    except JsonError as error:
        raise ControlError(source, [in_line(error.problem) if name is None else error.problem]) from None
    if isinstance(data, dict) and "cassette_version" in data and "expected" not in data:
        advice = "put its exchanges under cassette of a control (for its format: packbench schema control)"
        raise ControlError(source, [Problem("", "a recording, which has no expected end", advice)])
    nested = _nested_deeply(data)
    if nested is not None:
        problem = Problem(nested, f"nested deeper than {_MAX_DEPTH}", "remove levels")
        raise ControlError(source, [problem])
    control = _validated(data, Control, source, ControlError)
    problems = control_problems(control, control.id if name is None else name, names_checks=names_checks)
    if problems:
        raise ControlError(source, problems)
    return control


def _nested_deeply(data: Any) -> str | None:
    """Return the JSON pointer, cut after two names, of a value that is nested too deeply to be written again."""
    pending: list[tuple[Any, int, str]] = [(data, 1, "")]
    while pending:
        value, depth, pointer = pending.pop()
        if not isinstance(value, dict | list):
            continue
        if depth > _MAX_DEPTH:
            return pointer
        names = value.items() if isinstance(value, dict) else enumerate(value)
        pending += [(item, depth + 1, f"{pointer}/{name}" if depth <= _NAMED else pointer) for name, item in names]
    return None


def read_config(path: Path, models: Mapping[str, type[SuiteConfig]], *, source: str) -> SuiteConfig:
    """Load the `suite.yaml` of a suite's folder.

    Args:
        path: the folder.
        models: the available packs with their suite models.
        source: the name of the file for error messages.

    Raises:
        SuiteError: the file is invalid; one line with file, JSON pointer, problem and what was expected.
    """
    try:
        raw = (path / CONFIG_NAME).read_bytes()
    except OSError as error:
        raise SuiteError(source, [_unreadable(error)]) from None
    return check_config(parse_yaml(raw, source=source), models, source=source)


def parse_yaml(raw: bytes, *, source: str) -> Any:
    """Parse a YAML document of the user: duplicate keys are errors, and dates stay text.

    Args:
        raw: its bytes.
        source: the name of the file for error messages.

    Raises:
        SuiteError: the document is not valid.
    """
    import yaml  # a run without suites needs no YAML

    try:
        return yaml.load(raw.decode("utf-8-sig"), Loader=_yaml_loader())  # noqa: S506 - a subclass of the safe loader
    except JsonError as error:
        raise SuiteError(source, [error.problem]) from None
    except UnicodeDecodeError as error:
        raise SuiteError(source, [_unreadable(error)]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f"line {mark.line + 1} column {mark.column + 1}: " if mark else ""
        wrong = f"{position}not YAML: {getattr(error, 'problem', None) or error}"
        raise SuiteError(source, [Problem("", wrong, "expected keys and values")]) from None
    except (ValueError, RecursionError):
        # an invalid date, a number with thousands of digits, a thousand levels
        raise SuiteError(
            source, [Problem("", "contains a value that YAML cannot read", "expected plain values")]
        ) from None


def _unreadable(error: Exception) -> Problem:
    return Problem("", f"cannot be read: {error}", "expected a UTF-8 file")


def check_config(data: Any, models: Mapping[str, type[SuiteConfig]], *, source: str) -> SuiteConfig:
    """Validate the parsed content of a `suite.yaml`; arguments and errors as in `read_config`."""
    name = data.get("pack") if isinstance(data, dict) else None
    if not isinstance(name, str):
        wrong = 'the key "pack" is missing' if isinstance(data, dict) else f"got {format_value(data)}"
        raise SuiteError(source, [Problem("/pack", wrong, f"expected one of {', '.join(sorted(models))}")])
    if name not in models:
        raise SuiteError(source, [Problem("/pack", f'unknown pack "{name}"', suggestion(name, sorted(models)))])
    return _validated(data, models[name], source, SuiteError)


def read_changes(path: Path, *, source: str) -> AllowedChanges:
    """Read the allowed changes of a suite's acceptance policy.

    Args:
        path: the `policy_changes.yaml`.
        source: the name of the file for error messages.

    Raises:
        SuiteError: the file is invalid.
        OSError: it can't be read.
    """
    from pytest_packbench.model.policy import AllowedChanges

    data = parse_yaml(path.read_bytes(), source=source)
    return _validated({} if data is None else data, AllowedChanges, source, SuiteError)


def scoring_sha256(config: SuiteConfig) -> str:
    """Return the hash of the rules that turn an answer into a score and a verdict.

    All keys of `suite.yaml` count, including the pack's own and all defaults, except `config.not_scoring`: gates,
    targets, models, prices and descriptions do not change a score.
    """
    return canonical_sha256(config.model_dump(mode="json", exclude=set(config.not_scoring)))


def read_suite(
    path: Path, models: Mapping[str, type[SuiteConfig]], *, source: str, name: str = "", bundled: bool = False
) -> Suite:
    """Load a suite; its cases are not read.

    Args:
        path: the folder of the suite.
        models: the available packs with their suite models.
        source: the name of its `suite.yaml` for error messages.
        name: the name of the suite; empty for the name of its folder.
        bundled: whether it is part of the installed package.

    Raises:
        SuiteError: `suite.yaml` is invalid; one line with file, JSON pointer, problem and what was expected.
    """
    rules = read_config(path, models, source=source)
    return Suite(name=name or path.name, path=path, config=rules, sha256=scoring_sha256(rules), bundled=bundled)


def in_line(problem: Problem) -> Problem:
    """Return a problem of one line of a file: the parser counts lines from the start of this one."""
    return problem._replace(wrong=problem.wrong.removeprefix("line 1 "))


def _not_json(error: json.JSONDecodeError) -> Problem:
    before = error.doc[: error.pos].rstrip()
    # a trailing comma is the most frequent mistake
    comma = None
    if error.msg.startswith("Illegal trailing comma"):
        # Python 3.13 and later report the comma
        comma = error
    elif before.endswith(",") and error.doc[error.pos : error.pos + 1] in {"}", "]"}:
        comma = json.JSONDecodeError(error.msg, error.doc, len(before) - 1)
    location = comma or error
    position = f"line {location.lineno} column {location.colno}"
    if comma is not None:
        return Problem("", f"{position}: trailing comma", "remove the comma before the closing bracket")
    # a document that starts with something else, or continues after its end, is not a single object
    is_other = not before or error.msg == "Extra data"
    return Problem(
        "", f"{position}: not JSON: {error.msg}", "expected one JSON object" if is_other else "expected JSON"
    )


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add() returns None, which counts as false
        raise JsonError(Problem("", f'duplicate key "{key}" in one object', "keep one"))
    return result


def _no_constant(word: str) -> float:
    raise JsonError(Problem("", f"{word} is not JSON", "expected a finite number or null"))


def _yaml_loader() -> Any:
    """Return a safe loader that rejects duplicate keys and loads dates as strings, as in JSON."""
    import yaml

    class Strict(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 - a class attribute of pyyaml
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyyaml's signature
            nodes = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            keys = [self.construct_object(key, deep=True) for key in nodes]
            for position, key in enumerate(keys):
                if key in keys[:position]:
                    line = nodes[position].start_mark.line + 1
                    raise JsonError(Problem("", f'line {line}: duplicate key "{key}"', "keep one"))
            return super().construct_mapping(node, deep)

    return Strict


def _validated(data: object, model: type[ModelT], source: str, error_type: type[InputError]) -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise error_type(source, validation_problems(error, model)) from None
    except Exception as error:
        # the model of a third-party pack may raise anything, and an invalid file must not hide the others
        wrong = f"the pack's {model.__name__} raised {type(error).__name__}: {' '.join(str(error).split())}"
        raise error_type(
            source, [Problem("", wrong, "expected the model to accept the file or raise a ValidationError")]
        ) from error
