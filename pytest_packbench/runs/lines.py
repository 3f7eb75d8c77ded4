"""Lines of JSON: written compact, and read from `records.jsonl`, `errors.jsonl` and `payloads.jsonl` one by one.

For a report on any number of records the framing is that of the original report (reference, original-harness.md):
lines end at a line feed, Unicode white space around a line does not count, blank lines are skipped, everything else has
to be read or aborts.
"""

from __future__ import annotations

import json
import math
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from pydantic_core import to_json

from pytest_packbench.atomic import encode_utf8, replace_atomic
from pytest_packbench.model.record import EvalRecord, RecordError, strict_problem
from pytest_packbench.model.result import ERROR_LINE_FIELDS
from pytest_packbench.model.score import VERDICTS
from pytest_packbench.model.strict_json import U32_MAX, expected_integer, printable
from pytest_packbench.runs.folder import ERRORS, PAYLOADS, RECORDS, StoredRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_packbench.model.result import CaseResult


STDIN = "-"
MOST_NAMED = 10
# White_Space of Unicode, which Rust trims; str.strip() would take U+001C to U+001F too
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_READ_AT_ONCE = 1 << 20
_WRITTEN_AT_ONCE = 1 << 18
_SCALARS = (str, int)
_CAREFUL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FINITE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_Line = TypeVar("_Line")


class RecordLineError(ValueError):
    """A line that can't be read, said in one line as `FILE:LINE why`."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """Where records come from.

    Attributes:
        records: a file's path as the caller wrote it, or `-` for standard input.
        errors: the `errors.jsonl` beside it, which need not exist; None where no folder was named.
    """

    records: str
    errors: str | None = None


@dataclass(slots=True)
class SkippedLines:
    """The lines that could not be read.

    Attributes:
        count: how many.
        first: the first `MOST_NAMED` of them, as `FILE:LINE why`.
    """

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Count one line."""
        self.count += 1
        if len(self.first) < MOST_NAMED:
            self.first.append(problem)


class ErrorLine(NamedTuple):
    """One line of `errors.jsonl` (design 5).

    Attributes:
        run_id: the run.
        test_id: the case; begins with the suite's name and a colon.
        verdict: one of `VERDICTS`.
        kind: the reason's name, `skip` or `xfail` for a quarantined case.
        trial: which of several attempts it was; 0 where the line doesn't tell.
        message: one line for people.
        file: the case file as the node id names it.
        timestamp: when the case ended.
    """

    run_id: str
    test_id: str
    verdict: str
    kind: str
    trial: int = 0
    message: str = ""
    file: str = ""
    timestamp: str = ""


# what a report counts by
_COUNTED = ERROR_LINE_FIELDS[:4]
_PAYLOAD_TEXTS = ("run_id", "test_id", "case_id")


def compact_json(value: Any, *, finite: bool = True) -> bytes:
    r"""Write plain JSON without spaces as UTF-8, on one line; a surrogate, which UTF-8 can't hold, as its escape.

    Args:
        value: plain JSON: objects with keys that are texts, arrays, texts, numbers, true, false and null.
        finite: whether numbers have to be finite; else `NaN`, `Infinity` and `-Infinity` are written.

    Raises:
        TypeError: something in it is no JSON; not each such thing is noticed.
        ValueError: a number is not finite where it has to be, or something holds itself.
        RecursionError: it is nested too deeply.
    """
    try:
        # several times as fast, but it takes no surrogate and no deep nesting
        text = to_json(value, inf_nan_mode="constants")
    except ValueError:
        return encode_utf8((_FINITE if finite else _CAREFUL).encode(value))
    if finite and (b"NaN" in text or b"Infinity" in text):
        # a text may hold these words as well
        _FINITE.encode(value)
    return text


def finite_json(value: Any) -> Any:
    """Copy a value into plain JSON: tuples become arrays, keys texts, and a number that is not finite null."""
    # most values are scalars, and there are many
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {str(key): finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def open_jsonl(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Open a file for JSON objects, one a line; it takes the place of an older one when the block ends well.

    Args:
        path: the file; its folder exists.

    Yields:
        What writes one object; raises OSError where it can't be written, ValueError for a number that is not finite.

    Raises:
        OSError: it can't be written; an older file is untouched and nothing is left beside it.
    """
    with replace_atomic(path, buffer=_WRITTEN_AT_ONCE) as file:

        def write(line: dict[str, Any]) -> None:
            file.write(compact_json(line) + b"\n")

        yield write


def record_source(name: str) -> RecordSource:
    """Find what to read by a file of records, `-` for standard input, or a run's folder, which tells errors too."""
    folder = Path(name)
    if name == STDIN or not folder.is_dir():
        return RecordSource(name)
    return RecordSource(str(folder / RECORDS), str(folder / ERRORS))


def read_records(
    source: RecordSource, *, strict: bool = False, skipped: SkippedLines | None = None
) -> Iterator[EvalRecord]:
    """Read the records of a source in order.

    Args:
        source: where they come from.
        strict: accept exactly the lines that Rust accepts; our own object is kept where it can be read.
        skipped: counts the lines that can't be read; without it the first of them aborts.

    Yields:
        One record a line that is not blank.

    Raises:
        StreamError: a line is no record, or one of another schema version.
        OSError: the file can't be read.
    """
    return _read(source.records, _strict_record if strict else _open_record, skipped)


def read_errors(source: RecordSource, *, skipped: SkippedLines | None = None) -> Iterator[ErrorLine]:
    """Read the lines of the `errors.jsonl` of a source as `read_records` does; none where it has no such file."""
    if source.errors is None or not Path(source.errors).exists():
        return iter(())
    return _read(source.errors, _error_line, skipped)


def read_run_records(path: Path) -> Iterator[tuple[str, EvalRecord]]:
    """Read the records of a stored run in order, our own object in them checked.

    Yields:
        Where the line stands, as `FILE:LINE`, and its record; lines that are blank are left out.

    Raises:
        StoredRunError: a line is no record, or our object in it is not what it should be.
        OSError: the file can't be read.
    """
    # a report of a million records reads them without these models
    from pytest_packbench.model.checks import extension_problem

    for where, line in _lines(path):
        try:
            record = EvalRecord.from_json_line(line, strict=False)
        except RecordError as error:
            raise StoredRunError(f"{where}: {error}") from None
        problem = extension_problem(record.packbench) if record.packbench else None
        if problem is not None:
            raise StoredRunError(f"{where}: {problem}")
        yield where, record


def read_run_errors(path: Path, run_id: str) -> Iterator[ErrorLine]:
    """Read the error lines of a stored run in order; those of other runs in the file are left out.

    Raises:
        StoredRunError: a line is no such object.
        OSError: the file can't be read.
    """
    for where, data in _values(path):
        if not isinstance(data, dict) or not all(isinstance(data.get(name, ""), str) for name in ERROR_LINE_FIELDS):
            raise StoredRunError(f"{where}: expected an object with {', '.join(ERROR_LINE_FIELDS)}")
        if data.get("verdict") not in VERDICTS or not data.get("test_id"):
            raise StoredRunError(f"{where}: expected a test_id, and a verdict of {', '.join(VERDICTS)}")
        # runs may be joined in one file; those of another suite belong to its records
        if data.get("run_id") == run_id:
            texts = {name: data.get(name, "") for name in ERROR_LINE_FIELDS}
            trial = data.get("trial", 0)
            yield ErrorLine(**texts, trial=trial if isinstance(trial, int) and trial > 0 else 0)


def read_payloads(path: Path) -> Iterator[tuple[tuple[str, int], Any]]:
    """Read the results that a run stored, in order.

    Yields:
        The case's test id and the trial, and the result as the target gave it.

    Raises:
        StoredRunError: there is no such file, or a line of it can't be read.
        OSError: the file can't be read.
    """
    if not path.is_file():
        raise StoredRunError(f"{path}: the run kept no results; nothing can be scored again")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                data = json.loads(line)
                found = (str(data["test_id"]), int(data.get("trial", 0))), data["result"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise StoredRunError(f"{path}:{number}: not a stored result: {error}") from None
            yield found


class ResultFiles:
    """The records and payloads of a run, taken along with the entries of its report, one by one.

    Args:
        folder: the run's folder; a file that isn't there has no line.
    """

    def __init__(self, folder: Path) -> None:
        self._records = _Beside(folder / RECORDS)
        self._payloads = _Beside(folder / PAYLOADS)

    def complete(self, entry: CaseResult) -> CaseResult:
        """Give an entry with its record and its payload, where the files have them at this place.

        Raises:
            StoredRunError: the line after one of them can't be read.
        """
        payload = self._payloads.take(entry)
        return replace(
            entry, record=self._records.take(entry), payload=None if payload is None else payload.get("result")
        )

    def end(self) -> None:
        """Check that all lines were taken.

        Raises:
            StoredRunError: a line belongs to no entry, or stands out of order.
        """
        self._records.end()
        self._payloads.end()


class _Beside:
    """The lines of one such file, each an object of one attempt."""

    def __init__(self, path: Path) -> None:
        self._lines = _attempts(path)
        self._next = next(self._lines, None)

    def take(self, entry: CaseResult) -> dict[str, Any] | None:
        if self._next is None or self._next[1:3] != (entry.test_id, entry.trial):
            return None
        line = self._next[3]
        self._next = next(self._lines, None)
        return line

    def end(self) -> None:
        if self._next is not None:
            where, test_id = self._next[:2]
            raise StoredRunError(f"{where}: {test_id} stands out of order, or not in the run's report")


def check_line(found: dict[str, Any]) -> None:
    """Check that an object is a whole line of `payloads.jsonl`, where it holds a result, else of `errors.jsonl`.

    Raises:
        ValueError: it is none; says the key.
    """
    is_payload = "result" in found
    for name in _PAYLOAD_TEXTS if is_payload else ERROR_LINE_FIELDS:
        if name not in found:
            raise ValueError(f"{name}: is missing")
        if not isinstance(found[name], str):
            raise ValueError(f"{name}: got {found[name]!r:.60}, expected a string")  # noqa: TRY004 - a file's mistake, told as all others
    trial = found.get("trial", 0)
    if type(trial) is not int or trial < 0:
        raise ValueError(f"trial: got {trial!r:.60}, expected an integer of 0 or more")
    if not is_payload and found["verdict"] not in VERDICTS:
        raise ValueError(f"verdict: got {found['verdict']!r:.60}, expected one of {', '.join(VERDICTS)}")


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield f"{path}:{number}", line


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    for where, line in _lines(path):
        try:
            yield where, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoredRunError(f"{where}: not JSON: {error}") from None


def _attempts(path: Path) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    if not path.is_file():
        return
    for where, found in _values(path):
        if not isinstance(found, dict) or not isinstance(found.get("test_id"), str):
            raise StoredRunError(f"{where}: expected an object with test_id")
        yield where, found["test_id"], _trial(found, where), found


def _trial(line: dict[str, Any], where: str) -> int:
    own = line.get("packbench", line)
    trial = own.get("trial", 0) if isinstance(own, dict) else None
    if type(trial) is not int or trial < 0:
        name = "packbench.trial" if "packbench" in line else "trial"
        raise StoredRunError(f"{where}: {name}: got {trial!r:.60}, expected an integer of 0 or more")
    return trial


def _read(path: str, read: Callable[[bytes | str], _Line], skipped: SkippedLines | None) -> Iterator[_Line]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                item = read(line)
            except RecordError:
                # most lines can be read as they stand: only the others are trimmed
                trimmed = _trimmed(line)
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
        return line.decode().strip(_SPACE)
    except UnicodeDecodeError:
        return line


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STDIN:
        yield sys.stdin.buffer
    else:
        with Path(path).open("rb", buffering=_READ_AT_ONCE) as file:
            yield file


def _open_record(line: bytes | str) -> EvalRecord:
    record = EvalRecord.from_json_line(line, strict=False)
    own = record.packbench
    # run, test id and trial say which record it is; this runs for every line, so that nothing else is checked here
    if own and "trial" in own and not (type(own["trial"]) is int and 0 <= own["trial"] <= U32_MAX):
        raise RecordError(f"packbench.trial: {expected_integer(U32_MAX)}, got {printable(repr(own['trial']))}")
    return record


def _strict_record(line: bytes | str) -> EvalRecord:
    try:
        record = EvalRecord.from_json_line(line, strict=False)
    except RecordError:
        # Rust drops our object unread: a broken one is no reason to refuse the line
        return EvalRecord.from_json_line(line, strict=True)
    problem = strict_problem(record)
    if problem is not None:
        raise RecordError(problem)
    return record


def _error_line(line: bytes | str) -> ErrorLine:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(" ".join(str(error).split())) from None
    if not isinstance(found, dict):
        raise RecordError("expected an object")
    if not all(isinstance(found.get(name), str) for name in _COUNTED) or found["verdict"] not in VERDICTS:
        raise RecordError(f"expected the strings {', '.join(_COUNTED)}, with a verdict of ours")
    trial = found.get("trial", 0)
    if type(trial) is not int or trial < 0:
        raise RecordError(f"trial: expected an integer of 0 or more, got {printable(repr(trial))}")
    return ErrorLine(found["run_id"], found["test_id"], found["verdict"], found["kind"], trial)
