"""Reading runs: a report, bare records or a committed baseline, opened as the same; finding one to compare with.

A run is a header and a stream of results, sorted like all its files by case, test, file and trial. A report may be
hundreds of megabytes: as the writer leaves it, its header is found without the rows, and these are read one by one,
in step with the files beside it. One that another program has formatted is read whole.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from codecs import iterdecode
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

from pydantic import ValidationError

from pytest_packbench.files import (
    LIMITS,
    NUMBERS,
    NumberError,
    open_regular,
    parse_strict,
    position_of,
    printable,
    read_regular,
    without_duplicates,
)
from pytest_packbench.model.errors import NoReportError, StoredRunError, first_problem
from pytest_packbench.model.report import BaselineLookup, Outline, StoredRun
from pytest_packbench.model.result import COUNTED, NO_SCORE, Result, adapter, models_of, result_from, result_of_record
from pytest_packbench.model.run import MERGED_FROM, Run
from pytest_packbench.model.suite import BASELINE_NAME
from pytest_packbench.runs.folder import (
    COMMITTED,
    CONTROLS,
    ERRORS,
    JOURNAL,
    LATEST,
    PASSED,
    PAYLOADS,
    RECORDS,
    REPORT,
    AttemptLine,
    error_lines,
    is_run_id,
    payload_lines,
    read_controls,
    read_latest,
    record_lines,
    stated_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.model.recording import ControlTally
    from pytest_packbench.model.stored import CommittedBaseline


_LIMIT: Final = LIMITS["report"]
_CHUNK: Final = 1 << 18
# a report as the writer leaves it
_DOCUMENT = rb'"packbench":(?=\{"version":\d+,"status":)'
_CASES = rb',"cases":\['
_END = "]}}\n"
_RESTORE = "restore it, or remove it and set it again with packbench baseline set"
_SHARED = attrgetter("run_id", "suite", "mode", "pack", "pack_version", "suite_sha256", "target")
_SHARED_NAMES = "run_id, test_suite, mode, pack, suite_sha256, target"


def open_run(
    path: Path, *, checked: bool = True, complete: bool | Callable[[Run], bool] = False, whole: bool = True
) -> StoredRun:
    """Open a run in any of its forms.

    Of a file of records, the `report.json` of the same run beside it is used if it exists, otherwise the lines of the
    same run in `errors.jsonl`, which list the cases without a score. All records are read first, since the metadata of
    the run depends on each of them.

    Args:
        path: the folder of a run, its `report.json`, a `.jsonl` file with the records of one run, or the committed
            baseline of a suite.
        checked: whether the results of a report are compared with the records and errors beside it.
        complete: whether results have their records and payloads, as far as there are files with them, or what tells it
            of the run; they are checked then as well.
        whole: whether all that a report states is read, and not its outline only.

    Raises:
        NoReportError: the path is a file without a report.
        StoredRunError: it is none of these, or its version is not supported, or it is damaged.
        OSError: it can't be read.
    """
    if path.suffix == ".jsonl" and not path.is_dir():
        return _open_records(path, checked=checked, complete=complete)
    if path.name == BASELINE_NAME and not path.is_dir():
        return _open_baseline(path)
    file = _report_of(path)
    document = _document(file)
    if whole:
        from pytest_packbench.model.stored import Header

        noun = adapter(Header)
    else:
        noun = adapter(Outline)
    header: Outline = _validated(noun.validate_python, next(document), f"{file}: /packbench")
    run = header.run
    results = _results(document, run, file)
    if callable(complete):
        complete = complete(run)
    if checked or complete:
        results = checked_results(file.parent, results, run.run_id, complete=complete)
    reopen = None if complete else partial(_complete_results, file)
    return StoredRun(source=str(file), run=run, results=results, header=header, reopen=reopen)


def _complete_results(path: Path) -> Iterable[Result]:
    return open_run(path, complete=True).results


def controls_of(stored: StoredRun) -> ControlTally | None:
    """Return the controls of a run as its report counts them; records alone do not say how many there were.

    Returns:
        None if it had none.

    Raises:
        StoredRunError: `controls.jsonl` is missing, invalid, or differs from the report.
        OSError: the file cannot be read.
    """
    from pytest_packbench.model.recording import tally_of

    path, counts = Path(stored.source).with_name(CONTROLS), None if stored.header is None else stored.stated.controls
    tally = tally_of(read_controls(path, stored.run.run_id), 0 if counts is None else counts.present)
    if stored.source.endswith(".jsonl") or counts == (None if tally is None else tally.counts):
        return tally
    raise StoredRunError(f"{path} is missing, or has other controls than the report counts; run the suite again")


def earlier_runs(suite_folder: Path, run: Run, opened: StoredRun | None = None) -> Iterator[StoredRun]:
    """Yield the complete runs of a suite before a run, the latest first, each with the outline of its report.

    Runs that can't be read are left out, and those that the run was merged from.

    Args:
        suite_folder: the folder of the suite's runs.
        run: the run.
        opened: a run with its results in memory: if it is one of these, it is not opened again.
    """
    parts = run.settings.get(MERGED_FROM)
    merged = parts if isinstance(parts, list) else ()
    for folder in run_folders(suite_folder):
        if folder.name < run.run_id and folder.name not in merged:
            with suppress(ValueError, OSError):
                yield open_complete(folder, opened)


def run_folders(suite_folder: Path) -> list[Path]:
    """Return the folders of a suite's runs, the latest first: run ids sort by time. Other folders are none."""
    return sorted((path for path in suite_folder.glob("*/") if is_run_id(path.name)), reverse=True)


def open_complete(folder: Path, opened: StoredRun | None = None) -> StoredRun:
    """Open a complete run by its folder, with the outline of its report; the cases are not checked.

    Args:
        folder: the folder of the run.
        opened: a run that is returned if it is the one in the folder.

    Raises:
        StoredRunError: the run did not end or is partial, its report can't be read, or it is the copy of a run, which
            has another folder; one line with the place in it.
        OSError: the report can't be read.
    """
    is_open = opened is not None and opened.source == str(folder / REPORT)
    stored = opened if opened is not None and is_open else open_run(folder, checked=False, whole=False)
    run = stored.run
    if run.run_id != folder.name:
        raise StoredRunError(f"{folder}: contains the run {run.run_id}, which counts in the folder of this name")
    if run.partial:
        raise StoredRunError(f"{folder}: partial: {run.partial}")
    return stored


def sort_key(result: Result) -> tuple[str, str, str, int]:
    """Return what results are sorted by, in all files and streams."""
    return result.case.case_id, result.case.test_id, result.case.file, result.attempt.trial


def _report_of(path: Path) -> Path:
    """Return the report of a run, which a folder has if the run ended."""
    file = path / REPORT if path.is_dir() else path
    if not file.exists() and (path / JOURNAL).exists():
        raise StoredRunError(
            f"{path}: contains no {REPORT}: the run did not end; its results so far are in {JOURNAL}; "
            f"run it to its end with its options and --packbench-resume={path.name}"
        )
    if not file.exists() and path.is_dir():
        raise StoredRunError(f"{path}: contains no {REPORT}; pass the folder of a run, or a file of records")
    return file


def _document(path: Path) -> Iterator[Any]:
    """Yield the object of a run in a report without its cases, then these one by one."""
    with open_regular(path) as file:
        found = _header(file)
        if found:
            end, start = found.pop(), found.pop()
            # not kept here: many runs may be open
            yield found.pop()
            _check_before(file, start, path)
            file.seek(end)
            pieces = iterdecode(iter(partial(file.read, _CHUNK), b""), "utf-8")
            yield from _elements(pieces, [""], f"{path}: /packbench/cases", _END)
            return
        file.seek(0)
        raw = file.read(_LIMIT.size + 1)
    if len(raw) > _LIMIT.size:
        raise StoredRunError(f"{path}: another program has formatted it, and it is too large for that; {_LIMIT.advice}")
    try:
        report = _parsed(raw, path, "JSON", _LIMIT.advice)
    except StoredRunError as error:
        raise NoReportError(str(error), raw) from None
    document = report.get("packbench") if isinstance(report, dict) else None
    if not isinstance(document, dict):
        raise NoReportError(f'{path}: the key "packbench" is missing; expected the report.json of a run', raw)
    rows = document.pop("cases", None)
    yield document
    if not isinstance(rows, list):
        raise StoredRunError(f"{path}: /packbench/cases: not a run document: expected an array")
    yield from rows


def _parsed(raw: bytes, path: Path, what: str, advice: str) -> Any:
    """Parse a whole file strictly; `what` it has to be."""
    try:
        return parse_strict(raw.decode("utf-8"))
    except RecursionError:
        raise StoredRunError(f"{path}: not {what}: nested too deeply; {advice}") from None
    except NumberError as error:
        line, column = position_of(error.token, raw)
        raise StoredRunError(f"{path}: line {line} column {column}: {error}; {advice}") from None
    except ValueError as error:
        raise StoredRunError(f"{path}: not {what}: {error}; {advice}") from None


def _header(file: BinaryIO) -> list[Any]:
    """Return the object of a run without its cases, where it and where these begin; nothing if others wrote it."""
    if not os.fstat(file.fileno()).st_size:
        return []
    from mmap import ACCESS_READ, mmap  # most runs read no other

    with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        start = re.search(_DOCUMENT, data)
        if start is None or data[-len(_END) :] != _END.encode():
            return []
        for split in re.compile(_CASES).finditer(data, start.end()):
            # a text contains no such key, because its quotes are escaped; an object further inside may
            if split.start() - start.end() > _LIMIT.size:
                break
            with suppress(ValueError, RecursionError):
                header = parse_strict((data[start.end() : split.start()] + b"}").decode("utf-8"))
                return [header, start.start(), split.end()]
    return []


def _check_before(file: BinaryIO, end: int, path: Path) -> None:
    """Check that what another program wrote before a byte is strict JSON; of its tests, one is in memory."""
    file.seek(0)
    pieces = iterdecode((file.read(min(_CHUNK, end - start)) for start in range(0, end, _CHUNK)), "utf-8")
    try:
        head, key, *left = next(pieces, "").partition('"tests":[')
        if key:
            deque(_elements(pieces, left, key), 0)
            # one element instead of all, behind which the array has to end
            key += "0"
        parse_strict("".join([head, key, *left, *pieces, '"packbench":0}']))
    except (ValueError, RecursionError):
        # as a whole, which tells the place
        file.seek(0)
        _parsed(file.read(end) + b'"packbench":0}', path, "JSON", _LIMIT.advice)


def _elements(pieces: Iterator[str], left: list[str], place: str, end: str = "") -> Iterator[Any]:
    """Yield the elements of an array one by one; one of them, and a piece of the text, are in memory.

    Args:
        pieces: the text behind what is left; one that begins behind the array may be read.
        left: what was read of the text behind the bracket of the array; afterwards, from its last bracket.
        place: the place of the array.
        end: what has to be there from the last bracket to the end of the text; empty if that is not known.
    """
    decode = json.JSONDecoder(object_pairs_hook=without_duplicates, **NUMBERS).raw_decode
    number = start = 0
    try:
        chunk = left.pop() or next(pieces, "")
        is_last = chunk.startswith("]")
        while not is_last:
            try:
                element, stop = decode(chunk, start)
                is_last = chunk[stop] != ","
            except (json.JSONDecodeError, IndexError) as error:
                # at least as much again as is there, so that a large one is not decoded from its start too often
                kept = len(chunk) - start
                more = "" if kept > _LIMIT.size else "".join(islice(pieces, 1 + kept // _CHUNK))
                if not more:
                    raise ValueError(getattr(error, "msg", "the file ends within them")) from None
                chunk, start = chunk[start:] + more, 0
                continue
            yield element
            number, start = number + 1, stop + (not is_last)
        left.append(chunk[start:])
        if end and left[0] + next(pieces, "") != end:
            raise ValueError("expected the end of the report behind its cases")  # noqa: TRY301 - like the others
    except (ValueError, RecursionError) as error:
        raise StoredRunError(f"{place}/{number}: not JSON: {error}; {_LIMIT.advice}") from None


def _results(rows: Iterable[Any], run: Run, file: Path) -> Iterator[Result]:
    before: tuple[Any, ...] = ()
    # what tells a case, in eight bytes for each, so that a run of any size can be read
    cases = array("Q")
    for number, row in enumerate(rows):
        place = f"{file}: /packbench/cases/{number}"
        result = _validated(lambda row: result_from({**row, "suite": run.suite}), row, place)
        if result.score.score is None and result.score.verdict in COUNTED:
            missing = f"{NO_SCORE} {result.score.verdict}"
            raise StoredRunError(f"{place}/score: not a run document: {missing}; expected a number from 0 to 1")
        key = sort_key(result)
        if key <= before:
            order = f"{result.case.test_id} follows {before[1]}"
            raise StoredRunError(f"{place}: {order}; expected cases sorted by id")
        # files that can't be read may have the same id
        if key[:3] != before[:3]:
            names = repr(key[1:3]).encode()
            cases.append(int.from_bytes(blake2b(names, digest_size=8).digest()))
        before = key
        yield result
    for case, following in pairwise(sorted(cases)):
        if case == following:
            raise StoredRunError(
                f"{file}: /packbench/cases: a case is there under two ids; restore the file from the run"
            )


def _attempt(result: Result) -> tuple[str, int]:
    return result.case.test_id, result.attempt.trial


def _validated(validate: Callable[[Any], Any], data: Any, place: str) -> Any:
    """Return what a validation by pydantic makes of an object in a report."""
    if not isinstance(data, dict):
        raise StoredRunError(f"{place}: not a run document: expected an object")
    try:
        return validate(data)
    except ValidationError as error:
        problem = first_problem(error, data)
        wrong = f"{place}{problem.pointer}: not a run document: {problem.wrong}; {problem.expected}"
        raise StoredRunError(wrong) from None


def checked_results(
    folder: Path, results: Iterable[Result], run_id: str, *, complete: bool = False
) -> Iterator[Result]:
    """Yield the results of a run, each compared with its line: a file that was changed or cut is an error.

    Args:
        folder: the folder of the run; a file of records, errors or payloads that it lacks counts as none.
        results: the results, in the order of the files.
        run_id: the id of the run.
        complete: whether results have their records and payloads.

    Raises:
        StoredRunError: a line can't be read, belongs to no result, or differs from it; or one is missing.
        OSError: a file cannot be read.
    """
    records = _Beside(folder / RECORDS, record_lines, run_id)
    errors = _Beside(folder / ERRORS, error_lines, run_id)
    payloads = _Beside(folder / PAYLOADS, payload_lines, run_id) if complete else None
    for result in results:
        due = records if result.score.counted else errors
        line = due.take(result)
        if due.exists and (line is None or line.states != stated_of(result.score)):
            due.refuse(line, result.case.test_id)
        if payloads is not None:
            payload = payloads.take(result)
            attempt = replace(result.attempt, payload=None if payload is None else payload.content)
            wire = line.content.as_json() if line is not None and due is records else None
            result = replace(result, attempt=attempt, record=wire)  # noqa: PLW2901 - the same result with more
        yield result
    for file in filter(None, (records, errors, payloads)):
        if file.ahead is not None:
            file.refuse(file.ahead, file.ahead.test_id)


class _Beside:
    """A file beside a report, whose lines are taken in step with its results.

    Args:
        path: the file.
        read: reads its lines.
        run_id: the id that each line has to have.

    Attributes:
        exists: whether there is such a file.
        ahead: the next line; None at the end.
    """

    def __init__(self, path: Path, read: Callable[[Path], Iterator[AttemptLine]], run_id: str) -> None:
        self._path, self._run_id = path, run_id
        self.exists = os.path.lexists(path)
        self._lines = read(path) if self.exists else iter(())
        self.ahead = next(self._lines, None)

    def take(self, result: Result) -> AttemptLine | None:
        """Return the line of a result if it is the next one."""
        line = self.ahead
        if line is None or (line.run_id, line.test_id, line.trial) != (self._run_id, *_attempt(result)):
            return None
        self.ahead = next(self._lines, None)
        return line

    def refuse(self, line: AttemptLine | None, test_id: str) -> NoReturn:
        """Raise StoredRunError for a result, or for its line, without which the other is not complete."""
        line = line or self.ahead
        place = self._path if line is None else line.location
        problem = (
            f"{printable(test_id)} is not as in {REPORT}: missing in one of them, out of order, twice or different"
        )
        raise StoredRunError(f"{place}: {problem}; restore both files from the run {self._run_id}")


def _open_records(path: Path, *, checked: bool, complete: bool | Callable[[Run], bool]) -> StoredRun:
    report = path.with_name(REPORT)
    if path.name == RECORDS and report.is_file():
        return open_run(report, checked=checked, complete=complete)
    run: Run | None = None
    shared: tuple[Any, ...] = ()
    results: dict[tuple[str, int], Result] = {}

    def add(line: AttemptLine, result: Result) -> None:
        if results.setdefault(_attempt(result), result) is not result:
            problem = f"{printable(result.case.test_id)} is there twice; remove the line that is wrong"
            raise StoredRunError(f"{line.location}: {problem}")

    for line in record_lines(path):
        of = _run_of(line.content)
        shared = shared or _SHARED(of)
        if callable(complete):
            complete = complete(of)
        run = of
        if _SHARED(of) != shared:
            problem = f"one of {_SHARED_NAMES} is another one than in the lines above; expected the records of one run"
            raise StoredRunError(f"{line.location}: {problem}")
        result = result_of_record(line.content)
        add(line, replace(result, record=line.content.as_json()) if complete else result)
    if run is None:
        raise StoredRunError(f"{path}: contains no records")
    times = [result.attempt.timestamp for result in results.values()]
    run = replace(run, started_at=min(times), finished_at=max(times))
    counted, errors = len(results), path.with_name(ERRORS)
    for line in error_lines(errors) if errors.is_file() else ():
        # files of several runs may have been joined
        if line.run_id == run.run_id:
            add(line, _result_of_error(line, run))
    ordered = tuple(sorted(results.values(), key=sort_key))
    reopen = None if complete else partial(_complete_results, path)
    return StoredRun(source=str(path), run=run, results=ordered, lists_all_cases=len(ordered) > counted, reopen=reopen)


def _result_of_error(line: AttemptLine, run: Run) -> Result:
    """Return the result of an error line, which contains no case type, difficulty, tags and facets."""
    case_id = line.test_id.rpartition(":")[2]
    names = {"suite": run.suite, "case_id": case_id, "nodeid": f"{line.content.file}::{case_id}"}
    return result_from({**line.content._asdict(), **names})


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


def read_baseline(path: Path) -> CommittedBaseline:
    """Read the committed baseline of a suite.

    Raises:
        StoredRunError: the file is not a valid baseline; one line with the place in it.
        OSError: it can't be read.
    """
    from pytest_packbench.model.errors import validation_problems
    from pytest_packbench.model.stored import CommittedBaseline

    data = _parsed(read_regular(path, LIMITS["baseline.json"]), path, "a committed baseline", _RESTORE)
    try:
        return CommittedBaseline.model_validate(data)
    except ValidationError as error:
        raise StoredRunError(f"{path}: {validation_problems(error, CommittedBaseline, data)[0]}") from None


def _open_baseline(path: Path) -> StoredRun:
    baseline = read_baseline(path)
    of = baseline.run
    run = Run(
        **of.model_dump(exclude={"models", "authored", "trials", "trials_rule"}),
        description="",
        bundled=False,
        started_at="",
        model=", ".join(of.models) or None,
        settings={"trials": of.trials, "trials_rule": of.trials_rule} if of.trials > 1 else {},
    )
    shared = {"suite": of.suite, "file": path.name, "timestamp": of.finished_at}
    results = []
    for test_id, case in baseline.cases.items():
        stated = {"verdict": case.verdict, "kind": case.kind or "", "score": case.score, "judge": case.judge}
        names = {"test_id": test_id, "case_id": test_id.rpartition(":")[2], "nodeid": test_id}
        result = result_from({**shared, **names, **stated, "case_sha256": case.sha256})
        passed = int(case.verdict == "passed") if case.passed is None else case.passed
        results.append(replace(result, folded=(passed, case.trials)))
    ordered = tuple(sorted(results, key=sort_key))
    return StoredRun(source=str(path), run=run, results=ordered, history=baseline.history, committed=True, reopen=tuple)


def find_baseline(
    lookup: BaselineLookup, run: Run, *, folder: Path, committed: Path, models: Sequence[str] = ()
) -> BaselineLookup:
    """Find and read the run to compare with.

    Args:
        lookup: the request.
        run: the run that is compared.
        folder: its folder; the suite's other runs are beside it.
        committed: the file of the committed baseline.
        models: which models answered in the run, as `models_of` returns them.
    """
    name = lookup.requested
    try:
        path = _path_of(name, run, folder, committed)
        if isinstance(path, str):
            return replace(lookup, reason=path)
        stored = open_run(path, checked=False).read()
    except (StoredRunError, OSError) as error:
        return replace(lookup, reason=f"not compared: {error}")
    if stored.run.run_id == folder.name:
        # a resumed run may itself be the last complete one
        return replace(lookup, reason=f"run {folder.name} cannot be compared with itself; name another run")
    end = {"failed": "failed", "partial": "is partial"}.get(stored.header.status if stored.header else "", "")
    warnings = [f"the baseline {stored.run.run_id} is a run that {end}"] if end else []
    # another one that the user names is meant
    if name in {COMMITTED, PASSED}:
        warnings += _other_pipeline(stored, run, models)
    return replace(lookup, stored=stored, warning="; ".join(warnings))


def _other_pipeline(stored: StoredRun, now: Run, models_now: Sequence[str]) -> Iterator[str]:
    """Yield in what the pipeline of a baseline differs from that of the run, as far as both are known."""
    before = stored.run
    # a committed baseline has one result for each case, without its model
    models = before.model or "" if stored.committed else ", ".join(models_of(stored.results))
    guards = [", ".join(each.settings.get("guards", ())) or "none" for each in (before, now)]
    pairs = [
        ("target", before.target, now.target),
        ("model", models, ", ".join(models_now)),
        *([] if stored.committed else [("guards", *guards)]),
    ]
    for name, old, new in pairs:
        if old and new and old != new:
            yield f"the baseline {before.run_id} is of another {name}: {old} before, {new} now"


def _path_of(name: str, run: Run, folder: Path, committed: Path) -> Path | str:
    """Return the path of the requested baseline, or in one line why there is none and what to do.

    Raises:
        StoredRunError: the file `latest` is damaged.
    """
    if name == LATEST:
        try:
            return folder.parent / read_latest(folder.parent)
        except OSError:
            return "there is no earlier complete run to compare with"
    if name == PASSED:
        return _last_passed(run, folder) or (
            "there is no earlier complete run of the same mode and target whose gates passed; "
            "for the first one, add --packbench-baseline-optional"
        )
    if name == COMMITTED:
        bundled = "copy the suite with packbench init --from"
        own = "run the suite, then packbench baseline set RUN --reason TEXT"
        path, missing = committed, f"the suite has no {BASELINE_NAME}; {bundled if run.bundled else own}"
    elif is_run_id(name):
        path, missing = folder.with_name(name), f"there is no run {name} of suite {run.suite} here"
    else:
        return Path(name)
    return path if path.exists() else missing


def _last_passed(run: Run, folder: Path) -> Path | None:
    """Return the folder of the last complete run of the same mode and target whose gates passed; None without one."""
    folders = (path for path in run_folders(folder.parent) if path != folder)
    for path in folders:
        # a run that did not end, or can't be read
        with suppress(StoredRunError, OSError):
            earlier = open_run(path, checked=False)
            is_like = (earlier.run.mode, earlier.run.target) == (run.mode, run.target)
            if earlier.stated.held and not earlier.run.partial and is_like:
                return path
    return None
