"""The folder of a run, `<output>/<suite>/<run id>/`: the names of its files, and the lines in them.

Readers split lines as Rust's eval report does: a line ends at a line feed, Unicode white space around it is ignored,
blank lines are skipped, and any other line that cannot be read is an error.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import ValidationError

from pytest_packbench.files import (
    LIMITS,
    PAYLOAD,
    RECORD,
    U32_MAX,
    Limit,
    OpenFile,
    format_size,
    lines_of,
    open_regular,
    parse_strict,
    printable,
    read_regular,
    write_atomic,
)
from pytest_packbench.model.errors import SkippedLines, StoredRunError, first_problem
from pytest_packbench.model.record import EvalRecord, RecordError, strict_problem
from pytest_packbench.model.result import Count, ErrorLine, Score, adapter, extension_problem
from pytest_packbench.model.run import Text  # noqa: TC001 - pydantic reads the types of fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_packbench.model.recording import ControlResult


OUTPUT = Path("reports") / "benchmarks"
REPORT = "report.json"
RECORDS = "records.jsonl"
ERRORS = "errors.jsonl"
PAYLOADS = "payloads.jsonl"
CONTROLS = "controls.jsonl"
JOURNAL = "journal.jsonl"
WORKER_JOURNALS = "journal.*.jsonl"
"""Pattern of the journals of xdist workers, beside the controller's journal."""
DRAFTS = ".*.tmp"
"""Pattern of files that were being replaced when a process was killed."""
NO_BASELINE = "none"
"""The word that users write instead of an earlier run to compare with."""
LATEST = "latest"
"""File beside the runs of a suite with the id of the last complete run; also the word that users write for that run."""

COMMITTED = "committed"
"""The word that users write for the baseline in the suite's folder."""
PASSED = "passed"
"""The word that users write for the last complete run whose gates held."""
BASELINE_WORDS = (NO_BASELINE, LATEST, PASSED, COMMITTED)

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = f"[{_DIGITS}]{{26}}"
_GITIGNORE = "# reports are not committed by default; use git add --force to keep one\n*\n"


NO_VERDICT = "records do not say what a run came to; expected the folder of a run"
"""Why records are no run."""
LACKED = "is missing, but the run's report counts it; restore the file from the run"
"""What is wrong with the line of a result."""


def is_run_id(text: str) -> bool:
    """Return whether a text is a run id, a ULID."""
    return re.fullmatch(_ULID, text) is not None


def new_run_id(seed: str = "") -> str:
    """Return a new run id, so that ids sort by time: https://github.com/ulid/spec.

    Args:
        seed: its 16 bytes in hexadecimal, the first six are the time in milliseconds; by default now and random.
    """
    number = int(seed, 16) if seed else (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    # 26 digits of five bits each, of which the first has three
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


def ensure_gitignore(folder: Path) -> None:
    """Create a folder with a `.gitignore` that excludes its content; an existing `.gitignore` is left unchanged.

    Args:
        folder: the folder; it is created with its parents if it does not exist.

    Raises:
        OSError: the folder or the file cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".gitignore"
    if not path.exists():
        write_atomic(path, _GITIGNORE)


def read_latest(suite_folder: Path) -> str:
    """Return the id of the last complete run of a suite.

    Args:
        suite_folder: the folder of the suite's runs, which contains the file `latest`.

    Raises:
        StoredRunError: the file does not contain a run id.
        OSError: the file cannot be read.
    """
    path = suite_folder / LATEST
    try:
        run_id = read_regular(path, LIMITS["latest"]).decode("utf-8").strip()
    except UnicodeDecodeError:
        run_id = ""
    # an id and nothing else: the file must not point to another folder
    if not is_run_id(run_id):
        raise StoredRunError(f"{path}: does not contain a run id; run the suite again, or pass the folder of a run")
    return run_id


def find_run_folder(path: Path, output: Path = OUTPUT) -> Path:
    """Return the folder of the run that a user names.

    Args:
        path: the folder, a file in it, or `<suite>/latest`.
        output: the folder of reports; `path` may also be relative to it.

    Raises:
        StoredRunError: no such run exists.
        OSError: `latest` cannot be read.
    """
    for candidate in (path, output / path):
        if candidate.name == LATEST and candidate.is_file():
            folder = candidate.with_name(read_latest(candidate.parent))
            if not folder.is_dir():
                raise StoredRunError(f"{candidate}: {folder} no longer exists; pass the folder of a run")
            return folder
        if candidate.is_dir():
            return candidate
        if candidate.is_file():
            return candidate.parent
    if path.name == LATEST:
        raise StoredRunError(
            f"{output / path}: this suite has no complete run yet; run it, or pass the folder of a run"
        )
    raise StoredRunError(f"no run at {path}; expected the folder of a run, or SUITE/latest")


def find_run_source(path: Path) -> Path:
    """Return the file that a user names if it is one, otherwise the folder of the run.

    Raises:
        StoredRunError: no such run exists.
        OSError: `latest` cannot be read.
    """
    return path if path.is_file() and path.name != LATEST else find_run_folder(path)


STDIN = "-"
# Unicode White_Space, which Rust trims; str.strip() would also remove U+001C to U+001F
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_READ_BUFFER = 1 << 20
LineT = TypeVar("LineT")


class RecordSource(NamedTuple):
    """Where records are read from.

    Attributes:
        records: the path of a file as the caller wrote it, or `-` for standard input.
        errors: the `errors.jsonl` in the same folder, which need not exist; None unless a folder was named.
    """

    records: str
    errors: str | None = None


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
    from pytest_packbench.model.recording import ControlResult

    data = line_value(line)
    if not isinstance(data, dict):
        raise RecordError("expected an object")
    return data.get("run_id"), ControlResult.from_line(data)
