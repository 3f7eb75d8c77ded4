"""Loading cases, cassettes and `suite.yaml` into strict models; every error names the location in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_packbench.cases.finder import (
    CASE_KIND,
    CASSETTE_KIND,
    CONTROL_KIND,
    Kind,
    suite_locations,
    unprintable_name,
    unreadable_file,
)
from pytest_packbench.files import (
    CASE,
    LIMITS,
    RECORDING,
    InputLimitError,
    Limit,
    NumberError,
    RepeatedKeyError,
    canonical_sha256,
    check_link,
    format_size,
    has_control_characters,
    parse_strict,
    position_of,
    read_line,
    read_regular,
)
from pytest_packbench.model.case import Case, LoadedCase
from pytest_packbench.model.errors import (
    CaseError,
    CassetteError,
    ControlError,
    InputError,
    Problem,
    SuiteError,
    describe_error,
    duplicate_id,
    format_value,
    model_in,
    suggestion,
    unreadable,
    validation_problems,
)
from pytest_packbench.model.suite import CONFIG_NAME, CONTROLS, FIXTURES, IGNORED, PARTIAL, PENDING, Suite, SuiteConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.cases.finder import CaseIndex, CaseLocation, Recording
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.recording import Cassette, Control, ControlResult
    from pytest_packbench.model.report import AllowedChanges


ModelT = TypeVar("ModelT", bound=BaseModel)
FINITE = "expected a number below 1.8e308, or null"
UNSTATED_ADVICE = "delete it and record the case again, or write into it what it was made with (key conditions)"
"""What to do with a recording that does not state its conditions."""


# they may be links, within the project
_FOLDERS = ("cases", FIXTURES, f"{FIXTURES}/{CONTROLS}", f"{FIXTURES}/{PENDING}", f"{FIXTURES}/{PARTIAL}")
_STRING = rb'(?s)"(?:[^"\\]++|\\.)*+"'
_NAMED = 2
_FIELD_NAMES: dict[frozenset[str], set[str]] = {}
# how JSON writes a value that is no text; nothing stands for null
_SCALAR = re.compile(r"(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)?")
_EXPONENT = re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+$")
# without a decimal that loses the zeros at its end
_SEARCHED = re.compile(rf"(?!.*\.\d+0$){_SCALAR.pattern}")


class JsonError(ValueError):
    """A text is not valid JSON.

    Attributes:
        problem: the problem, with line and column if they are known.
    """

    def __init__(self, wrong: str, expected: str, pointer: str = "") -> None:
        self.problem = Problem(pointer, wrong, expected)
        super().__init__(str(self.problem))


def parse_json(raw: bytes, limit: Limit = CASE) -> Any:
    """Parse a JSON document of the user.

    Stricter than `json`: duplicate keys, and numbers that no double holds, are errors, because other programs read them
    differently.
    A byte order mark is allowed.

    Args:
        raw: its bytes.
        limit: how large and how deep it may be.

    Raises:
        JsonError: the document is not valid.
    """
    try:
        check_size(raw, limit)
        data = parse_strict(raw.decode("utf-8-sig"))
        # by the number of brackets
        if raw.count(b"{") + raw.count(b"[") > limit.depth:
            _check_depth(data, limit)
    except RepeatedKeyError as error:
        raise JsonError(f'duplicate key "{error.key}" in one object', "keep one") from None
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8", "save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise _not_json(error) from None
    except RecursionError:
        raise JsonError("nested too deeply", "expected a JSON object of a few levels") from None
    except NumberError as error:
        line, column = position_of(error.token, raw)
        raise JsonError(f"line {line} column {column}: {error}", FINITE) from None
    return data


def check_size(raw: bytes, limit: Limit) -> None:
    """Check the size of a document, and how many values it may have, before it is parsed.

    Raises:
        JsonError: it is too large.
    """
    size = len(raw)
    if size > limit.size:
        raise JsonError(f"is larger than {format_size(limit.size)}", limit.advice)
    # a value takes two bytes at least: `1,`
    if size > 2 * limit.values and _count(raw) > limit.values and _count(re.sub(_STRING, b"0", raw)) > limit.values:
        raise JsonError(f"has more than {limit.values:,} values", limit.advice)


def _count(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"{") + raw.count(b"[") + 1


def _check_depth(data: Any, limit: Limit) -> None:
    """Check how deep a parsed value is; the pointer of the problem is cut after two names.

    Raises:
        JsonError: it is nested too deeply.
    """
    level: list[tuple[Any, str]] = [(data, "")]
    for depth in range(limit.depth):
        level = [
            (member, f"{pointer}/{name}" if depth < _NAMED else pointer)
            for value, pointer in level
            for name, member in (value.items() if type(value) is dict else enumerate(value))
            if type(member) is dict or type(member) is list
        ]
        if not level:
            return
    raise _too_deep(limit, pointer=level[0][1])


def _too_deep(limit: Limit, where: str = "", pointer: str = "") -> JsonError:
    return JsonError(f"{where}nested deeper than {limit.depth}", "remove levels", pointer)


def read_located(location: CaseLocation, limit: Limit = CASE) -> bytes:
    """Return the bytes of a case, a recording or a control.

    Args:
        location: its location.
        limit: how large it may be.

    Raises:
        OSError: it can't be read.
    """
    if location.line:
        return location.content or read_line(location.path, location.start, limit)
    return read_regular(location.path, limit)


def _located(location: CaseLocation, kind: Kind, source: str) -> bytes:
    """Return the bytes of a case or a control; raises the error of its kind if it can't be read."""
    problem = location.problem
    if problem is None:
        try:
            return read_located(location, kind.limit)
        except OSError as error:
            problem = unreadable_file(error)
    raise kind.error(source, [problem])


def case_file_sha256(location: CaseLocation) -> str | None:
    """Return the hash of a case, as `LoadedCase.sha256`, without validating it; None if it is no JSON object."""
    try:
        data = parse_json(read_located(location))
    except (OSError, ValueError):
        return None
    return case_sha256(data) if isinstance(data, dict) else None


def load_case(location: CaseLocation, model: type[Case], *, file: str, pack: str | None) -> LoadedCase:
    """Load and validate the case at a location.

    Args:
        location: its location.
        model: the pack's case model.
        file: the name of the file for error messages.
        pack: the name of the suite's pack, which the case must name as well; None to accept any.

    Raises:
        CaseError: the case is invalid; one line with file, line, JSON pointer, problem and what was expected.
    """
    source = location.label(file)
    if location.problem is None and has_control_characters(file):
        location = location._replace(problem=unprintable_name(file))
    raw = _located(location, CASE_KIND, source)
    return parse_case(raw, model, source=source, stem=None if location.line else location.name, pack=pack)


def load_recording(recording: Recording) -> tuple[Cassette, str]:
    """Load and validate a recording; return it with the hash of its content.

    Raises:
        FileNotFoundError: there is none.
        OSError: it can't be read.
        CassetteError: it is invalid; one line with file, line, JSON pointer, problem and what was expected.
    """
    location = recording.location
    if location.problem is not None:
        raise CassetteError(recording, [location.problem])
    raw = read_located(location, RECORDING)
    return parse_cassette(raw, source=recording, is_line=bool(location.line))


def load_control(location: CaseLocation, *, source: str, names_checks: bool | None = None) -> Control:
    """Load and check a control; whether its case exists is checked by `case_of_control`.

    Args:
        location: its location.
        source: its file for error messages, with its line.
        names_checks: whether the pack names the check that decides (`Pack.decided_by`); None if that is not known.

    Raises:
        ControlError: it is invalid, or could not fail; one line with file, JSON pointer, problem and what was expected.
    """
    raw = _located(location, CONTROL_KIND, source)
    return parse_control(raw, source=source, name=None if location.line else location.name, names_checks=names_checks)


def is_same_control(result: ControlResult, found: CaseLocation | None) -> bool:
    """Whether a control of a run is the one at this location, as far as its line tells."""
    if found is None:
        return False
    try:
        control = load_control(found, source=result.file)
    except ControlError:
        return result.outcome == "broken"
    if result.expected is None:
        # one that was broken or did not run may have a line without it
        return True
    return (result.case, result.expected.as_json()) == (control.case, control.expected.as_json())


def parse_case(raw: bytes, model: type[Case], *, source: str, stem: str | None, pack: str | None) -> LoadedCase:
    """Parse and validate one case.

    Args:
        raw: the bytes of the case.
        model: the pack's case model.
        source: the name of the file for error messages, with the line if it is one.
        stem: the name of the file without its suffix, which must be the id; None for a line.
        pack: the name of the suite's pack, which the case must name as well; None to accept any.

    Raises:
        CaseError: the case is invalid; one line with file, JSON pointer, problem and what was expected.
    """
    data = _parsed(raw, CASE_KIND, source, is_line=stem is None)
    return check_case(data, model, source=source, stem=stem, pack=pack)


def check_case(data: object, model: type[Case], *, source: str, stem: str | None, pack: str | None) -> LoadedCase:
    """Validate one parsed case; arguments and errors as in `parse_case`."""
    case = _validated(data, model, source, CaseError)
    for key, got, expected, whose in (
        ("id", case.id, stem, "the name of the file"),
        ("pack_id", case.pack_id, pack, "the pack of this suite"),
    ):
        if expected is not None and got != expected:
            raise CaseError(source, [Problem(f"/{key}", f"got {format_value(got)}", f'expected "{expected}", {whose}')])
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


def parse_cassette(raw: bytes, *, source: object, is_line: bool = False) -> tuple[Cassette, str]:
    """Parse a cassette and return it with the hash of its content.

    Args:
        raw: its bytes.
        source: the name of the file for error messages, with the line if it is one.
        is_line: whether it is one line of a file.

    Raises:
        CassetteError: the cassette is invalid; one line with file, JSON pointer, problem and what was expected.
    """
    from pytest_packbench.model.recording import Cassette  # many cases have none

    data = _parsed(raw, CASSETTE_KIND, source, is_line=is_line)
    if isinstance(data, dict) and "conditions" not in data:
        version = data.get("cassette_version")
        problem = Problem(
            "/conditions",
            f"the key is missing{' (version 1)' if version == 1 else ''}: the recording does not state its target, "
            "guards, judges and tools",
            UNSTATED_ADVICE,
        )
        raise CassetteError(source, [problem])
    sha256 = canonical_sha256(data)
    return _validated(data, Cassette, source, CassetteError), sha256


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
    from pytest_packbench.model.recording import Control, control_problems  # most suites have none

    control = parse_as(Control, raw, CONTROL_KIND, source, is_line=name is None)
    problems = control_problems(control, control.id if name is None else name, names_checks=names_checks)
    if problems:
        raise ControlError(source, problems)
    return control


def case_of_control(control: Control, cases: CaseIndex, *, source: str) -> CaseLocation:
    """Return the location of the case of a control.

    Raises:
        ControlError: the suite has no such case.
    """
    location = cases.find(control.case)
    if location is None:
        advice = suggestion(control.case, cases)
        if not advice.startswith("did you mean"):
            # the ids are not listed
            advice = "name a case of the suite, or remove the control"
        raise ControlError(source, [Problem("/case", f'the suite has no case "{control.case}"', advice)])
    return location


def check_target(control: Control, pack: Pack, rules: Any, *, source: str) -> None:
    """Check that the pack has the target through which a control's answers of a model are replayed.

    Raises:
        ControlError: it has none.
    """
    if control.cassette is None:
        return
    try:
        missing = pack.target(rules) is None
    except Exception as error:  # noqa: BLE001 - a pack may raise anything
        wrong = f'the pack "{pack.name}" raised in target(): {describe_error(error)}'
    else:
        wrong = f'the pack "{pack.name}" has no target of its own' if missing else ""
    if wrong:
        raise ControlError(source, [Problem("/cassette", wrong, "give the result as payload instead")])


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
        raw = read_regular(path / CONFIG_NAME, LIMITS[CONFIG_NAME])
    except OSError as error:
        raise SuiteError(source, [_unreadable(error)]) from None
    return check_config(parse_yaml(raw, source=source, models=models), models, source=source)


def parse_yaml(raw: bytes, *, source: str, models: Mapping[str, type[SuiteConfig]] = {}) -> Any:
    """Parse a YAML document of the user: duplicate keys are errors, and dates stay text.

    The size of what aliases stand for is checked before it is built: a few hundred bytes may stand for gigabytes.

    Args:
        raw: its bytes.
        source: the name of the file for error messages.
        models: the available packs with their suite models, for a `suite.yaml` whose values of the user are checked.

    Raises:
        SuiteError: the document is not valid.
    """
    import yaml  # a run without suites needs no YAML

    limit = LIMITS[CONFIG_NAME]
    try:
        check_size(raw, limit)
        loader = _yaml_loader(limit)(raw.decode("utf-8-sig"))
        data = loader.get_single_data()
    except JsonError as error:
        problem = error.problem
    except UnicodeDecodeError as error:
        problem = _unreadable(error)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f"line {mark.line + 1} column {mark.column + 1}: " if mark else ""
        wrong = f"{position}not YAML: {getattr(error, 'problem', None) or error}"
        conflict = _conflict_in(raw.decode("utf-8-sig"))
        problem = Problem("", wrong, "expected keys and values") if conflict is None else conflict.problem
    except RecursionError:
        problem = _too_deep(limit).problem
    except ValueError:
        # an invalid date, a number with thousands of digits
        problem = Problem("", "contains a value that YAML cannot read", "expected plain values")
    else:
        model = models.get(str(data.get("pack"))) if isinstance(data, dict) else None
        if model is not None:
            # its types may still be names; what is wrong with it is told where the content is validated
            with suppress(Exception):
                model.model_rebuild()
            _require_quotes(loader.root, model, source)
        return data
    raise SuiteError(source, [problem])


def _unreadable(error: Exception) -> Problem:
    if isinstance(error, OSError):
        return unreadable(error, "expected a UTF-8 file")
    return Problem("", f"cannot be read: {error}", "expected a UTF-8 file")


def check_config(data: Any, models: Mapping[str, type[SuiteConfig]], *, source: str) -> SuiteConfig:
    """Validate the parsed content of a `suite.yaml`; arguments and errors as in `read_config`."""
    name = data.get("pack") if isinstance(data, dict) else data
    if not isinstance(name, str) or name not in models:
        advice = suggestion(str(name), sorted(models))
        raise SuiteError(source, [Problem("/pack", f"unknown pack {format_value(name)}", advice)])
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
    from pytest_packbench.model.report import AllowedChanges

    data = parse_yaml(read_regular(path, LIMITS[path.name]), source=source)
    return _validated({} if data is None else data, AllowedChanges, source, SuiteError)


def scoring_sha256(config: SuiteConfig) -> str:
    """Return the hash of the rules that turn an answer into a score and a verdict.

    All keys of `suite.yaml` count, including the pack's own and all defaults, except `config.not_scoring`: gates,
    targets, models, prices and descriptions do not change a score. A suite that refuses unknown keys has the hash that
    it had before there was a choice.
    """
    choice = () if config.unknown_keys == IGNORED else ("unknown_keys",)
    return canonical_sha256(config.model_dump(mode="json", exclude={*config.not_scoring, *choice}))


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
    if has_control_characters(name or path.name):
        wrong = (
            "the name of its folder has control characters, line breaks, marks of direction or bytes that are not UTF-8"
        )
        raise SuiteError(source, [Problem("", wrong, "rename it")])
    rules = read_config(path, models, source=source)
    for name_of in _FOLDERS:
        folder = path / name_of
        try:
            if folder.is_symlink():
                check_link(folder)
        except InputLimitError as error:
            raise SuiteError(f"{source.removesuffix(CONFIG_NAME)}{name_of}", [_unreadable(error)]) from None
    return Suite(name=name or path.name, path=path, config=rules, sha256=scoring_sha256(rules), bundled=bundled)


class SuiteCase(NamedTuple):
    """A case of a suite, which may be unreadable.

    Attributes:
        suite: its suite.
        pack: the suite's pack.
        at: its location.
        file: the name of the file for users.
        loaded: the case; None if it cannot be read.
        problem: why it cannot be used, in one line; empty otherwise.
    """

    suite: Suite
    pack: Pack
    at: CaseLocation
    file: str
    loaded: LoadedCase | None
    problem: str

    @property
    def folder(self) -> str:
        """The name of the folder that contains the file."""
        return Path(self.at.path).parent.name

    @property
    def location(self) -> str:
        """The file for users, with the line in a file of many."""
        return self.at.label(self.file)


def suite_cases(suite: Suite, pack: Pack, name_of: Callable[[Path], str]) -> tuple[SuiteCase, ...]:
    """Load all cases of a suite, in the order of their files, then its stray files.

    Cases with the same id get a problem that names the others, because ids identify records.

    Args:
        suite: the suite.
        pack: its pack.
        name_of: returns the name of a file for users.
    """
    places = [(location, name_of(Path(location.path))) for location in suite_locations(suite)]
    by_id: dict[str, list[str]] = {}
    for location, file in places:
        by_id.setdefault(location.written_id, []).append(location.label(file))
    return tuple(_suite_case(suite, pack, location, file, by_id[location.written_id]) for location, file in places)


def _suite_case(suite: Suite, pack: Pack, location: CaseLocation, file: str, same_id: list[str]) -> SuiteCase:
    loaded, source = None, location.label(file)
    others = ", ".join(other for other in same_id if other != source)
    problem = str(CaseError(source, [duplicate_id(location.name, others)])) if others else ""
    try:
        loaded = load_case(location, pack.case_model, file=file, pack=pack.name)
    except CaseError as error:
        problem = str(error)
    return SuiteCase(suite, pack, location, file, loaded, problem)


def parse_as(model: type[ModelT], raw: bytes, kind: Kind, source: object, *, is_line: bool) -> ModelT:
    """Parse and validate a document, or a line of a file.

    Args:
        model: what it has to be.
        raw: its bytes.
        kind: how large it may be, and what is raised.
        source: what names the file in error messages, with the line if it is one.
        is_line: whether it is a line.

    Raises:
        InputError: it is invalid.
    """
    return _validated(_parsed(raw, kind, source, is_line=is_line), model, source, kind.error)


def _parsed(raw: bytes, kind: Kind, source: object, *, is_line: bool) -> Any:
    """Parse a document, or a line, in which the parser counts lines from the start of this one."""
    try:
        return parse_json(raw.rstrip(b"\r\n") if is_line else raw, kind.limit)
    except JsonError as error:
        problem = error.problem
        if is_line:
            problem = problem._replace(wrong=problem.wrong.removeprefix("line 1 "))
        raise kind.error(source, [problem]) from None


def _conflict_in(text: str) -> JsonError | None:
    """Return what is wrong with a text that cannot be parsed and in which git has left the marks of a conflict."""
    mark = re.search(r"^(<{7}|[|]{7}|={7}|>{7})(?![<|=>])", text, re.MULTILINE)
    if mark is None:
        return None
    position = f"line {text.count(chr(10), 0, mark.start()) + 1} column 1"
    return JsonError(f"{position}: {mark[1]} marks a conflict of a merge", "resolve it, and remove the marks")


def _not_json(error: json.JSONDecodeError) -> JsonError:
    if (conflict := _conflict_in(error.doc)) is not None:
        return conflict
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
        return JsonError(f"{position}: trailing comma", "remove the comma before the closing bracket")
    # a document that starts with something else, or continues after its end, is not a single object
    is_other = not before or error.msg == "Extra data"
    return JsonError(f"{position}: not JSON: {error.msg}", "expected one JSON object" if is_other else "expected JSON")


def _yaml_loader(limit: Limit) -> Any:  # noqa: C901 - the methods of a class
    """Return a safe loader that rejects duplicate keys and loads dates as strings, as in JSON.

    It stops at the first value that is too deep, or too many with each alias written out: a few hundred bytes may
    stand for gigabytes.
    """
    import yaml

    class Strict(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 - a class attribute of pyyaml
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
        values = depth = 0

        def get_single_node(self) -> Any:
            # how many values each node has, and how many levels
            self.sizes: dict[int, int] = {}
            self.levels: dict[int, int] = {}
            self.root = node = super().get_single_node()
            return node

        def fetch_flow_collection_start(self, token: Any) -> None:
            # before what follows is looked at: the time for a level grows with the levels around it
            level: int = self.flow_level
            if level >= limit.depth:
                raise _too_deep(limit, f"line {self.line + 1}: ")
            super().fetch_flow_collection_start(token)

        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # pyyaml
            where, is_alias = f"line {event.start_mark.line + 1}: ", isinstance(event, yaml.AliasEvent)
            if self.depth >= limit.depth and isinstance(event, yaml.CollectionStartEvent):
                raise _too_deep(limit, where)
            before = self.values
            self.depth += 1
            node: Any = super().compose_node(parent, index)
            self.depth -= 1
            if is_alias and id(node) not in self.sizes:
                raise JsonError(f"{where}an alias contains itself", "write out the value")
            if not is_alias:
                levels = [self.levels[id(member)] for member in _members(node)]
                self.levels[id(node)] = 1 + max(levels, default=0) if isinstance(node.value, list) else 0
            elif self.depth + self.levels[id(node)] > limit.depth:
                raise _too_deep(limit, where)
            self.values += self.sizes[id(node)] if is_alias else 1
            if self.values > limit.values:
                wrong = f"{where}has more than {limit.values:,} values, aliases written out"
                raise JsonError(wrong, "use fewer aliases")
            self.sizes[id(node)] = self.values - before
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyyaml's signature
            seen: set[Any] = set()
            for key_node, _ in node.value:
                if key_node.tag == "tag:yaml.org,2002:merge":
                    continue
                key = self.construct_object(key_node, deep=True)
                # a key that is a list is an error of pyyaml
                if isinstance(key, Hashable) and (key in seen or seen.add(key)):  # type: ignore[func-returns-value]  # see above
                    raise JsonError(f'line {key_node.start_mark.line + 1}: duplicate key "{key}"', "keep one")
            return super().construct_mapping(node, deep)

        def construct_object(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyyaml's signature
            value = super().construct_object(node, deep)
            # `.nan`, `1.0e+400`
            if type(value) is float and not isfinite(value):
                wrong = f"line {node.start_mark.line + 1}: {NumberError(node.value)}"
                raise JsonError(wrong, FINITE)
            return value

    # `1e3` is a number of JSON and of YAML 1.2, and a text of YAML 1.1
    Strict.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, "-0123456789")
    return Strict


def _require_quotes(node: Any, kind: Any, source: str, form: re.Pattern[str] = _SCALAR) -> None:
    """Check the values of the user: where a model takes any value, or another model in a short form.

    Beside the `text_keys` of a model, and under them, a decimal has to keep the zeros at its end.

    Args:
        node: the part of a YAML document.
        kind: the type that the model has for it.
        source: the name of the file for error messages.
        form: how a value that is no text has to be written.

    Raises:
        SuiteError: a value is written in another way, so that YAML may read something else than is meant.
    """
    model = model_in(kind)
    if isinstance(node.value, str):
        if (model or str(Any) in str(kind)) and not node.tag.endswith(":str") and not form.fullmatch(node.value):
            wrong = f"line {node.start_mark.line + 1}: YAML reads {node.value} as {node.tag.rpartition(':')[2]}"
            raise SuiteError(source, [Problem("", wrong, "put it in quotes, or write it as JSON does")])
    elif model is None or node.id == "sequence":
        for member in _members(node):
            _require_quotes(member, kind, source, form)
    else:
        keys = getattr(model, "text_keys", ())
        if any(part.value in keys for pair in node.value if isinstance(pair[1].value, str) for part in pair):
            form = _SEARCHED
        for key, value in node.value:
            field = model.model_fields.get(key.value)
            # short forms name rules instead of fields, and rules have fields of their own
            if field or not isinstance(value.value, str):
                searched = _SEARCHED if key.value in keys else form
                _require_quotes(value, field.annotation if field else kind, source, searched)


def _members(node: Any) -> list[Any]:
    """Return the nodes directly in a node of YAML, keys included."""
    if not isinstance(node.value, list):
        return []
    return [part for member in node.value for part in (member if isinstance(member, tuple) else (member,))]


def _validated(data: object, model: type[ModelT], source: object, error_type: type[InputError]) -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise error_type(source, validation_problems(error, model, data)) from None
    except Exception as error:
        # the model of a third-party pack may raise anything, and an invalid file must not hide the others
        wrong = f"the pack's {model.__name__} raised {type(error).__name__}: {' '.join(str(error).split())}"
        raise error_type(
            source, [Problem("", wrong, "expected the model to accept the file or raise a ValidationError")]
        ) from error
