"""A stored run as a whole, from its folder, its report or its records; and the one that a run is compared with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.run import Run
from pytest_packbench.model.strict_json import printable
from pytest_packbench.runs.folder import ERRORS, LATEST, REPORT, StoredRunError, read_latest
from pytest_packbench.runs.lines import read_run_errors, read_run_records
from pytest_packbench.runs.report import OpenRun, open_report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.runs.lines import ErrorLine

NO_BASELINE = "none"
_SAME = ("mode", "pack", "suite_sha256", "target")
_FACTS = ("run_id", "test_suite", *(f"packbench.{name}" for name in _SAME))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as its files tell it.

    Attributes:
        source: the file that it was read from.
        run: what is true of all its entries.
        entries: one for each trial of each case, sorted by test id and trial; records and payloads are not among them.
        status: `passed`, `failed` or `partial`, as the run was judged when it ended; empty where only records tell.
        whole: whether cases that broke or did not run stand in it; False where it was read from records alone, so
            that nobody can say how many there were.
    """

    source: str
    run: Run
    entries: tuple[CaseResult, ...]
    status: str = ""
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLookup:
    """The run to compare with.

    Attributes:
        stored: the run; None where there is none or none was asked for.
        why: why there is none, for people; empty where none was asked for.
    """

    stored: StoredRun | None = None
    why: str = ""


def find_baseline(asked: str, folder: Path) -> BaselineLookup:
    """Find and read the run to compare with; where that can't be done it says why.

    Args:
        asked: `none`, `latest` (the suite's last complete run) or the path of a run.
        folder: the folder of the run that is compared; the suite's other runs lie beside it.
    """
    if asked == NO_BASELINE:
        return BaselineLookup()
    place = Path(asked)
    try:
        if asked == LATEST:
            try:
                place = folder.parent / read_latest(folder.parent / LATEST)
            except OSError:
                return BaselineLookup(why="there is no earlier complete run to compare with")
        stored = read_run(place)
    except (StoredRunError, OSError) as error:
        return BaselineLookup(why=f"not compared: {error}")
    if stored.run.run_id == folder.name:
        # a run that is resumed may be the last complete one itself
        return BaselineLookup(why=f"run {folder.name} is no baseline of its own; name another one")
    return BaselineLookup(stored=stored)


def open_run(path: Path) -> OpenRun:
    """Open a run to read its entries without holding them, as `read_run` reads it.

    Records without the report of their run are read whole: only all of them tell what is true of the run.

    Raises:
        StoredRunError: as `read_run`.
        OSError: a file can't be read.
    """
    if path.suffix != ".jsonl" or path.is_dir():
        return open_report(path)
    found = read_run(path)
    return OpenRun(
        source=found.source, run=found.run, status=found.status, entries=iter(found.entries), whole=found.whole
    )


def load_run(path: Path) -> StoredRun:
    """Read a run.

    Args:
        path: a run folder, its `report.json`, or a `.jsonl` of records of one run.

    Raises:
        StoredRunError: it is none of these, or of a version that this program doesn't know.
        OSError: it can't be read.
    """
    if path.suffix == ".jsonl" and not path.is_dir():
        return _from_records(path)
    report = open_report(path)
    return StoredRun(source=report.source, run=report.run, entries=_sorted(report.entries), status=report.status)


def read_run(path: Path) -> StoredRun:
    """Read a run; of record lines also what lies beside them.

    Beside a file of records are looked for, in this order: the `report.json` of the same run, which tells all, and
    the lines of the same run in `errors.jsonl`, which tell the cases without a score.

    Raises:
        StoredRunError: `path` is nothing that `load_run` reads, or what lies beside it can't be read.
        OSError: a file can't be read.
    """
    stored = load_run(path)
    if stored.whole:
        return stored
    report, errors = path.with_name(REPORT), path.with_name(ERRORS)
    if report.is_file():
        told = load_run(report)
        if (told.run.run_id, told.run.suite) == (stored.run.run_id, stored.run.suite):
            return _checked(told, stored)
    lines = read_run_errors(errors, stored.run.run_id) if errors.is_file() else ()
    broken = [_result_of(line, stored.run.suite) for line in lines]
    if not broken:
        return stored
    entries = _sorted((*stored.entries, *_numbered(broken, stored.entries)))
    return replace(stored, entries=entries, whole=True)


def _from_records(path: Path) -> StoredRun:
    first: EvalRecord | None = None
    facts: tuple[Any, ...] = ()
    entries: dict[tuple[str, int], CaseResult] = {}
    started, finished = "", ""
    for where, record in read_run_records(path):
        if first is None:
            first, facts = record, _facts(record)
        _check_one_run(facts, _facts(record), where)
        entry = CaseResult.from_record(record)
        # the same attempt written twice is one attempt: the first counts, as in a report
        entries.setdefault((entry.test_id, entry.trial), entry)
        started = min(started or record.timestamp, record.timestamp)
        finished = max(finished, record.timestamp)
    if first is None:
        raise StoredRunError(f"{path}: no records")
    run = replace(_run_of(first), started_at=started, finished_at=finished)
    return StoredRun(source=str(path), run=run, entries=_sorted(entries.values()), whole=False)


def _check_one_run(facts: tuple[Any, ...], found: tuple[Any, ...], where: str) -> None:
    if found != facts:
        name, before, now = next(each for each in zip(_FACTS, facts, found, strict=True) if each[1] != each[2])
        raise StoredRunError(
            f"{where}: {name} is {printable(repr(now))}, but {printable(repr(before))} in the lines above; "
            "expected the records of one run"
        )


def _facts(record: EvalRecord) -> tuple[Any, ...]:
    """Give what is the same in all records of a run, in the order of `_FACTS`."""
    ours = record.packbench or {}
    return (record.run_id, record.test_suite, *(ours.get(name) for name in _SAME))


def _run_of(record: EvalRecord) -> Run:
    ours: Mapping[str, Any] = record.packbench or {}
    pack, _, version = str(ours.get("pack", "")).partition("/")
    return Run(
        run_id=record.run_id,
        suite=record.test_suite,
        description="",
        pack=pack,
        pack_version=version,
        suite_sha256=ours.get("suite_sha256") or "",
        bundled=ours.get("bundled", False),
        mode=ours.get("mode", ""),
        target=ours.get("target", ""),
        started_at="",
        finished_at="",
        versions=dict(ours.get("versions", {})),
    )


def _sorted(entries: Iterable[CaseResult]) -> tuple[CaseResult, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.test_id, entry.trial)))


def _checked(told: StoredRun, records: StoredRun) -> StoredRun:
    """Make sure that the records are those of the report: who cut them or joined others means something else."""
    counted = {(entry.test_id, entry.trial) for entry in told.entries if entry.counted}
    found = {(entry.test_id, entry.trial) for entry in records.entries}
    if found != counted:
        wrong = min(name for name, _ in found ^ counted)
        raise StoredRunError(
            f"{records.source}: not the records that {told.source} tells of ({wrong} stands in one of them); "
            "give the run's folder, or the records without the report beside them"
        )
    return told


def _result_of(line: ErrorLine, suite: str) -> CaseResult:
    """Make a result of an error line; which groups it belongs to, no line tells."""
    case_id = line.test_id.rpartition(":")[2]
    return CaseResult(
        suite=suite,
        test_id=line.test_id,
        case_id=case_id,
        nodeid=f"{line.file}::{case_id}",
        file=line.file,
        verdict=line.verdict,
        kind=line.kind,
        message=line.message,
        timestamp=line.timestamp,
        trial=line.trial,
    )


def _numbered(lines: Iterable[CaseResult], records: Iterable[CaseResult]) -> Iterator[CaseResult]:
    """Number the trials that broke; where a line does not tell which one it was, it makes no difference."""
    taken = {(entry.test_id, entry.trial) for entry in records}
    for entry in lines:
        trial = entry.trial
        while (entry.test_id, trial) in taken:
            trial += 1
        taken.add((entry.test_id, trial))
        yield replace(entry, trial=trial)
