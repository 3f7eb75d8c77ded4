"""Writing a run: its journal while it is running, and all its files when it ends."""

from __future__ import annotations

import json
import os
import shutil
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from pytest_packbench.files import (
    check_link,
    compact_json,
    encode_utf8,
    finite_json,
    finite_line,
    replace_atomic,
    write_atomic,
)
from pytest_packbench.model.result import EndedAttempt, Result, result_from
from pytest_packbench.runs.folder import (
    CONTROLS,
    DRAFTS,
    ERRORS,
    JOURNAL,
    LATEST,
    PAYLOADS,
    RECORDS,
    REPORT,
    WORKER_JOURNALS,
    ensure_gitignore,
)
from pytest_packbench.runs.journal import Entry, Journal, rewrite_journal
from pytest_packbench.runs.reading import checked_results, sort_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_packbench.model.recording import ControlTally
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.stored import CommittedBaseline
    from pytest_packbench.runs.resuming import PriorResults


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_ROWS = ".rows.tmp"
"""The rows of the report, until it is written; one of `DRAFTS`."""
_LEAST_SPACE = 2**20
_BUFFER = 1 << 18


def sort_results(results: Iterable[Result]) -> list[Result]:
    """Sort results by case id, the order of all files."""
    return sorted(results, key=sort_key)


class RunWriter:
    """Writes the files of a run in this order: journal, results, pages, report.

    A session writes to the run's folder directly, beside its journal. A run whose results are all known, such as a
    merged one, is written with `atomic=True` in a `with` block: to a temporary folder first, so that the run's folder
    exists either with its report or not at all.

    Args:
        output: the folder of reports; created if it does not exist.
        suite: the suite's name.
        run_id: the run's id.
        atomic: whether to write to a temporary folder first.
        prior: what earlier sessions left of a resumed run; written to the new journal.

    Attributes:
        folder: the run's folder, named after its id.
        journal: the journal; None before it is opened.
        prior: see above.
    """

    def __init__(
        self, output: Path, suite: str, run_id: str, *, atomic: bool = False, prior: PriorResults | None = None
    ) -> None:
        self.folder = output / suite / run_id
        self._output = output
        self._run_id = run_id
        self.prior = prior
        self._target = self.folder.with_name(f".{run_id}.tmp") if atomic else self.folder
        self.journal: Journal | None = None

    def __enter__(self) -> Self:
        """Create the temporary folder.

        Raises:
            OSError: it cannot be created, or a run of this id is being written.
        """
        self._prepare_output()
        self._target.mkdir(parents=True)
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the temporary folder of a run that was not completed."""
        shutil.rmtree(self._target, ignore_errors=True)

    def open_journal(self, header: Callable[[], Run]) -> Journal:
        """Return the journal, opened on the first call; that of a resumed run starts with the prior results.

        Args:
            header: returns the metadata of the run so far.

        Raises:
            OSError: the journal cannot be written.
        """
        if self.journal is None:
            self._prepare_output()
            self.folder.mkdir(parents=True, exist_ok=True)
            path, prior = self.folder / JOURNAL, self.prior
            if prior is not None:
                # discarded results must not return after a second crash
                rewrite_journal(path, header(), prior.entries())
                for worker_journal in prior.worker_journals:
                    worker_journal.unlink(missing_ok=True)
            self.journal = Journal(path, header)
        return self.journal

    def _prepare_output(self) -> None:
        for folder in self.folder.parents:
            if folder.is_symlink():
                check_link(folder)
        ensure_gitignore(self._output)

    def check_space(self) -> None:
        """Check that the folder of the run has room for more than a few lines.

        Raises:
            OSError: it has not.
        """
        path = self.folder / f".{os.urandom(8).hex()}.tmp"
        try:
            path.write_bytes(bytes(_LEAST_SPACE))
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def discard_journal(self) -> None:
        """Remove the journal of a run that does not start, with the folder; a resumed run keeps both."""
        if self.journal is None or self.prior is not None:
            return
        self.journal.close()
        self.journal.path.unlink(missing_ok=True)
        # a folder with anything else in it is kept
        with suppress(OSError):
            self.folder.rmdir()
        self.journal = None

    def close_journal(self) -> None:
        """Close the journal after the last result; the file is deleted when the report has been written."""
        if self.journal is not None:
            self.journal.close()

    def write_results(self, results: Iterable[Result]) -> None:
        """Write all results as `writing` does."""
        deque(self.writing(results), 0)

    def writing(self, results: Iterable[Result]) -> Iterator[Result]:
        """Write `records.jsonl`, `errors.jsonl` (only if there are any), `payloads.jsonl`, and the rows of the report.

        Each result is yielded when its lines are written; the files are replaced after the last one.

        Args:
            results: one for each attempt, in order, with record and payload; read one by one, and not kept in memory.
                Its exceptions propagate.

        Raises:
            OSError: a file cannot be written; existing files are unchanged.
        """
        self._prepare_output()
        self._target.mkdir(parents=True, exist_ok=True)
        errors_path, run_id = self._target / ERRORS, self._run_id
        with ExitStack() as files:

            def opened(path: Path) -> BinaryIO:
                return files.enter_context(replace_atomic(path, buffer=_BUFFER))

            rows, records, payloads = (opened(self._target / name) for name in (_ROWS, RECORDS, PAYLOADS))
            errors: BinaryIO | None = None
            for result in results:
                rows.write(row_line(result) + b"\n")
                if result.record is not None:
                    records.write(_line({**result.record, "run_id": run_id}))
                else:
                    errors = errors or opened(errors_path)
                    errors.write(_line(result.error_line(run_id)))
                payload, case = result.attempt.payload, result.case
                if payload is not None:
                    about = {"test_id": case.test_id, "case_id": case.case_id, "trial": result.attempt.trial}
                    payloads.write(_line({"run_id": run_id, **about, "result": payload}))
                yield result
        if errors is None:
            # an earlier session of the run may have written it
            errors_path.unlink(missing_ok=True)

    def written_results(self, suite: str) -> Iterator[Result]:
        """Yield what `write_results` has written, with records and payloads.

        Args:
            suite: the suite that results name.

        Raises:
            OSError: a file cannot be read.
        """
        with (self._target / _ROWS).open("rb") as rows:
            results = (result_from({**json.loads(row), "suite": suite}) for row in rows)
            yield from checked_results(self._target, results, self._run_id, complete=True)

    def write_controls(self, controls: ControlTally | None) -> None:
        """Write `controls.jsonl`, only if any were selected.

        Raises:
            OSError: the file cannot be written.
        """
        path = self._target / CONTROLS
        if controls is not None and controls.results:
            lines = (_line({"run_id": self._run_id, **control.as_json()}) for control in controls.results)
            write_atomic(path, b"".join(lines))
        else:
            # an earlier session of the run may have written it
            path.unlink(missing_ok=True)

    def write_page(self, name: str, text: str) -> None:
        """Write a page of the run atomically.

        Raises:
            OSError: the page cannot be written.
        """
        write_atomic(self._target / name, text)

    def complete(self, document: dict[str, Any], report: Mapping[str, Any] | None = None) -> None:
        """Write `report.json`, which ends the run, then delete its journal and update `latest` if it is complete.

        Args:
            document: the object of the run, with `cases` last and empty.
            report: the other keys of the report; none by default.

        Raises:
            OSError: a file cannot be written, or the run's folder exists already (`atomic=True`).
        """
        rows = self._target / _ROWS
        with rows.open("rb") as lines:
            write_report(self._target / REPORT, report or {}, document, (line.rstrip(b"\n") for line in lines))
        rows.unlink()
        if self._target != self.folder:
            self._target.rename(self.folder)
        if document["complete"]:
            write_atomic(self.folder.parent / LATEST, self._run_id + "\n")
        # a killed process may have left temporary files
        drafts = self.folder.glob(DRAFTS) if self.prior is not None else ()
        for path in (self.folder / JOURNAL, *self.folder.glob(WORKER_JOURNALS), *drafts):
            path.unlink(missing_ok=True)


class RunResults:
    """Collects the results of a run in progress; each is in the journal once, from the end of its attempt.

    Args:
        writer: writes the files of the run, and has the prior results of a resumed run.
        header: returns the metadata of the run so far, for the journal's header.

    Attributes:
        writer: see above.
        by_nodeid: the results of each reported case, one for each trial; of a case that ran twice the last.
        problems: what went wrong with the run as a whole, one line each.
    """

    def __init__(self, writer: RunWriter, header: Callable[[], Run]) -> None:
        self.writer = writer
        self.by_nodeid: dict[str, tuple[Result, ...]] = {}
        self.problems: list[str] = []
        self._header = header
        # attempts in the journal whose case was not reported yet, by node id and trial
        self._unreported: dict[str, dict[int, Result]] = {}
        prior = () if writer.prior is None else writer.prior.entries()
        self._journaled = {_identity(each) for each in prior if isinstance(each, Result)}

    def open_journal(self, *, checks_space: bool = False) -> bool:
        """Open the journal; return whether it can be written, and with `checks_space` a MiB more."""
        is_open = self.guard(lambda: self.writer.open_journal(self._header))
        return is_open and (not checks_space or self.guard(self.writer.check_space))

    def journal(self, entry: Entry) -> bool:
        """Append a result to the journal before its case is reported, or an ended attempt, on any thread.

        Returns:
            Whether it is written; an ended attempt only to a journal that is open.
        """
        if isinstance(entry, Result):
            self._journaled.add(_identity(entry))
            self._unreported.setdefault(entry.case.nodeid, {})[entry.attempt.trial] = entry
        elif self.writer.journal is None:
            return False
        return self._append(entry)

    def add_case(self, trials: tuple[Result, ...], *, journaled: bool = False) -> None:
        """Add the results of a reported case, one for each trial, and append those missing in the journal to it.

        Args:
            trials: the results.
            journaled: whether all of them are in the journal of a worker.
        """
        self.by_nodeid[trials[0].case.nodeid] = trials
        self._unreported.pop(trials[0].case.nodeid, None)
        for result in trials:
            identity = _identity(result)
            if identity in self._journaled:
                self._journaled.discard(identity)
            elif not journaled:
                self._append(result)

    def unreported(self, nodeid: str) -> Mapping[int, Result]:
        """Return the journaled attempts at a case that was not reported yet, by trial."""
        return self._unreported.get(nodeid, {})

    def carry_over(self, scored: Callable[[EndedAttempt], Result | None]) -> None:
        """Add the prior results of cases that this session did not select.

        Args:
            scored: returns the result of an attempt that has ended; None if it no longer counts.
        """
        reported = {trials[0].case.case_id for trials in self.by_nodeid.values()}
        attempts = {} if self.writer.prior is None else self.writer.prior.attempts
        for entries in (entries for case_id, entries in attempts.items() if case_id not in reported):
            results = (each if isinstance(each, Result) else scored(each) for _, each in sorted(entries.items()))
            if trials := tuple(filter(None, results)):
                self.by_nodeid[trials[0].case.nodeid] = trials

    def ordered(self) -> list[Result]:
        """Return all results in the order of all files."""
        return sort_results(result for trials in self.by_nodeid.values() for result in trials)

    def guard(self, write: Callable[[], object]) -> bool:
        """Call a function that writes to the run's folder; a failure is added to `problems` once, and not raised.

        Returns:
            Whether it has written.
        """
        try:
            write()
        except OSError as error:
            problem = f"cannot write reports to {self.writer.folder}: {error.strerror or error}"
            if problem not in self.problems:
                self.problems.append(problem)
            return False
        return True

    def _append(self, entry: Entry) -> bool:
        return self.guard(lambda: self.writer.open_journal(self._header).append(entry))


def _identity(result: Result) -> tuple[str, int, str, str]:
    # an error that follows a score may be of the same millisecond
    return result.case.nodeid, result.attempt.trial, result.attempt.timestamp, result.score.verdict


def write_report(path: Path, report: Mapping[str, Any], document: dict[str, Any], rows: Iterable[bytes]) -> None:
    """Write a report row by row, so that the text of a large run is never in memory.

    Args:
        path: the file; its folder must exist.
        report: the other keys of the file.
        document: the object of the run, with `cases` last and empty.
        rows: what `row_line` returns for each result, in order.

    Raises:
        OSError: the file cannot be written; an existing file is unchanged.
    """
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
    # another plugin's part of the document may have any number, and any key
    return _ENCODER.encode(finite_json(value))


def _line(value: dict[str, Any]) -> bytes:
    return compact_json(value) + b"\n"


def row_line(result: Result) -> bytes:
    """Return the row of one result as compact JSON; a number that is not finite becomes null."""
    return finite_line(result.row())


def write_baseline(path: Path, baseline: CommittedBaseline) -> None:
    """Write a committed baseline, a line for each case, so that a diff shows which cases changed.

    Raises:
        OSError: it can't be written; an existing file is unchanged.
    """
    data = baseline.model_dump(mode="json", exclude_defaults=True)
    cases = [f"    {_compact(test_id)}: {_compact(case)}" for test_id, case in sorted(data["cases"].items())]
    history = [f"    {_compact(change)}" for change in data.get("history", [])]
    text = "\n".join(
        [
            "{",
            f'  "baseline_version": {baseline.baseline_version},',
            f'  "run": {_compact(data["run"])},',
            '  "history": [',
            *([",\n".join(history)] if history else []),
            "  ],",
            '  "cases": {',
            *([",\n".join(cases)] if cases else []),
            "  }",
            "}",
        ]
    )
    write_atomic(path, text + "\n")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
