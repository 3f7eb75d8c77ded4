"""Reading records and error lines from any number of files, line by line: no file is held whole.

The framing is that of the original report (reference, original-harness.md): lines end at a line feed, Unicode white
space around a line does not count, blank lines are skipped, everything else has to be read or aborts.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar

from pytest_packbench.model.record import EvalRecord, RecordError, strict_problem
from pytest_packbench.model.score import VERDICTS
from pytest_packbench.model.strict_json import U32_MAX, expected_integer, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


STDIN = "-"
MOST_NAMED = 10
# White_Space of Unicode, which Rust trims; str.strip() would take U+001C to U+001F too
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_BUFFER = 1 << 20
_Line = TypeVar("_Line")


class StreamError(ValueError):
    """A line that can't be read, said in one line as `FILE:LINE why`."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where records come from.

    Attributes:
        records: a file's path as the caller wrote it, or `-` for standard input.
        errors: the `errors.jsonl` beside it, which need not exist; None where no folder was named.
    """

    records: str
    errors: str | None = None


@dataclass(slots=True)
class Skipped:
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
    """One line of `errors.jsonl` (design 5), as far as it is counted.

    Attributes:
        run_id: the run.
        test_id: the case; begins with the suite's name and a colon.
        verdict: one of `VERDICTS`.
        kind: the reason's name, `skip` or `xfail` for a quarantined case.
        trial: which of several attempts it was; 0 where the line doesn't tell.
    """

    run_id: str
    test_id: str
    verdict: str
    kind: str
    trial: int = 0


def sources(names: Sequence[str]) -> list[Source]:
    """Find what to read.

    Args:
        names: files of records, folders of runs, or `-` for standard input.

    Returns:
        One source a name, in order. Of a folder it is `records.jsonl`, with the `errors.jsonl` beside it.
    """
    return [_source(name) for name in names]


def _source(name: str) -> Source:
    folder = Path(name)
    if name == STDIN or not folder.is_dir():
        return Source(name)
    return Source(str(folder / "records.jsonl"), str(folder / "errors.jsonl"))


def read_records(source: Source, *, strict: bool = False, skipped: Skipped | None = None) -> Iterator[EvalRecord]:
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


def read_errors(source: Source, *, skipped: Skipped | None = None) -> Iterator[ErrorLine]:
    """Read the lines of the `errors.jsonl` of a source in order; none where it has no such file.

    Args:
        source: where they come from.
        skipped: counts the lines that can't be read; without it the first of them aborts.

    Yields:
        One line that is not blank after the other.

    Raises:
        StreamError: a line is no such object.
        OSError: the file can't be read.
    """
    if source.errors is None or not Path(source.errors).exists():
        return iter(())
    return _read(source.errors, _error_line, skipped)


def _read(path: str, read: Callable[[bytes | str], _Line], skipped: Skipped | None) -> Iterator[_Line]:
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
                        raise StreamError(problem) from None
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
        with Path(path).open("rb", buffering=_BUFFER) as file:
            yield file


def _open_record(line: bytes | str) -> EvalRecord:
    record = EvalRecord.from_json_line(line, strict=False)
    own = record.packbench
    # run, test id and trial say which record it is; this runs for every line, so that nothing else is checked here
    if own and "trial" in own and not (type(own["trial"]) is int and 0 <= own["trial"] <= U32_MAX):
        raise RecordError(f"packbench.trial: {expected_integer(U32_MAX)}, got {shown(repr(own['trial']))}")
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
    if not all(isinstance(found.get(name), str) for name in _TEXTS) or found["verdict"] not in VERDICTS:
        raise RecordError(f"expected the strings {', '.join(_TEXTS)}, with a verdict of ours")
    trial = found.get("trial", 0)
    if type(trial) is not int or trial < 0:
        raise RecordError(f"trial: expected an integer of 0 or more, got {shown(repr(trial))}")
    return ErrorLine(found["run_id"], found["test_id"], found["verdict"], found["kind"], trial)


_TEXTS = ErrorLine._fields[:-1]
