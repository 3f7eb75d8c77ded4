"""The session: entries come in on reports, go to the journals at once, and become files and an exit code at the end.

Only the process that the user started keeps a recorder; a worker of xdist runs cases and reports them.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.adapter.baseline import Earlier
from pytest_packbench.adapter.collect import SUFFIX, CaseItem, Collector
from pytest_packbench.adapter.execute import ATTRIBUTE, BENCHES, RUN_ID, Reporter, place_of
from pytest_packbench.adapter.jsonreport import switch_on, write_report
from pytest_packbench.adapter.settings import read_settings
from pytest_packbench.adapter.suites import open_benches
from pytest_packbench.adapter.terminal import Terminal
from pytest_packbench.engine.entries import Place, clock, unscored, versions
from pytest_packbench.plugin import ASKED
from pytest_packbench.records.entry import Entry
from pytest_packbench.records.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path

    from pytest_packbench.adapter.suites import Benches
    from pytest_packbench.cases.suite import Suite
    from pytest_packbench.records.journal import Journal
    from pytest_packbench.reports.gates import GateResult
    from pytest_packbench.reports.statistics import Statistics


@dataclass(slots=True, kw_only=True)
class SuiteRun:
    """One suite's share of the session, while it runs and after.

    Attributes:
        suite: the suite.
        folder: where its reports go.
        selected: what has to run, by node id; the place is looked at only for a case that left no entry.
        entries: what ran, by node id; the last attempt counts.
        journal: open from the first entry on.
        run: what is true of all entries, at the end.
        statistics: the numbers, at the end.
        gates: how the gates decided, at the end.
        baseline: what the comparison with an earlier run said, a line each.
        trouble: what went wrong with the suite as a whole, a line each.
    """

    suite: Suite
    folder: Path
    selected: dict[str, Callable[[], Place]] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    journal: Journal | None = None
    run: Run | None = None
    statistics: Statistics | None = None
    gates: tuple[GateResult, ...] = ()
    baseline: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the suite as a whole fails the session."""
        return bool(self.trouble) or any(not gate.passed for gate in self.gates)


class Recorder:
    """Collects the entries of all suites and writes what a run leaves (design 5)."""

    def __init__(self, config: pytest.Config, benches: Benches, collector: Collector) -> None:
        self.config = config
        self.benches = benches
        self.run_id = config.stash[RUN_ID]
        self.started_ns = time.time_ns()
        self._collector = collector
        self._runs_by_nodeid: dict[str, SuiteRun] = {}
        output = benches.settings.output
        self.runs = {
            name: SuiteRun(suite=suite, folder=output / name / self.run_id) for name, suite in benches.suites.items()
        }

    def select(self, suite_name: str, nodeid: str, place: Callable[[], Place]) -> None:
        """Note a case that has to run, once."""
        run = self.runs[suite_name]
        run.selected.setdefault(nodeid, place)
        self._runs_by_nodeid[nodeid] = run

    def note_collected(self, found: dict[str, int]) -> None:
        """Note how many cases a worker found before any was deselected."""
        for name, count in found.items():
            self._collector.collected[name] = max(self._collector.collected.get(name, 0), count)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what was selected; under xdist the workers tell."""
        for item in session.items:
            if isinstance(item, CaseItem):
                self.select(item.suite.name, item.case_nodeid, partial(place_of, item))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the entry from a report; a report of a case without one tells of a breakdown around it."""
        data = getattr(report, ATTRIBUTE, None)
        if data is not None:
            self._take(Entry.from_json(json.loads(data)))
            return
        nodeid = _plain(report.nodeid)
        run = self._runs_by_nodeid.get(nodeid)
        if run is None or nodeid in run.entries or report.passed:
            return
        kind = "worker_crashed" if report.when not in {"setup", "call", "teardown"} else "setup_broken"
        verdict = "not_run" if report.skipped else "error"
        message = "the worker died while it ran this case" if kind == "worker_crashed" else _first_line(report)
        self._take(
            unscored(
                run.selected[nodeid](),
                verdict,
                "skipped_elsewhere" if report.skipped else kind,
                message,
                timestamp=clock(time.time_ns()),
            )
        )

    def _take(self, entry: Entry) -> None:
        from pytest_packbench.records.journal import Journal
        from pytest_packbench.reports.files import ensure_gitignore

        run = self.runs[entry.suite]
        run.entries[entry.nodeid] = entry
        try:
            if run.journal is None:
                run.folder.mkdir(parents=True, exist_ok=True)
                ensure_gitignore(self.benches.settings.output)
                run.journal = Journal(run.folder / "journal.jsonl")
            run.journal.append(entry)
        except OSError as error:
            trouble = f"reports can't be written to {run.folder}: {error.strerror or error}"
            if trouble not in run.trouble:
                run.trouble.append(trouble)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Complete, judge and write the run: before other plugins build their reports and the terminal speaks."""
        if self.config.option.collectonly or session.exitstatus == pytest.ExitCode.USAGE_ERROR:
            return (yield)
        for run in self.runs.values():
            self._finish(run, session)
        if any(run.failed for run in self.runs.values()) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        result = yield
        for run in self.runs.values():
            self._write_report(run, session)
        self.benches.close()
        return result

    def _finish(self, run: SuiteRun, session: pytest.Session) -> None:
        from pytest_packbench.reports.folder import in_order
        from pytest_packbench.reports.gates import check, of_a_part
        from pytest_packbench.reports.statistics import statistics

        if not run.selected:
            self._note_empty(run)
            return
        stopped = "interrupted" if session.exitstatus == pytest.ExitCode.INTERRUPTED else "stopped"
        now = time.time_ns()
        for nodeid, place in run.selected.items():
            if nodeid not in run.entries:
                message = f"not run: the session was {stopped}{'' if stopped == 'interrupted' else ' early'}"
                run.entries[nodeid] = unscored(place(), "not_run", stopped, message, timestamp=clock(now))
        entries = in_order(run.entries.values())
        run.run = self._run(run, entries, now)
        run.statistics = statistics(entries, levels=self.benches.pack_of(run.suite).depths or None)
        earlier = Earlier.find(self.benches.settings.baseline, run.folder.parent)
        run.gates = check(entries, run.suite.config.all_gates(), earlier.entries)
        if len(entries) < _present(run.suite):
            run.gates = of_a_part(run.gates)
        if run.journal is not None:
            run.journal.close()
        try:
            self._write(run, entries)
            run.baseline = earlier.compared(run.run, entries, run.folder)
        except OSError as error:
            run.trouble.append(f"reports can't be written to {run.folder}: {error.strerror or error}")

    def _note_empty(self, run: SuiteRun) -> None:
        named = run.suite.name in self.config.stash[ASKED].named
        if named and not self._collector.collected[run.suite.name]:
            run.trouble.append(f'suite "{run.suite.name}" has no case under {run.suite.cases_path}')

    def _run(self, run: SuiteRun, entries: list[Entry], now: int) -> Run:
        pack = self.benches.pack_of(run.suite)
        return Run(
            run_id=self.run_id,
            suite=run.suite.name,
            description=run.suite.config.description,
            pack=pack.name,
            pack_version=pack.version,
            suite_sha256=run.suite.sha256,
            bundled=run.suite.bundled,
            mode=self.benches.settings.mode,
            target=_target_of(entries) or self.benches.target_name(run.suite),
            started_at=clock(self.started_ns),
            finished_at=clock(now),
            partial=_partial(run, entries),
            versions=versions(),
            settings={"gate": self.benches.settings.gate},
        )

    def _write(self, run: SuiteRun, entries: list[Entry]) -> None:
        from pytest_packbench.reports.files import ensure_gitignore
        from pytest_packbench.reports.folder import write_run

        if run.run is None or run.statistics is None:
            raise ValueError("a run is written when it is finished")
        ensure_gitignore(self.benches.settings.output)
        write_run(run.folder, run.run, entries, run.statistics, run.gates)

    def _write_report(self, run: SuiteRun, session: pytest.Session) -> None:
        from pytest_packbench.reports.document import run_document
        from pytest_packbench.reports.files import write_atomic
        from pytest_packbench.reports.folder import in_order

        if run.run is None or run.statistics is None or run.trouble:
            return
        entries = in_order(run.entries.values())
        document = run_document(run.run, entries, run.statistics, run.gates)
        try:
            write_report(run.folder / "report.json", self.config, session, set(run.selected), document)
            if not run.run.partial and not run.trouble:
                write_atomic(run.folder.parent / "latest", self.run_id + "\n")
            (run.folder / "journal.jsonl").unlink(missing_ok=True)
        except OSError as error:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
            self.config.get_terminal_writer().line(f"packbench: {run.folder / 'report.json'}: {error}", red=True)


def _target_of(entries: Iterable[Entry]) -> str:
    records = (entry.record for entry in entries if entry.record is not None)
    return next((record["packbench"]["target"] for record in records), "")


def _partial(run: SuiteRun, entries: list[Entry]) -> str:
    stopped = [entry.kind for entry in entries if entry.verdict == "not_run" and not entry.quarantined]
    if "interrupted" in stopped:
        return f"interrupted: {len(stopped)} of {len(entries)} cases did not run"
    if stopped:
        return f"stopped early: {len(stopped)} of {len(entries)} cases did not run"
    present = _present(run.suite)
    return f"{len(entries)} of {present} cases selected" if len(entries) < present else ""


def _present(suite: Suite) -> int:
    return sum(name.endswith(SUFFIX) for _, _, names in os.walk(suite.cases_path) for name in names)


def _plain(nodeid: str) -> str:
    path, mark, name = nodeid.rpartition("::")
    return f"{path}{mark}{name.partition('@')[0]}"


def _first_line(report: pytest.TestReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return (text.strip() or "no report").splitlines()[0]


def register(config: pytest.Config) -> None:
    """Register the plugins of a session that was asked for suites.

    Raises:
        pytest.UsageError: a setting, a suite or the target can't be used.
    """
    asked = config.stash[ASKED]
    benches = open_benches(config, read_settings(config), asked.folders, bundled=asked.bundled)
    config.stash[BENCHES] = benches
    collector = Collector(benches)
    config.pluginmanager.register(collector, "packbench-collector")
    config.pluginmanager.register(Reporter(), "packbench-reporter")
    worker_input = getattr(config, "workerinput", None)
    if worker_input is not None:
        from pytest_packbench.adapter.xdist import Worker

        config.stash[RUN_ID] = worker_input["packbench_run_id"]
        config.pluginmanager.register(Worker(collector), "packbench-worker")
        return
    from ulid import ULID

    config.stash[RUN_ID] = str(ULID())
    recorder = Recorder(config, benches, collector)
    switch_on(config)
    config.pluginmanager.register(recorder, "packbench-recorder")
    config.pluginmanager.register(Terminal(recorder), "packbench-terminal")
    if config.pluginmanager.hasplugin("dsession") or config.pluginmanager.hasplugin("xdist"):
        from pytest_packbench.adapter.xdist import Controller

        config.pluginmanager.register(Controller(recorder), "packbench-controller")
