"""`report.json`: a run as one document, written and read row by row because it may be large.

The document is that of pytest-json-report, if there is one, with the run under the key `packbench`.

It is read incrementally, as it may be hundreds of megabytes. Not by `ijson`: its C parser takes 1.4 times as long on a
report of 20,000 cases (its Python parser 24 times), rejects integers over 64 bits, replaces escaped surrogates without
an error, and its messages span lines and name no position.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from io import TextIOWrapper
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from pydantic import ValidationError

from pytest_packbench.atomic import encode_utf8, replace_atomic
from pytest_packbench.limits import LIMITS, format_size, open_regular
from pytest_packbench.model.errors import first_problem
from pytest_packbench.model.result import Result, result_from
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.model.score import COUNTED
from pytest_packbench.model.strict_json import NUMBERS, printable, without_duplicates
from pytest_packbench.runs.folder import JOURNAL, RECORDS, REPORT, StoredRunError
from pytest_packbench.runs.lines import finite_json, finite_line
from pytest_packbench.runs.metadata import RunFieldError, parse_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.run import Run

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_HEADER_KEYS = frozenset({"version", "status", "run"})
# absent in reports of other versions
_OPTIONAL_KEYS = frozenset(
    {"overall", "depth", "figures", "gates", "comparison", "policy", "policy_changes", "controls"}
)


class OpenRun(NamedTuple):
    """A run whose results are read one by one, in the order of its file.

    Attributes:
        source: the file.
        run: the metadata of the run.
        status: `passed`, `failed` or `partial`, as decided when the run ended.
        results: an iterator; raises `StoredRunError` if the rest of the file cannot be read.
        lists_all_cases: see `StoredRun`.
        attempts: see `StoredRun`.
        held: whether all gates passed, no condition on the comparison was met, and neither the baseline nor the
            acceptance policy failed the run.
        policy: the acceptance policy, as `policy_of` returns it; None where the report has none.
        policy_failed: whether the run failed because its acceptance policy was not as strict as that of its base.
        figures: the figures of its pack, as plain JSON.
        controls: the counts of its controls, as `ControlTally.as_json` returns them; None where the report has none.
        header: the keys of the report that were read before its cases, as plain JSON.
    """

    source: str
    run: Run
    status: str
    results: Iterator[Result]
    lists_all_cases: bool = True
    attempts: Mapping[str, tuple[int, int]] | None = None
    held: bool = True
    policy: dict[str, Any] | None = None
    policy_failed: bool = False
    figures: Sequence[Any] = ()
    controls: Any = None
    header: Mapping[str, Any] = MappingProxyType({})


def write_report(path: Path, report: Mapping[str, Any], document: dict[str, Any], rows: Iterable[bytes]) -> None:
    """Write a report row by row, so that the text of a large run is never in memory.

    Args:
        path: the file; its folder must exist.
        report: the other keys of the file.
        document: the object of the run, with `cases` last and empty.
        rows: what `row_line` returns for each result, in order.

    Raises:
        OSError: the file cannot be written; an existing file is unchanged.
        ValueError: `cases` is not the last key, or not empty.
    """
    if list(document)[-1] != "cases" or document["cases"]:
        raise ValueError("cases must be the last key of the run document, and empty")
    text = _encoded({"packbench": document})
    split = len(text) - len("]}}")
    with replace_atomic(path) as file:
        file.write(b"{")
        for key, value in report.items():
            # a hook may have added this key
            if key != "packbench":
                file.writelines(map(encode_utf8, _member(key, value)))
        file.write(encode_utf8(text[1:split]))
        for number, line in enumerate(rows):
            file.write(b"," + line if number else line)
        file.write(encode_utf8(text[split:]) + b"\n")


def _member(key: str, value: object) -> Iterator[str]:
    """Yield a key with its value and a comma as JSON, a list such as that of all tests element by element."""
    if not isinstance(value, list):
        yield f"{_encoded({key: value})[1:-1]},"
        return
    yield _encoded({key: []})[1:-2]
    for number, element in enumerate(value):
        yield f",{_encoded(element)}" if number else _encoded(element)
    yield "],"


def _encoded(value: object) -> str:
    # another plugin's part of the document may have any number
    return _ENCODER.encode(finite_json(value))


def row_line(result: Result) -> bytes:
    """Return the row of one result as compact JSON; a number that is not finite becomes null."""
    return finite_line(result.row())


def open_report(path: Path) -> OpenRun:
    """Open the report of a run to read its results one by one.

    Args:
        path: the folder of a run, or its `report.json`.

    Raises:
        StoredRunError: the file is not a report, or its version is not supported.
        OSError: the file cannot be read.
    """
    file = path / REPORT if path.is_dir() else path
    if not file.exists() and (path / JOURNAL).exists():
        raise StoredRunError(
            f"{path}: contains no {REPORT}: the run did not end; its results so far are in {JOURNAL}; "
            f"run it to its end with its options and --packbench-resume={path.name}"
        )
    if not file.exists() and path.is_dir():
        has_records = (path / RECORDS).exists()
        advice = f"pass {path / RECORDS} to read the records alone" if has_records else "pass the folder of a run"
        raise StoredRunError(f"{path}: contains no {REPORT}; {advice}")
    parts = _document(file)
    header = next(parts)
    if type(header.get("version")) is not int or header["version"] != RUN_DOCUMENT_VERSION:
        raise StoredRunError(
            f"{file}: /packbench/version: got {printable(repr(header.get('version')))}; "
            f"this version reads {RUN_DOCUMENT_VERSION}"
        )
    run = _run(header.get("run"), file)
    return OpenRun(
        source=str(file),
        run=run,
        status=str(header.get("status", "")),
        results=_results(parts, run, file),
        held=_held(header),
        policy=header.get("policy"),
        policy_failed=_policy_failed(header),
        figures=figures if isinstance(figures := header.get("figures"), list) else (),
        controls=header.get("controls"),
        header=header,
    )


def _held(header: Mapping[str, Any]) -> bool:
    """Whether nothing but cases failed a run: no gate, baseline or policy; False if the report does not tell."""
    gates, comparison = header.get("gates"), header.get("comparison", {})
    conditions = comparison.get("conditions", []) if isinstance(comparison, dict) else None
    if not isinstance(gates, list) or not isinstance(conditions, list) or _policy_failed(header):
        return False
    # the first run of all has no earlier one
    if comparison.get("failed", False) is not False and comparison.get("baseline") is not None:
        return False
    passed = all(isinstance(gate, dict) and gate.get("passed") is True for gate in gates)
    return passed and all(isinstance(each, dict) and each.get("met") is False for each in conditions)


def _policy_failed(header: Mapping[str, Any]) -> bool:
    """Whether the acceptance policy failed a run, or the report does not tell."""
    changes = header.get("policy_changes", {"failed": False})
    return not isinstance(changes, dict) or changes.get("failed") is not False


def is_report(path: Path) -> bool:
    """Return whether a file is a report, a JSON object with the key `packbench`, without loading it."""
    try:
        with _opened(path) as file:
            stream = JsonStream(file)
            for key in stream.members() if stream.starts_with("{") else ():
                if key == "packbench":
                    return True
                stream.skip()
    except (JsonStreamError, UnicodeDecodeError, RecursionError):
        # the caller reads it as something else, and reports where it is wrong
        return False
    return False


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    with open_regular(path) as file, TextIOWrapper(file, encoding="utf-8", newline="") as text:
        yield text


def _document(path: Path) -> Iterator[Any]:
    """Yield the header of a report, then the row of each result; the rest of the file is skipped."""
    try:
        with _opened(path) as file:
            stream = JsonStream(file)
            has_run = False
            for key in stream.members() if stream.starts_with("{") else ():
                if key == "packbench" and stream.starts_with("{"):
                    has_run = True
                    yield from _run_document(stream, path)
                else:
                    stream.skip()
            if not has_run:
                raise StoredRunError(f'{path}: the key "packbench" is missing; expected the report.json of a run')
            stream.end()
    except (JsonStreamError, UnicodeDecodeError, RecursionError) as error:
        raise StoredRunError(f"{path}: not JSON: {error}") from None


def _run_document(stream: JsonStream, path: Path) -> Iterator[Any]:
    header: dict[str, Any] = {}
    has_cases = is_sorted = False
    for key in stream.members():
        if key in _HEADER_KEYS | _OPTIONAL_KEYS:
            if has_cases and not is_sorted:
                raise StoredRunError(f"{path}: /packbench/{key}: comes after the cases; expected before them")
            header[key] = stream.value()
        elif key == "cases" and not has_cases and stream.starts_with("["):
            # another program may have sorted the keys
            is_sorted = not header.keys() >= _HEADER_KEYS
            yield _read_header(path) if is_sorted else header
            has_cases = True
            for _ in stream.items():
                yield stream.value()
        else:
            stream.skip()
    if not has_cases:
        yield header
        raise StoredRunError(f"{path}: /packbench/cases: not a run document: expected an array")


def _read_header(path: Path) -> dict[str, Any]:
    """Read the header of a report whose keys follow the rows."""
    with _opened(path) as file:
        stream = JsonStream(file)
        header: dict[str, Any] = {}
        for key in stream.members():
            for inner in stream.members() if key == "packbench" else ():
                if inner in _HEADER_KEYS | _OPTIONAL_KEYS:
                    header[inner] = stream.value()
                else:
                    stream.skip()
            if key != "packbench":
                stream.skip()
        return header


def _run(data: object, path: Path) -> Run:
    location = f"{path}: /packbench/run"
    if not isinstance(data, dict):
        raise StoredRunError(f"{location}: not a run document: expected an object")
    try:
        return parse_run(data)
    except RunFieldError as error:
        if not error.name:
            raise StoredRunError(f"{location}: not a run document: {error.value}") from None
        value = printable(repr(error.value))
        raise StoredRunError(f"{location}/{error.name}: not a run document: got {value}{error.expected}") from None


def _results(rows: Iterable[Any], run: Run, file: Path) -> Iterator[Result]:
    seen: dict[tuple[str, int, str], int] = {}
    for number, row in enumerate(rows):
        location = f"{file}: /packbench/cases/{number}"
        result = _result(row, run, location)
        # files that can't be read may have the same id
        first = seen.setdefault((result.case.test_id, result.attempt.trial, result.case.file), number)
        if first != number:
            place = f"/packbench/cases/{first}"
            raise StoredRunError(
                f"{location}: {result.case.test_id} is in {place} as well; restore the file from the run"
            )
        yield result


def _result(row: Any, run: Run, location: str) -> Result:
    if not isinstance(row, dict):
        raise StoredRunError(f"{location}: not a run document: expected an object")
    try:
        result = result_from({**row, "suite": run.suite})
    except ValidationError as error:
        problem = first_problem(error, row)
        raise StoredRunError(
            f"{location}{problem.pointer}: not a run document: {problem.wrong}; {problem.expected}"
        ) from None
    if result.score.score is None and result.score.verdict in COUNTED:
        missing = f"the score is missing, but the verdict is {result.score.verdict}"
        raise StoredRunError(f"{location}/score: not a run document: {missing}; expected a number from 0 to 1")
    return result


_CHUNK_SIZE: Final = 1 << 18
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# strings, arrays and objects have a closing character; the end of a number is known only by what follows it
_CLOSING: Final = frozenset('"]}')
_AFTER_VALUE: Final = frozenset(",]} \t\n\r")


class JsonStreamError(ValueError):
    """The document is not JSON, or a value has another type than the caller requested; names the character."""


class JsonStream:
    """A cursor that moves forward through a JSON document.

    The caller consumes each value in one of three ways before the next: `value`, `skip`, or a loop over its `members`
    or `items`. Leaving such a loop early leaves the cursor where it was.

    Args:
        file: the document, opened as text with `newline=""`; read in chunks.
        chunk_size: characters to read at once.
    """

    def __init__(self, file: TextIO, *, chunk_size: int = _CHUNK_SIZE) -> None:
        self._file = file
        self._chunk_size = chunk_size
        self._buffer = ""
        self._position = 0
        self._discarded = 0
        self._at_end = False
        self._decode = json.JSONDecoder(object_pairs_hook=without_duplicates, **NUMBERS).raw_decode

    def value(self) -> Any:
        """Return the whole value at the cursor and move behind it.

        Raises:
            JsonStreamError: there is no value, or it is not JSON.
            RecursionError: the value is nested too deeply.
        """
        self._peek()
        while True:
            try:
                value, end = self._decode(self._buffer, self._position)
            except json.JSONDecodeError as error:
                if len(self._buffer) - self._position > LIMITS["report"].size:
                    raise self._error(f"a value longer than {format_size(LIMITS['report'].size)}") from None
                if not self._read_more():
                    raise self._error(error.msg, error.pos) from None
                continue
            except ValueError as error:
                text = str(error)
                raise self._error(text[0].upper() + text[1:]) from None
            is_whole = self._buffer[end - 1] in _CLOSING or self._buffer[end : end + 1] in _AFTER_VALUE
            if is_whole or not self._read_more():
                self._position = end
                return value

    def members(self) -> Iterator[str]:
        """Iterate over the keys of the object at the cursor; consume the value of each key before the next.

        Raises:
            JsonStreamError: the value at the cursor is not an object, or is not JSON.
        """
        if self._peek() != "{":
            raise self._error("Expecting an object")
        self._position += 1
        seen: set[str] = set()
        if self._peek() == "}":
            self._position += 1
            return
        while True:
            if self._peek() != '"':
                raise self._error("Expecting property name enclosed in double quotes")
            key = self.value()
            if key in seen:
                raise self._error(f"The key {json.dumps(key)} occurs twice")
            seen.add(key)
            self._consume(":")
            yield key
            if self._consume(",}") == "}":
                return

    def items(self) -> Iterator[None]:
        """Iterate over the array at the cursor; consume each item before the next.

        Raises:
            JsonStreamError: the value at the cursor is not an array, or is not JSON.
        """
        if self._peek() != "[":
            raise self._error("Expecting an array")
        self._position += 1
        if self._peek() == "]":
            self._position += 1
            return
        while True:
            yield
            if self._consume(",]") == "]":
                return

    def starts_with(self, bracket: str) -> bool:
        """Return whether an object (`{`) or an array (`[`) starts at the cursor."""
        return self._peek() == bracket

    def skip(self) -> None:
        """Move behind the value at the cursor; at most one array item of it is in memory at a time."""
        first = self._peek()
        if first == "{":
            for _ in self.members():
                self.skip()
        elif first == "[":
            for _ in self.items():
                self.value()
        else:
            self.value()

    def end(self) -> None:
        """Check that nothing but white space follows.

        Raises:
            JsonStreamError: something follows.
        """
        if self._peek(required=False):
            raise self._error("Extra data")

    def _peek(self, *, required: bool = True) -> str:
        while True:
            self._position = _SPACE.match(self._buffer, self._position).end()  # type: ignore[union-attr]  # it matches the empty string
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._read_more():
                if required:
                    raise self._error("Expecting value")
                return ""

    def _consume(self, allowed: str) -> str:
        char = self._peek()
        if char not in allowed:
            raise self._error(f"Expecting {' or '.join(allowed)}")
        self._position += 1
        return char

    def _read_more(self) -> bool:
        if self._at_end:
            return False
        remaining = len(self._buffer) - self._position
        # at least as much again as is buffered, so that a large value is not decoded from its start too often
        chunk = self._file.read(max(self._chunk_size, remaining))
        self._at_end = not chunk
        self._discarded += self._position
        self._buffer, self._position = self._buffer[self._position :] + chunk, 0
        return not self._at_end

    def _error(self, message: str, position: int | None = None) -> JsonStreamError:
        character = self._discarded + (self._position if position is None else position)
        return JsonStreamError(f"{message} at character {character + 1}")
