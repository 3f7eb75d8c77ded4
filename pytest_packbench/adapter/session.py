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
from pytest_packbench.adapter.execute import Reporter, place_of
from pytest_packbench.adapter.jsonreport import switch_on, write_report
from pytest_packbench.adapter.keys import AHEAD, ATTRIBUTE, BENCHES, RUN_ID
from pytest_packbench.adapter.live import guard_name
from pytest_packbench.adapter.progress import Progress
from pytest_packbench.adapter.settings import read_settings
from pytest_packbench.adapter.suites import open_benches
from pytest_packbench.adapter.terminal import Terminal
from pytest_packbench.engine.entries import Place, clock, unscored, versions
from pytest_packbench.engine.ledger import CAPS
from pytest_packbench.plugin import ASKED
from pytest_packbench.records.entry import Entry
from pytest_packbench.records.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path
    from typing import Any

    from pytest_packbench.adapter.ahead import Ahead
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
        entries: what ran, by node id, each trial; the last run of an item counts.
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
    entries: dict[str, tuple[Entry, ...]] = field(default_factory=dict)
    journal: Journal | None = None
    run: Run | None = None
    statistics: Statistics | None = None
    gates: tuple[GateResult, ...] = ()
    baseline: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def all_entries(self) -> list[Entry]:
        """Give the entries in the order in which every file shows them."""
        from pytest_packbench.reports.folder import in_order

        return in_order(entry for trials in self.entries.values() for entry in trials)

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
        self._spent: list[dict[str, Any]] = []
        self._kept: set[tuple[str, int, str]] = set()
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
            self._take([Entry.from_json(one) for one in json.loads(data)])
            return
        nodeid = _plain(report.nodeid)
        run = self._runs_by_nodeid.get(nodeid)
        if run is None or nodeid in run.entries or report.passed:
            return
        kind = "worker_crashed" if report.when not in {"setup", "call", "teardown"} else "setup_broken"
        verdict = "not_run" if report.skipped else "error"
        message = "the worker died while it ran this case" if kind == "worker_crashed" else _first_line(report)
        entry = unscored(
            run.selected[nodeid](),
            verdict,
            "skipped_elsewhere" if report.skipped else kind,
            message,
            timestamp=clock(time.time_ns()),
        )
        self._take([entry])

    def keep(self, entry: Entry) -> None:
        """Append an entry to the journal before pytest reports its item: what was paid for is not lost."""
        self._kept.add(_identity(entry))
        self._append(self.runs[entry.suite], entry)

    def _take(self, trials: list[Entry]) -> None:
        run = self.runs[trials[0].suite]
        run.entries[trials[0].nodeid] = tuple(trials)
        for entry in trials:
            identity = _identity(entry)
            if identity in self._kept:
                self._kept.discard(identity)
            else:
                self._append(run, entry)

    def _append(self, run: SuiteRun, entry: Entry) -> None:
        from pytest_packbench.records.journal import Journal
        from pytest_packbench.reports.files import ensure_gitignore

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
        ahead = self.config.stash.get(AHEAD, None)
        if ahead is not None:
            ahead.close()
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
        from pytest_packbench.reports.gates import of_a_part
        from pytest_packbench.reports.statistics import statistics

        if not run.selected:
            self._note_empty(run)
            return
        stopped = "interrupted" if session.exitstatus == pytest.ExitCode.INTERRUPTED else "stopped"
        now = time.time_ns()
        for nodeid, place in run.selected.items():
            if nodeid not in run.entries:
                message = f"not run: the session was {stopped}{'' if stopped == 'interrupted' else ' early'}"
                run.entries[nodeid] = (unscored(place(), "not_run", stopped, message, timestamp=clock(now)),)
        entries = run.all_entries()
        run.run = self._run(run, entries, now)
        levels, rules = self.benches.pack_of(run.suite).depths or None, run.suite.config
        run.statistics = statistics(entries, levels=levels, trials_rule=rules.trials_rule())
        earlier = Earlier.find(self.benches.settings.baseline, run.folder.parent)
        run.gates = earlier.check(run.run, entries, rules.all_gates())
        if len(run.selected) < _present(run.suite):
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
            **self._asked(run.suite),
            started_at=clock(self.started_ns),
            finished_at=clock(now),
            partial=_partial(run, entries),
            versions=versions(),
            settings=self._settings(run.suite),
        )

    def _asked(self, suite: Suite) -> dict[str, str]:
        bench = self.benches.known(suite)
        return {"backend": bench.backend, "model": bench.model} if bench is not None and bench.backend else {}

    def _settings(self, suite: Suite) -> dict[str, Any]:
        settings, bench = self.benches.settings, self.benches.known(suite)
        found: dict[str, Any] = {"gate": settings.gate}
        if settings.trials > 1:
            found |= {"trials": settings.trials, "trials_rule": suite.config.trials_rule()}
        if bench is not None and bench.live is not None:
            caps = settings.caps
            named = {"max_tokens": caps.tokens, "max_cost": caps.cost, "max_seconds": caps.seconds}
            found |= {"temperature": settings.temperature, "concurrency": settings.concurrency}
            found |= {name: cap for name, cap in named.items() if cap is not None}
            found["spent"] = self.spent()
        if bench is not None and bench.guards:
            found["guards"] = [guard_name(guard) for guard in bench.guards]
        return found

    def note_spent(self, spent: dict[str, Any]) -> None:
        """Note what a worker used."""
        self._spent.append(spent)

    def spent(self) -> dict[str, Any]:
        """Give what the session used: calls, tokens, and cost where every price is known."""
        found = [*self._spent, self.benches.answerers.ledger.as_json()]
        costs = [one["cost"] for one in found]
        return {
            "calls": sum(one["calls"] for one in found),
            "tokens": sum(one["tokens"] for one in found),
            "uncounted": sum(one["uncounted"] for one in found),
            "cost": None if any(cost is None for cost in costs) else sum(costs),
            "currency": found[0]["currency"],
        }

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

        if run.run is None or run.statistics is None or run.trouble:
            return
        entries = run.all_entries()
        document = run_document(run.run, entries, run.statistics, run.gates)
        try:
            write_report(run.folder / "report.json", self.config, session, set(run.selected), document)
            if not run.run.partial and not run.trouble:
                write_atomic(run.folder.parent / "latest", self.run_id + "\n")
            (run.folder / "journal.jsonl").unlink(missing_ok=True)
        except OSError as error:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
            self.config.get_terminal_writer().line(f"packbench: {run.folder / 'report.json'}: {error}", red=True)


def _identity(entry: Entry) -> tuple[str, int, str]:
    return entry.nodeid, entry.trial, entry.timestamp


def _target_of(entries: Iterable[Entry]) -> str:
    records = (entry.record for entry in entries if entry.record is not None)
    return next((record["packbench"]["target"] for record in records), "")


def _partial(run: SuiteRun, entries: list[Entry]) -> str:
    idle = [entry for entry in entries if entry.verdict == "not_run" and not entry.quarantined]
    kinds = {entry.kind for entry in idle}
    count = f"{len({entry.nodeid for entry in idle})} of {len(run.selected)} cases did not run"
    if "interrupted" in kinds:
        return f"interrupted: {count}"
    capped = next((entry.message for entry in idle if entry.kind in CAPS), "")
    if capped:
        return f"{capped}: {count}"
    if idle:
        return f"stopped early: {count}"
    present = _present(run.suite)
    return f"{len(run.selected)} of {present} cases selected" if len(run.selected) < present else ""


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
    ahead = _work_ahead(config, benches)
    worker_input = getattr(config, "workerinput", None)
    if worker_input is not None:
        from pytest_packbench.adapter.xdist import Worker

        config.stash[RUN_ID] = worker_input["packbench_run_id"]
        config.pluginmanager.register(Worker(collector, benches, ahead), "packbench-worker")
        return
    from ulid import ULID

    config.stash[RUN_ID] = str(ULID())
    recorder = Recorder(config, benches, collector)
    switch_on(config)
    config.pluginmanager.register(recorder, "packbench-recorder")
    config.pluginmanager.register(Terminal(recorder), "packbench-terminal")
    if ahead is not None:
        ahead.keep = recorder.keep
        progress = Progress(config, ahead)
        ahead.tick, ahead.clear = progress.tick, progress.clear
    if config.pluginmanager.hasplugin("dsession") or config.pluginmanager.hasplugin("xdist"):
        from pytest_packbench.adapter.xdist import Controller

        config.pluginmanager.register(Controller(recorder), "packbench-controller")


def _work_ahead(config: pytest.Config, benches: Benches) -> Ahead | None:
    controls = getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")
    if not benches.settings.ahead or controls or config.option.collectonly:
        return None
    from pytest_packbench.adapter.ahead import Ahead

    config.stash[AHEAD] = ahead = Ahead(config, benches)
    config.pluginmanager.register(ahead, "packbench-ahead")
    return ahead
