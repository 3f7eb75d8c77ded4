"""JSON Lines: writing compact JSON, and reading `records.jsonl`, `errors.jsonl` and `payloads.jsonl` line by line.

`read_records` and `read_errors` split lines as Rust's eval report does: a line ends at a line feed, Unicode white space
around it is ignored, blank lines are skipped, and any other line that cannot be read is an error.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from pytest_packbench.files import PAYLOAD, RECORD, encode_utf8, format_size, lines_of, open_regular
from pytest_packbench.model.errors import first_problem
from pytest_packbench.model.record import EvalRecord, RecordError, strict_problem
from pytest_packbench.model.result import adapter, extension_problem
from pytest_packbench.model.run import Text  # noqa: TC001 - pydantic reads the types of fields
from pytest_packbench.model.score import Count, Verdict  # noqa: TC001 - likewise
from pytest_packbench.model.strict_json import U32_MAX, finite_json, parse_strict, printable
from pytest_packbench.runs.folder import ERRORS, RECORDS, StoredRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_packbench.files import Limit, OpenFile
    from pytest_packbench.model.control import ControlResult
    from pytest_packbench.model.score import Score


STDIN = "-"
MAX_SKIPPED_NAMED = 10
# Unicode White_Space, which Rust trims; str.strip() would also remove U+001C to U+001F
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_READ_BUFFER = 1 << 20
_FINITE_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
LineT = TypeVar("LineT")


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
        first: the first `MAX_SKIPPED_NAMED` of them, as `FILE:LINE: why`.
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
        states: what a record or an error line states of the result, as `stated_of` returns it.
    """

    location: str
    run_id: str
    test_id: str
    trial: int
    content: Any
    states: tuple[Any, ...] = ()


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


def record_source(name: str) -> RecordSource:
    """Return the source of a name: a file of records, `-` for standard input, or the folder of a run."""
    folder = Path(name)
    if name == STDIN or not folder.is_dir():
        return RecordSource(name)
    return RecordSource(str(folder / RECORDS), str(folder / ERRORS))


def read_records(
    path: Path | str | OpenFile, *, strict: bool = False, skipped: SkippedLines | None = None
) -> Iterator[EvalRecord]:
    """Read the records of a file in order.

    Args:
        path: the file; `-` for standard input.
        strict: accept exactly the lines that Rust accepts; a readable `packbench` object is kept.
        skipped: collects the lines that cannot be read; without it the first of them is an error.

    Yields:
        One record per line that is not blank.

    Raises:
        StoredRunError: a line is not a record, or has another schema version.
        OSError: the file cannot be read.
    """
    read = _strict_record if strict else _open_record
    return (record for _, record in read_lines(path, read, skipped=skipped))


def read_errors(source: RecordSource, *, skipped: SkippedLines | None = None) -> Iterator[ErrorLine]:
    """Read the `errors.jsonl` of a source as `read_records` does; nothing if there is no such file."""
    if source.errors is None or not Path(source.errors).exists():
        return iter(())
    return (line for _, line in read_lines(source.errors, _error_line, skipped=skipped))


def stated_of(score: Score) -> tuple[Any, ...]:
    """Return what the line of a result in `records.jsonl` or `errors.jsonl` states of its score."""
    if score.counted:
        return score.passed, score.verdict, score.score
    return score.verdict, score.kind


def record_lines(path: Path | OpenFile) -> Iterator[AttemptLine]:
    """Read the records of a stored run in order and validate their `packbench` objects.

    Raises:
        StoredRunError: a line is not a record, or its `packbench` object is invalid.
        OSError: the file cannot be read.
    """
    for location, record in read_lines(path, stored_record):
        extension = record.packbench or {}
        # a record of another program has no object `packbench`
        verdict = extension.get("verdict", "passed" if record.passed else "failed")
        states = record.passed, verdict, extension.get("score")
        yield AttemptLine(location, record.run_id, record.test_id, extension.get("trial", 0), record, states)


def error_lines(path: Path | OpenFile) -> Iterator[AttemptLine]:
    """Read the error lines of a stored run in order.

    Raises:
        StoredRunError: a line is not an error line.
        OSError: the file cannot be read.
    """
    for location, line in read_lines(path, _error_line):
        yield AttemptLine(location, line.run_id, line.test_id, line.trial, line, (line.verdict, line.kind))


def payload_lines(path: Path | OpenFile) -> Iterator[AttemptLine]:
    """Read the results that a run stored, in order.

    Raises:
        StoredRunError: a line cannot be read.
        OSError: the file cannot be read.
    """
    for location, line in read_lines(path, _payload_line, PAYLOAD):
        yield AttemptLine(location, line.run_id, line.test_id, line.trial, line.result)


def read_controls(path: Path | OpenFile, run_id: str | None = None) -> list[ControlResult]:
    """Read the `controls.jsonl` of a run; an empty list if it has none. Each outcome is computed again.

    Args:
        path: the file.
        run_id: the id that each line has to have; None if any may.

    Raises:
        StoredRunError: a line is not valid.
        OSError: the file cannot be read.
    """
    results: dict[str, ControlResult] = {}
    with suppress(FileNotFoundError):
        for location, (of_run, control) in read_lines(path, _control_line):
            # any JSON value may be the id of the line
            other = run_id is not None and run_id != of_run
            if other or results.setdefault(control.control, control) is not control:
                problem = f"{printable(control.control)} is there twice, or of another run than {run_id}"
                raise StoredRunError(f"{location}: {problem}; restore the file from the run")
    return list(results.values())


def _checked(kind: Any, data: Any) -> Any:
    """Return the line that an object is."""
    if not isinstance(data, dict):
        raise RecordError(f"expected an object with {', '.join(kind._fields)}")
    try:
        return adapter(kind).validate_python({name: data[name] for name in kind._fields if name in data})
    except ValidationError as error:
        raise RecordError(str(first_problem(error, data))) from None


def line_value(line: bytes | str) -> Any:
    """Return the value of a line of JSON.

    Raises:
        RecordError: it is not UTF-8, not JSON, or has a key twice.
    """
    try:
        return parse_strict(line if isinstance(line, str) else line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise RecordError("not JSON: nested too deeply") from None
    except ValueError as error:
        raise RecordError(f"not JSON: {error}") from None


def read_lines(
    path: Path | str | OpenFile,
    read: Callable[[bytes | str], LineT],
    limit: Limit = RECORD,
    skipped: SkippedLines | None = None,
    *,
    may_be_cut: bool = False,
) -> Iterator[tuple[str, LineT]]:
    """Yield the place of each line, `FILE:LINE`, and what is read of it.

    Args:
        path: the file; `-` for standard input.
        read: reads a line; raises ValueError.
        limit: how long a line may be.
        skipped: collects the lines that can't be read; without it the first of them is an error.
        may_be_cut: whether a crash may have cut the last line short, which is then ignored; if not, white space around
            a line is ignored, and a blank line.

    Raises:
        StoredRunError: a line can't be read.
        OSError: the file can't be read.
    """
    with nullcontext(sys.stdin.buffer) if path == STDIN else open_regular(path, buffering=_READ_BUFFER) as file:
        for number, line in enumerate(lines_of(file, limit), start=1):
            location = f"{'<stdin>' if path == STDIN else path}:{number}"
            is_short = len(line) <= limit.size
            try:
                if not is_short:
                    raise RecordError(f"longer than {format_size(limit.size)}; {limit.advice}")
                item = read(line) if may_be_cut else _trimmed(line, read)
            except ValueError as error:
                if may_be_cut and is_short and not line.endswith(b"\n"):
                    return
                if skipped is None:
                    raise StoredRunError(f"{location}: {error}") from None
                skipped.add(f"{location}: {error}")
                continue
            if item is not None:
                yield location, item


def _trimmed(line: bytes, read: Callable[[bytes | str], LineT]) -> LineT | None:
    """Return what is read of a line, or of one with white space around it; None if it is blank."""
    try:
        return read(line)
    except ValueError:
        # most lines need no trimming
        trimmed: bytes | str = line
        with suppress(UnicodeDecodeError):
            trimmed = line.decode().strip(_WHITE_SPACE)
        return read(trimmed) if trimmed else None


def stored_record(line: bytes | str) -> EvalRecord:
    """Return the record of a line of a stored run; raises `RecordError` if it or its `packbench` object is invalid."""
    record = EvalRecord.from_json_line(line, strict=False)
    problem = extension_problem(record.packbench) if record.packbench else ""
    if problem:
        raise RecordError(problem)
    return record


def _open_record(line: bytes | str) -> EvalRecord:
    record = EvalRecord.from_json_line(line, strict=False)
    extension = record.packbench
    # called for every line, so that only the trial is checked: with run and test id it identifies the record
    trial = extension.get("trial", 0) if extension else 0
    if not (type(trial) is int and 0 <= trial <= U32_MAX):
        raise RecordError(f"packbench.trial: expected an integer 0..{U32_MAX}, got {printable(repr(trial))}")
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
    error: ErrorLine = _checked(ErrorLine, line_value(line))
    return error


def _payload_line(line: bytes | str) -> _PayloadLine:
    payload: _PayloadLine = _checked(_PayloadLine, line_value(line))
    return payload


def _control_line(line: bytes | str) -> tuple[Any, ControlResult]:
    from pytest_packbench.model.control import ControlResult

    data = line_value(line)
    if not isinstance(data, dict):
        raise RecordError("expected an object")
    return data.get("run_id"), ControlResult.from_line(data)
