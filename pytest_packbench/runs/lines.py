"""JSON Lines: writing compact JSON, and reading `records.jsonl`, `errors.jsonl` and `payloads.jsonl` line by line.

`read_records` and `read_errors` split lines as Rust's eval report does: a line ends at a line feed, Unicode white space
around it is ignored, blank lines are skipped, and any other line that cannot be read is an error.
"""

from __future__ import annotations

import json
import math
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from pytest_packbench.files import PAYLOAD, RECORD, encode_utf8, format_size, lines_of, open_regular
from pytest_packbench.model.errors import first_problem
from pytest_packbench.model.record import EvalRecord, RecordError, strict_problem
from pytest_packbench.model.result import adapter, extension_problem
from pytest_packbench.model.run import Text  # noqa: TC001 - pydantic reads the types of fields
from pytest_packbench.model.score import Count, Verdict  # noqa: TC001 - likewise
from pytest_packbench.model.strict_json import U32_MAX, expected_integer, parse_strict, printable
from pytest_packbench.runs.folder import CONTROLS, ERRORS, RECORDS, StoredRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_packbench.files import Limit
    from pytest_packbench.model.control import ControlResult, ControlTally


STDIN = "-"
MAX_SKIPPED_NAMED = 10
# Unicode White_Space, which Rust trims; str.strip() would also remove U+001C to U+001F
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_READ_BUFFER = 1 << 20
_SCALARS = (str, int)
_FINITE_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
LineT = TypeVar("LineT")


class RecordLineError(ValueError):
    """A line cannot be read; the message is one line, `FILE:LINE why`."""


class RecordSource(NamedTuple):
    """Where records are read from.

    Attributes:
        records: the path of a file as the caller wrote it, or `-` for standard input.
        errors: the `errors.jsonl` in the same folder, which need not exist; None unless a folder was named.
    """

    records: str
    errors: str | None = None


@dataclass(slots=True)
class SkippedLines:
    """The lines that could not be read.

    Attributes:
        count: their number.
        first: the first `MAX_SKIPPED_NAMED` of them, as `FILE:LINE why`.
    """

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Add one line."""
        self.count += 1
        if len(self.first) < MAX_SKIPPED_NAMED:
            self.first.append(problem)


class ErrorLine(NamedTuple):
    """One line of `errors.jsonl`.

    Attributes:
        run_id: the id of the run.
        test_id: the case; starts with the suite's name and a colon.
        verdict: one of `VERDICTS`.
        kind: the name of the reason; `skip` or `xfail` for a quarantined case.
        message: the reason in one line.
        file: the case file as the node id names it.
        timestamp: when the case ended, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        trial: the number of the attempt, from 0; 0 if the line has none.
    """

    run_id: Text
    test_id: Text
    verdict: Verdict
    kind: Text
    message: str
    file: str
    timestamp: str
    trial: Count = 0


class _PayloadLine(NamedTuple):
    """One line of `payloads.jsonl`: the result that a target returned."""

    run_id: Text
    test_id: Text
    case_id: Text
    result: Any
    trial: Count = 0


class AttemptLine(NamedTuple):
    """A line of `records.jsonl`, `errors.jsonl` or `payloads.jsonl`.

    Attributes:
        location: `FILE:LINE`.
        run_id: the id of the run.
        test_id: the case.
        trial: the number of the attempt, from 0.
        content: the `EvalRecord`, the `ErrorLine`, or the result that the target returned.
    """

    location: str
    run_id: str
    test_id: str
    trial: int
    content: Any


def compact_json(value: Any) -> bytes:
    r"""Return plain JSON as UTF-8 on one line without spaces; a surrogate, which UTF-8 lacks, becomes its escape.

    Args:
        value: plain JSON: objects with strings as keys, arrays, strings, numbers, true, false and null.

    Raises:
        TypeError: the value contains something that is not JSON; not every such object is detected.
        ValueError: a number is not finite, or the value contains itself.
        RecursionError: the value is nested too deeply.
    """
    try:
        # several times as fast as `json`, but it rejects surrogates and deep nesting
        text = to_json(value, inf_nan_mode="constants")
    except ValueError:
        return encode_utf8(_FINITE_ENCODER.encode(value))
    if b"NaN" in text or b"Infinity" in text:
        # the words may also be part of a string
        _FINITE_ENCODER.encode(value)
    return text


def finite_line(value: Any) -> bytes:
    """Return plain JSON as `compact_json` does; a number that is not finite becomes null."""
    try:
        return compact_json(value)
    except ValueError:
        return compact_json(finite_json(value))


def finite_json(value: Any) -> Any:
    """Copy a value as plain JSON: tuples become arrays, keys strings, and numbers that are not finite null."""
    # the most frequent case first
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {str(key): finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def record_source(name: str) -> RecordSource:
    """Return the source of a name: a file of records, `-` for standard input, or the folder of a run."""
    folder = Path(name)
    if name == STDIN or not folder.is_dir():
        return RecordSource(name)
    return RecordSource(str(folder / RECORDS), str(folder / ERRORS))


def read_records(
    source: RecordSource, *, strict: bool = False, skipped: SkippedLines | None = None
) -> Iterator[EvalRecord]:
    """Read the records of a source in order.

    Args:
        source: where they are read from.
        strict: accept exactly the lines that Rust accepts; a readable `packbench` object is kept.
        skipped: collects the lines that cannot be read; without it the first of them is an error.

    Yields:
        One record per line that is not blank.

    Raises:
        RecordLineError: a line is not a record, or has another schema version.
        OSError: the file cannot be read.
    """
    return _read(source.records, _strict_record if strict else _open_record, skipped)


def read_errors(source: RecordSource, *, skipped: SkippedLines | None = None) -> Iterator[ErrorLine]:
    """Read the `errors.jsonl` of a source as `read_records` does; nothing if there is no such file."""
    if source.errors is None or not Path(source.errors).exists():
        return iter(())
    return _read(source.errors, _error_line, skipped)


def record_lines(path: Path) -> Iterator[AttemptLine]:
    """Read the records of a stored run in order and validate their `packbench` objects.

    Raises:
        StoredRunError: a line is not a record, or its `packbench` object is invalid.
        OSError: the file cannot be read.
    """
    for location, line in _lines(path):
        try:
            record = EvalRecord.from_json_line(line, strict=False)
        except RecordError as error:
            raise StoredRunError(f"{location}: {error}") from None
        extension = record.packbench or {}
        problem = extension_problem(extension) if extension else ""
        if problem:
            raise StoredRunError(f"{location}: {problem}")
        yield AttemptLine(location, record.run_id, record.test_id, extension.get("trial", 0), record)


def error_lines(path: Path) -> Iterator[AttemptLine]:
    """Read the error lines of a stored run in order.

    Raises:
        StoredRunError: a line is not an error line.
        OSError: the file cannot be read.
    """
    for location, line in _lines(path):
        try:
            error = _error_line(line)
        except RecordError as problem:
            raise StoredRunError(f"{location}: {problem}") from None
        yield AttemptLine(location, error.run_id, error.test_id, error.trial, error)


def payload_lines(path: Path) -> Iterator[AttemptLine]:
    """Read the results that a run stored, in order.

    Raises:
        StoredRunError: the file does not exist, or a line of it cannot be read.
        OSError: the file cannot be read.
    """
    if not path.exists():
        raise StoredRunError(f"{path}: not found: the run stored no results to score again")
    for location, data in _values(path, PAYLOAD):
        try:
            line: _PayloadLine = _checked(_PayloadLine, data)
        except RecordError as error:
            raise StoredRunError(f"{location}: not a stored result: {error}") from None
        yield AttemptLine(location, line.run_id, line.test_id, line.trial, line.result)


def read_payloads(path: Path) -> Iterator[tuple[tuple[str, int], Any]]:
    """Yield the test id and the trial of each result that a run stored, and the result; see `payload_lines`."""
    return (((line.test_id, line.trial), line.content) for line in payload_lines(path))


def read_controls(folder: Path, run_id: str | None = None) -> list[ControlResult]:
    """Read the `controls.jsonl` of a run; an empty list if it has none. Each outcome is computed again.

    Args:
        folder: the folder of the run.
        run_id: the id that each line has to have; None if any may.

    Raises:
        StoredRunError: a line is not valid.
        OSError: the file cannot be read.
    """
    path = folder / CONTROLS
    if not path.exists():
        return []
    from pytest_packbench.model.control import ControlResult

    results: list[ControlResult] = []
    known: set[str] = set()
    for location, data in _values(path):
        try:
            results.append(ControlResult.from_line(data if isinstance(data, dict) else {}))
        except ValueError as error:
            raise StoredRunError(f"{location}: {error}") from None
        if run_id is not None and data.get("run_id") != run_id:
            raise StoredRunError(f"{location}: run_id: got {data.get('run_id')!r:.60}; expected {run_id}")
        if results[-1].control in known:
            raise StoredRunError(f"{location}: the control {printable(results[-1].control)} is there twice")
        known.add(results[-1].control)
    return results


def controls_of_report(folder: Path, run_id: str, counts: object) -> ControlTally | None:
    """Return the controls of a run as its `report.json` counts them; None if it had none.

    Args:
        folder: the folder of the run.
        run_id: its id.
        counts: `packbench.controls` of its report; None if the report has none.

    Raises:
        StoredRunError: `controls.jsonl` is missing, invalid, or differs from the report.
        OSError: the file cannot be read.
    """
    from pytest_packbench.model.control import tally_of

    results = read_controls(folder, run_id)
    present = counts.get("present") if isinstance(counts, dict) else None
    tally = tally_of(results, present if type(present) is int else 0)
    if (None if tally is None else tally.as_json()) == counts:
        return tally
    path, selected = folder / CONTROLS, counts.get("selected") if isinstance(counts, dict) else None
    if not path.exists():
        raise StoredRunError(f"{path} is missing, but the report counts {selected!r:.20} controls; run the suite again")
    raise StoredRunError(f"{path} has other controls than the report counts; run the suite again")


def check_line(data: dict[str, Any]) -> None:
    """Check that an object is a valid line of `payloads.jsonl` if it has a result, otherwise of `errors.jsonl`.

    Raises:
        RecordError: it is not; names the key.
    """
    _checked(_PayloadLine if "result" in data else ErrorLine, data)


def _checked(kind: Any, data: Any) -> Any:
    """Return the line that an object is."""
    if not isinstance(data, dict):
        raise RecordError(f"expected an object with {', '.join(kind._fields)}")
    try:
        return adapter(kind).validate_python({name: data[name] for name in kind._fields if name in data})
    except ValidationError as error:
        raise RecordError(str(first_problem(error, data))) from None


def _lines(path: Path, limit: Limit = RECORD) -> Iterator[tuple[str, bytes]]:
    with open_regular(path) as file:
        for number, line in enumerate(lines_of(file, limit), start=1):
            if len(line) > limit.size:
                raise StoredRunError(f"{path}:{number}: longer than {format_size(limit.size)}; {limit.advice}")
            if line.strip():
                yield f"{path}:{number}", line


def _values(path: Path, limit: Limit = RECORD) -> Iterator[tuple[str, Any]]:
    for location, line in _lines(path, limit):
        try:
            yield location, _value(line)
        except RecordError as error:
            raise StoredRunError(f"{location}: {error}") from None


def _value(line: bytes | str) -> Any:
    try:
        return parse_strict(line if isinstance(line, str) else line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise RecordError("not JSON: nested too deeply") from None
    except ValueError as error:
        raise RecordError(f"not JSON: {error}") from None


def _read(path: str, read: Callable[[bytes | str], LineT], skipped: SkippedLines | None) -> Iterator[LineT]:
    with _opened(path) as file:
        for number, line in enumerate(lines_of(file, RECORD), start=1):
            try:
                if len(line) > RECORD.size:
                    raise RecordError(f"longer than {format_size(RECORD.size)}; {RECORD.advice}")  # noqa: TRY301 - as a line that is not valid
                item = read(line)
            except RecordError:
                # most lines need no trimming
                trimmed = _trimmed(line) if len(line) <= RECORD.size else line
                if not trimmed:
                    continue
                try:
                    item = read(trimmed)
                except RecordError as error:
                    problem = f"{'<stdin>' if path == STDIN else path}:{number} {error}"
                    if skipped is None:
                        raise RecordLineError(problem) from None
                    skipped.add(problem)
                    continue
            yield item


def _trimmed(line: bytes) -> bytes | str:
    try:
        return line.decode().strip(_WHITE_SPACE)
    except UnicodeDecodeError:
        return line


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STDIN:
        yield sys.stdin.buffer
    else:
        with open_regular(path, buffering=_READ_BUFFER) as file:
            yield file


def _open_record(line: bytes | str) -> EvalRecord:
    record = EvalRecord.from_json_line(line, strict=False)
    extension = record.packbench
    # called for every line, so that only the trial is checked: with run and test id it identifies the record
    trial = extension.get("trial", 0) if extension else 0
    if not (type(trial) is int and 0 <= trial <= U32_MAX):
        raise RecordError(f"packbench.trial: {expected_integer(U32_MAX)}, got {printable(repr(trial))}")
    return record


def _strict_record(line: bytes | str) -> EvalRecord:
    try:
        record = EvalRecord.from_json_line(line, strict=False)
    except RecordError:
        # Rust ignores the packbench object: an invalid one must not reject the line
        return EvalRecord.from_json_line(line, strict=True)
    problem = strict_problem(record)
    if problem is not None:
        raise RecordError(problem)
    return record


def _error_line(line: bytes | str) -> ErrorLine:
    error: ErrorLine = _checked(ErrorLine, _value(line))
    return error
