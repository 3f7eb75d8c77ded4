"""Reading stored runs from a folder, a report or records, and finding the baseline of a comparison."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.result import Result, models_of, result_from, result_of_record
from pytest_packbench.model.run import BUNDLED, Run
from pytest_packbench.model.strict_json import printable
from pytest_packbench.model.suite import BASELINE_NAME
from pytest_packbench.runs.folder import (
    COMMITTED,
    ERRORS,
    LATEST,
    NO_BASELINE,
    PASSED,
    REPORT,
    StoredRunError,
    is_run_id,
    read_latest,
)
from pytest_packbench.runs.lines import ResultFiles, checked_results, read_run_errors, read_run_records
from pytest_packbench.runs.report import OpenRun, open_report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.runs.lines import ErrorLine

_EXTENSION_KEYS = ("mode", "pack", "suite_sha256", "target")
_SHARED_KEYS = ("run_id", "test_suite", *(f"packbench.{name}" for name in _EXTENSION_KEYS))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run that was read from its files.

    Attributes:
        source: the file that it was read from.
        run: the metadata of the run.
        results: one for each trial of each case, sorted by test id and trial, without records and payloads.
        status: `passed`, `failed` or `partial`, as decided when the run ended; empty if only records were read.
        lists_all_cases: whether cases without a score are included; False if only records were read, which do not
            count them.
        attempts: for each case of a committed baseline, which has one result for all trials of a case, how many of its
            trials passed and how many there were; None for a run.
        controls: the counts of its controls in its report; None where it has none.
    """

    source: str
    run: Run
    results: tuple[Result, ...]
    status: str = ""
    lists_all_cases: bool = True
    attempts: Mapping[str, tuple[int, int]] | None = None
    controls: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLookup:
    """The result of looking for the run to compare with.

    Attributes:
        stored: the run; None if it was not found or not requested.
        reason: why it was not found, in one line; empty if it was found or not requested.
        requested: the baseline as the user named it.
        optional: whether a run without its baseline passes.
        fail_on: conditions on the comparison that fail the run, separated by commas; empty for none.
        warning: what to know about the run, in one line; empty if there is nothing.
    """

    stored: StoredRun | None = None
    reason: str = ""
    requested: str = ""
    optional: bool = False
    fail_on: str = ""
    warning: str = ""


class BaselineRequest(NamedTuple):
    """A request to compare a run.

    Attributes:
        name: `none`, `latest` (the suite's last complete run), `passed` (the last one of the same mode and target whose
            gates passed), `committed` (the baseline in the suite's folder), the id of a run, or a path.
        folder: the folder of the run that is compared; the suite's other runs are beside it.
        run: the run that is compared.
        committed: the file of the committed baseline.
        optional: whether a run without its baseline passes.
        fail_on: conditions on the comparison that fail the run, separated by commas; empty for none.
        models: which models answered in the run, as `models_of` returns them.
    """

    name: str
    folder: Path
    run: Run
    committed: Path
    optional: bool = False
    fail_on: str = ""
    models: Sequence[str] = ()


def find_baseline(request: BaselineRequest) -> BaselineLookup:
    """Find and read the run to compare with."""
    if request.name == NO_BASELINE:
        return BaselineLookup()
    found = _find(request)
    return replace(found, requested=request.name, optional=request.optional, fail_on=request.fail_on)


def _find(request: BaselineRequest) -> BaselineLookup:
    folder = request.folder
    try:
        path = _path_of(request)
        stored = read_run(path)
    except _NoBaselineError as error:
        return BaselineLookup(reason=str(error))
    except (StoredRunError, OSError) as error:
        return BaselineLookup(reason=f"not compared: {error}")
    if stored.run.run_id == folder.name:
        # a resumed run may itself be the last complete one
        return BaselineLookup(reason=f"run {folder.name} cannot be compared with itself; name another run")
    end = {"failed": "failed", "partial": "is partial"}.get(stored.status, "")
    warnings = [f"the baseline {stored.run.run_id} is a run that {end}"] if end else []
    # another one that the user names is meant
    if request.name in {COMMITTED, PASSED}:
        warnings += _other_pipeline(stored, request)
    return BaselineLookup(stored=stored, warning="; ".join(warnings))


def _other_pipeline(stored: StoredRun, request: BaselineRequest) -> Iterator[str]:
    """Yield in what the pipeline of a baseline differs from that of the run, as far as both are known."""
    before, now = stored.run, request.run
    # a committed baseline has one result for each case, without its model
    is_committed = stored.attempts is not None
    models = before.model or "" if is_committed else ", ".join(models_of(stored.results))
    guards = [", ".join(each.settings.get("guards", ())) or "none" for each in (before, now)]
    pairs = [
        ("target", before.target, now.target),
        ("model", models, ", ".join(request.models)),
        *([] if is_committed else [("guards", *guards)]),
    ]
    for name, old, new in pairs:
        if old and new and old != new:
            yield f"the baseline {before.run_id} is of another {name}: {old} before, {new} now"


class _NoBaselineError(Exception):
    """There is no such baseline; the message is one line with what to do."""


def _path_of(request: BaselineRequest) -> Path:
    """Return the path of the requested baseline.

    Raises:
        _NoBaselineError: there is none.
        StoredRunError: the file `latest` is damaged.
    """
    suite_folder = request.folder.parent
    if request.name == LATEST:
        try:
            return suite_folder / read_latest(suite_folder)
        except OSError:
            raise _NoBaselineError("there is no earlier complete run to compare with") from None
    if request.name == PASSED:
        return _last_passed(request)
    if request.name == COMMITTED:
        if not request.committed.is_file():
            advice = "run the suite, then packbench baseline set RUN --reason TEXT"
            if request.run.bundled:
                advice = "copy the suite with packbench init --from"
            raise _NoBaselineError(f"the suite has no {BASELINE_NAME}; {advice}")
        return request.committed
    if is_run_id(request.name):
        path = suite_folder / request.name
        if not path.is_dir():
            raise _NoBaselineError(f"there is no run {request.name} of suite {request.run.suite} here")
        return path
    return Path(request.name)


def _last_passed(request: BaselineRequest) -> Path:
    """Return the folder of the last complete run of the same mode and target whose gates passed."""
    # run ids sort by time
    folders = sorted((path for path in request.folder.parent.glob("*/") if is_run_id(path.name)), reverse=True)
    for folder in folders:
        if folder.name == request.folder.name:
            continue
        try:
            report = open_report(folder)
        except (StoredRunError, OSError):
            # a run that did not end, or can't be read
            continue
        if report.held and not report.run.partial and _same_kind(report.run, request.run):
            return folder
    raise _NoBaselineError(
        "there is no earlier complete run of the same mode and target whose gates passed; "
        "for the first one, add --packbench-baseline-optional"
    )


def _same_kind(before: Run, now: Run) -> bool:
    return (before.mode, before.target) == (now.mode, now.target)


def open_run(path: Path) -> OpenRun:
    """Open a run to read its results one by one, each compared with its record; otherwise as `read_run`.

    Records without the report of their run are all read first, because the metadata of the run depends on each of them.

    Raises:
        StoredRunError: see `read_run`.
        OSError: a file cannot be read.
    """
    if path.is_dir() or (path.suffix != ".jsonl" and path.name != BASELINE_NAME):
        report = open_report(path)
        return report._replace(results=checked_results(Path(report.source).parent, report.results, report.run.run_id))
    stored = read_run(path)
    return OpenRun(
        source=stored.source,
        run=stored.run,
        status=stored.status,
        results=iter(stored.results),
        lists_all_cases=stored.lists_all_cases,
        attempts=stored.attempts,
    )


def load_run(path: Path, *, checked: bool = False) -> StoredRun:
    """Read a run.

    Args:
        path: the folder of a run, its `report.json`, a `.jsonl` file with the records of one run, or the committed
            baseline of a suite.
        checked: whether the results of a report are compared with the records beside it.

    Raises:
        StoredRunError: the path is none of these, or its version is not supported.
        OSError: it cannot be read.
    """
    if path.suffix == ".jsonl" and not path.is_dir():
        return _from_records(path)
    if path.name == BASELINE_NAME and not path.is_dir():
        return _from_baseline(path)
    report = open_report(path)
    rows = checked_results(Path(report.source).parent, report.results, report.run.run_id) if checked else report.results
    results = _sorted(rows)
    return StoredRun(
        source=report.source, run=report.run, results=results, status=report.status, controls=report.controls
    )


def read_run(path: Path, *, checked: bool = False) -> StoredRun:
    """Read a run, including the files beside a file of records.

    The `report.json` of the same run is used if it exists, otherwise the lines of the same run in `errors.jsonl`,
    which list the cases without a score.

    Args:
        path: see `load_run`.
        checked: see `load_run`.

    Raises:
        StoredRunError: see `load_run`; or a file beside the records cannot be read or does not belong to them.
        OSError: a file cannot be read.
    """
    stored = load_run(path, checked=checked)
    if stored.lists_all_cases:
        return stored
    report, errors = path.with_name(REPORT), path.with_name(ERRORS)
    if report.is_file():
        reported = load_run(report)
        if (reported.run.run_id, reported.run.suite.removeprefix(BUNDLED)) == (stored.run.run_id, stored.run.suite):
            return _checked(reported, stored)
    lines = read_run_errors(errors, stored.run.run_id) if errors.is_file() else ()
    unscored = [_result_of(line, stored.run.suite) for line in lines]
    if not unscored:
        return stored
    results = _sorted((*stored.results, *_with_trial_numbers(unscored, stored.results)))
    return replace(stored, results=results, lists_all_cases=True)


def complete_results(source: str) -> Iterator[Result]:
    """Yield the results of a stored run with their records and payloads, as far as its files have them.

    Args:
        source: the `source` of the run: a `report.json`, a file of records, or a committed baseline, which has none.

    Raises:
        StoredRunError: a file cannot be read, or its lines are out of order.
        OSError: a file cannot be read.
    """
    path = Path(source)
    if path.name == BASELINE_NAME:
        return
    if path.suffix == ".jsonl":
        for _, record in read_run_records(path):
            yield replace(result_of_record(record), record=json.loads(record.to_json_line()))
        return
    files = ResultFiles(path.parent)
    for row in open_report(path).results:
        yield files.complete(row)


def _from_baseline(path: Path) -> StoredRun:
    from pytest_packbench.runs.committed import attempts_of, read_baseline, results_of, run_of

    baseline = read_baseline(path)
    results = results_of(baseline, path.name)
    return StoredRun(source=str(path), run=run_of(baseline), results=results, attempts=attempts_of(baseline))


def _from_records(path: Path) -> StoredRun:
    first: EvalRecord | None = None
    shared: tuple[Any, ...] = ()
    results: dict[tuple[str, int], Result] = {}
    ends: dict[tuple[str, int], str] = {}
    started, finished = "", ""
    for location, record in read_run_records(path):
        if first is None:
            first, shared = record, _shared_values(record)
        _check_same_run(shared, _shared_values(record), location)
        result = result_of_record(record)
        # of an attempt that was written twice the first line counts, as in a report
        results.setdefault((result.case.test_id, result.attempt.trial), result)
        end = f"{result.score.verdict}, {record.agent_decision}, score {result.score.score}"
        earlier = ends.setdefault((result.case.test_id, result.attempt.trial), end)
        if end != earlier:
            problem = f"{printable(result.case.test_id)} is there twice: {end}; above: {earlier}"
            raise StoredRunError(f"{location}: {problem}; remove the line that is wrong")
        started = min(started or record.timestamp, record.timestamp)
        finished = max(finished, record.timestamp)
    if first is None:
        raise StoredRunError(f"{path}: contains no records")
    run = replace(_run_of(first), started_at=started, finished_at=finished)
    return StoredRun(source=str(path), run=run, results=_sorted(results.values()), lists_all_cases=False)


def _check_same_run(first: tuple[Any, ...], values: tuple[Any, ...], location: str) -> None:
    if values != first:
        name, before, now = next(each for each in zip(_SHARED_KEYS, first, values, strict=True) if each[1] != each[2])
        raise StoredRunError(
            f"{location}: {name} is {printable(repr(now))}, but {printable(repr(before))} in the lines above; "
            "expected the records of one run"
        )


def _shared_values(record: EvalRecord) -> tuple[Any, ...]:
    """Return the values that all records of a run share, in the order of `_SHARED_KEYS`."""
    extension = record.packbench or {}
    return (record.run_id, record.test_suite, *(extension.get(name) for name in _EXTENSION_KEYS))


def _run_of(record: EvalRecord) -> Run:
    extension: Mapping[str, Any] = record.packbench or {}
    pack, _, version = str(extension.get("pack", "")).partition("/")
    return Run(
        run_id=record.run_id,
        suite=record.test_suite,
        description="",
        pack=pack,
        pack_version=version,
        suite_sha256=extension.get("suite_sha256") or "",
        bundled=extension.get("bundled", False),
        mode=extension.get("mode", ""),
        target=extension.get("target", ""),
        started_at="",
        finished_at="",
        versions=dict(extension.get("versions", {})),
    )


def _sorted(results: Iterable[Result]) -> tuple[Result, ...]:
    return tuple(sorted(results, key=lambda result: (result.case.test_id, result.attempt.trial)))


def _checked(reported: StoredRun, records: StoredRun) -> StoredRun:
    """Return the run of a report if the records belong to it: records that were filtered or joined mean another run."""
    counted = {(result.case.test_id, result.attempt.trial) for result in reported.results if result.score.counted}
    recorded = {(result.case.test_id, result.attempt.trial) for result in records.results}
    if recorded != counted:
        test_id = min(name for name, _ in recorded ^ counted)
        raise StoredRunError(
            f"{records.source}: does not match {reported.source} ({test_id} is in only one of them); "
            "pass the folder of the run, or move the records away from the report"
        )
    return reported


def _result_of(line: ErrorLine, suite: str) -> Result:
    """Convert an error line to a result; the line does not contain case type, difficulty, tags and facets."""
    case_id = line.test_id.rpartition(":")[2]
    names = {"suite": suite, "case_id": case_id, "nodeid": f"{line.file}::{case_id}"}
    return result_from({**line._asdict(), **names})


def _with_trial_numbers(unscored: Iterable[Result], scored: Iterable[Result]) -> Iterator[Result]:
    """Yield the results of error lines with unused trial numbers; lines of older versions have none of their own."""
    used = {(result.case.test_id, result.attempt.trial) for result in scored}
    for result in unscored:
        trial = result.attempt.trial
        while (result.case.test_id, trial) in used:
            trial += 1
        used.add((result.case.test_id, trial))
        yield replace(result, attempt=replace(result.attempt, trial=trial))
