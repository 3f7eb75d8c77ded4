"""The recorder: entries come in on reports, go to the journals at once, and become files and an exit code at the end.

Only the process that the user started keeps one; a worker of xdist runs cases and reports them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cases.suites import case_counts
from pytest_packbench.engine.contexts import guard_name
from pytest_packbench.engine.metering import CAPS
from pytest_packbench.engine.result_builder import CaseRef, carried_over_trial, unscored_result, versions
from pytest_packbench.model.result import format_timestamp
from pytest_packbench.model.run import CLUSTER_SETTING, Run
from pytest_packbench.plugin import ASKED
from pytest_packbench.pytest_plugin.case_run import run_of
from pytest_packbench.pytest_plugin.jsonreport import plugin_report
from pytest_packbench.pytest_plugin.resume import check_resumed
from pytest_packbench.pytest_plugin.stash import AHEAD, ATTRIBUTE, RESUMED, RUN_ID, ungrouped
from pytest_packbench.runs.folder import DIFF, REPORT, SUMMARY
from pytest_packbench.runs.journal import read_worker_journals
from pytest_packbench.runs.metadata import SPENT, join_sorted, partial_reason, sum_process_spending, target_names
from pytest_packbench.runs.resume import fill_missing_trials, prior_spending
from pytest_packbench.runs.stored import NO_BASELINE, find_baseline
from pytest_packbench.runs.writer import RunResults, RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import Any

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.collection import Collector
    from pytest_packbench.pytest_plugin.suites import SessionSuites
    from pytest_packbench.runs.stored import BaselineLookup


@dataclass(slots=True, kw_only=True)
class SuiteRun:
    """One suite's share of the session, while it runs and after.

    Attributes:
        suite: the suite.
        results: what ran so far, in the run's journal; what went wrong with the suite as a whole.
        selected: what has to run, by node id; the place is looked at only for a case that left no entry.
        targets: how records name the tests that run its cases; empty where items from files do.
        ordered: all that ran, in the order in which every file shows them, at the end.
        present: how many cases the suite has, at the end.
        due: how many of them the whole suite, or the shard, has to run.
        conclusion: what the run came to, at the end.
        baseline: what the comparison with an earlier run said, a line each.
    """

    suite: Suite
    results: RunResults
    selected: dict[str, Callable[[], CaseRef]] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    ordered: Sequence[CaseResult] = ()
    present: int = 0
    due: int = 0
    conclusion: Conclusion | None = None
    baseline: list[str] = field(default_factory=list)

    @property
    def trouble(self) -> list[str]:
        """What went wrong with the suite as a whole, a line each."""
        return self.results.problems

    @property
    def failed(self) -> bool:
        """Whether the suite as a whole fails the session."""
        gates = self.conclusion.gates if self.conclusion is not None else ()
        return bool(self.trouble) or any(not gate.passed for gate in gates)


class Recorder:
    """Collects the entries of all suites and writes what a run leaves (design 5)."""

    def __init__(self, config: pytest.Config, contexts: SessionSuites, collector: Collector) -> None:
        self.config = config
        self.contexts = contexts
        self.run_id = config.stash[RUN_ID]
        self.started_ns = time.time_ns()
        self._collector = collector
        self._runs_by_nodeid: dict[str, SuiteRun] = {}
        self._spent: list[dict[str, Any]] = []
        self.resumed = config.stash.get(RESUMED, None)
        self.base = self.resumed.base if self.resumed is not None else contexts.settings.output
        self.runs: dict[str, SuiteRun] = {}
        for suite in contexts.suites.values():
            self.add(suite)

    def add(self, suite: Suite) -> None:
        """Keep a run of a suite, if there is none yet."""
        if suite.name not in self.runs:
            kept = self.resumed.prior.get(suite.name) if self.resumed is not None else None
            writer = RunWriter(self.base, suite.name, self.run_id, prior=kept)
            self.runs[suite.name] = run = SuiteRun(suite=suite, results=RunResults(writer, lambda: self._head(run)))

    def select(self, suite_name: str, nodeid: str, place: Callable[[], CaseRef], target: str = "") -> None:
        """Note a case that has to run, once; with the name of the user's own test where one runs it."""
        run = self.runs[suite_name]
        run.selected.setdefault(nodeid, place)
        run.targets.update([target] if target else [])
        self._runs_by_nodeid[nodeid] = run

    def note_collected(self, found: dict[str, int]) -> None:
        """Note how many cases a worker found before any was deselected."""
        for name, count in found.items():
            self._collector.collected[name] = max(self._collector.collected.get(name, 0), count)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what was selected; under xdist the workers tell."""
        for item in session.items:
            run = run_of(item)
            if run is not None:
                self.select(run.suite.name, run.nodeid, run.place, run.target)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the entry from a report; a report of a case without one tells of a breakdown around it."""
        # off it: other plugins may write reports as JSON, and these are no values of that
        entries = report.__dict__.pop(ATTRIBUTE, None)
        if entries:
            self.runs[entries[0].suite].results.add_case(entries)
            return
        if report.passed:
            return
        nodeid = ungrouped(report.nodeid, self._runs_by_nodeid)
        run = self._runs_by_nodeid.get(nodeid)
        if run is None or nodeid in run.results.by_nodeid:
            return
        died = report.when not in {"setup", "call", "teardown"}
        kind = "skipped_elsewhere" if report.skipped else "worker_crashed" if died else "setup_broken"
        message = "the worker died while it ran this case" if died else _first_line(report)
        place = run.selected[nodeid]()
        entry = unscored_result(place, "not_run" if report.skipped else "error", kind, message)
        if died:
            known = self._known(run, place, read_worker_journals(run.results.writer.folder))
            run.results.add_case(fill_missing_trials(known, entry, self.contexts.settings.trials, once=True))
        else:
            run.results.add_case((entry,))

    def _known(
        self, run: SuiteRun, place: CaseRef, made: Mapping[str, Mapping[int, CaseResult]]
    ) -> dict[int, CaseResult]:
        """Give the attempts at a case that were made, by trial: before, by workers (`made`), and in this process."""
        before = self.resumed.trials(run.suite, place.case_id) if self.resumed is not None else {}
        # of another case than today's nothing is kept
        sha256 = place.loaded.sha256 if place.loaded is not None else None
        kept = {
            trial: carried_over_trial(one, place).result for trial, one in before.items() if one.case_sha256 == sha256
        }
        return {**kept, **made.get(place.nodeid, {}), **run.results.unreported(place.nodeid)}

    def keep(self, entry: CaseResult) -> None:
        """Append an entry to the journal before pytest reports its item: what was paid for is not lost."""
        self.runs[entry.suite].results.add_attempt(entry)

    def check_resumed(self) -> None:
        """See that what is resumed is the same run, and know what of it is in the journal already.

        Raises:
            pytest.UsageError: it is not; one line names what changed.
        """
        if self.resumed is None:
            return
        # what was paid stays paid, whatever of it is dropped
        spent = prior_spending(self.resumed)
        for run in self.runs.values():
            check_resumed(self.config, self.resumed, self._head(run))
        for run in self.runs.values():
            run.results.mark_journaled()
        self._spent += [spent] if spent is not None else []

    def begin_journals(self) -> None:
        """Begin the journals of what was selected, before workers put theirs beside them."""
        for run in self.runs.values():
            if run.selected:
                run.results.open_journal()

    def _head(self, run: SuiteRun) -> Run:
        return replace(self._facts(run, [], self.started_ns), finished_at="", partial="")

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
        concluded = all(run.conclusion for run in self.runs.values())
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and concluded:
            session.exitstatus = pytest.ExitCode.OK
        if session.exitstatus == pytest.ExitCode.OK and any(run.failed for run in self.runs.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        result = yield
        for run in self.runs.values():
            self._write_report(run, session)
        self.contexts.close()
        return result

    def _finish(self, run: SuiteRun, session: pytest.Session) -> None:
        from pytest_packbench.analysis.conclusion import conclude

        settings = self.contexts.settings
        run.present, run.due = case_counts(run.suite, settings.shard)
        if not run.selected and not self._is_empty_shard(run, session):
            self._note_empty(run)
            return
        self._take_unreported(run, interrupted=session.exitstatus == pytest.ExitCode.INTERRUPTED)
        run.selected |= {nodeid: partial(_never_asked, nodeid) for nodeid in run.results.carry_over()}
        run.ordered = run.results.ordered()
        writer = run.results.writer
        earlier = find_baseline(settings.baseline, writer.folder)
        run.conclusion = conclude(
            replace(self._facts(run, run.ordered, time.time_ns()), findings=self._findings(run)),
            run.ordered,
            run.suite.config,
            self.contexts.pack_of(run.suite),
            earlier,
            scope="shard" if settings.shard is not None else "part" if len(run.selected) < run.present else "whole",
            compared=True,
        )
        writer.close_journal()
        run.results.guard(partial(self._write, run, run.conclusion, earlier))

    def _write(self, run: SuiteRun, conclusion: Conclusion, earlier: BaselineLookup) -> None:
        from pytest_packbench.reports.markdown import summary_markdown

        writer = run.results.writer
        writer.write_results(run.ordered)
        writer.write_page(SUMMARY, summary_markdown(conclusion))
        run.baseline = self._compared(writer, conclusion, earlier)

    def _compared(self, writer: RunWriter, conclusion: Conclusion, earlier: BaselineLookup) -> list[str]:
        """Write what changed since the baseline into the run's folder; give what the terminal says of it, by line."""
        if self.contexts.settings.shard is not None:
            asked = self.contexts.settings.baseline != NO_BASELINE
            return ["not compared: this is a part; packbench compare takes the merged run"] if asked else []
        comparison = conclusion.comparison
        if comparison is None:
            return [earlier.reason] if earlier.reason else []
        from pytest_packbench.reports.diff import answer, diff_markdown, sentences

        name = comparison.baseline.run_id
        if comparison.differences:
            return [f"not compared with {name}: {'; '.join(comparison.differences)}"]
        writer.write_page(DIFF, diff_markdown(comparison))
        return [f"{answer(comparison)} since {name} ({DIFF})", *sentences(comparison)[:1]]

    def _take_unreported(self, run: SuiteRun, *, interrupted: bool) -> None:
        """Complete the entries of a session that ended early: what was made is kept, the rest was not run."""
        idle = [nodeid for nodeid in run.selected if nodeid not in run.results.by_nodeid]
        made = read_worker_journals(run.results.writer.folder) if idle else {}
        kind, how = ("interrupted", "interrupted") if interrupted else ("stopped", "stopped early")
        for nodeid in idle:
            place = run.selected[nodeid]()
            unreached = unscored_result(place, "not_run", kind, f"not run: the session was {how}")
            known = self._known(run, place, made)
            run.results.by_nodeid[nodeid] = fill_missing_trials(known, unreached, self.contexts.settings.trials)

    def _findings(self, run: SuiteRun) -> tuple[str, ...]:
        records = (entry.record for entry in run.ordered if entry.record is not None)
        try:
            return tuple(self.contexts.pack_of(run.suite).summary(records))
        except Exception as error:  # noqa: BLE001 - a pack may be anybody's
            run.trouble.append(f"the pack {run.suite.config.pack} raised in summary: {type(error).__name__}: {error}")
            return ()

    def _is_empty_shard(self, run: SuiteRun, session: pytest.Session) -> bool:
        """Whether the suite has cases and this shard none of them: then it is complete, and merging wants to see it."""
        codes = pytest.ExitCode
        ended = session.exitstatus in {codes.OK, codes.TESTS_FAILED, codes.NO_TESTS_COLLECTED}
        return self.contexts.settings.shard is not None and ended and run.present > 0 and run.due == 0

    def _note_empty(self, run: SuiteRun) -> None:
        named = run.suite.name in self.config.stash[ASKED].named
        if named and not self._collector.collected[run.suite.name]:
            run.trouble.append(f'suite "{run.suite.name}" has no case under {run.suite.cases_path}')

    def note_spent(self, spent: dict[str, Any]) -> None:
        """Note what a worker used."""
        self._spent.append(spent)

    def _write_report(self, run: SuiteRun, session: pytest.Session) -> None:
        from pytest_packbench.reports.document import run_document

        told = run.conclusion
        if told is None or run.trouble:
            return
        try:
            run.results.writer.complete(run_document(told), plugin_report(self.config, session, run.selected))
        except OSError as error:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
            path = run.results.writer.folder / REPORT
            self.config.get_terminal_writer().line(f"packbench: {path}: {error}", red=True)

    def _facts(self, run: SuiteRun, entries: Sequence[CaseResult], now: int) -> Run:
        """Give what is true of a suite's run with these entries, at this time (UTC, nanoseconds since 1970)."""
        contexts, suite = self.contexts, run.suite
        pack, context = contexts.pack_of(suite), contexts.opened(suite)
        backend, model = (context.backend, context.model) if context is not None and context.backend else (None, None)
        kept = run.results.writer.prior
        began = kept.run.started_at if kept is not None and kept.run is not None else ""
        return Run(
            run_id=self.run_id,
            suite=suite.name,
            description=suite.config.description,
            pack=pack.name,
            pack_version=pack.version,
            suite_sha256=suite.sha256,
            bundled=suite.bundled,
            mode=contexts.settings.mode,
            target=target_names(entries) or join_sorted(run.targets) or contexts.target_name(suite),
            backend=backend,
            model=model,
            started_at=began or format_timestamp(self.started_ns),
            finished_at=format_timestamp(now),
            partial=partial_reason(
                entries,
                CAPS,
                selected=len(run.selected),
                due=run.due,
                present=run.present,
                shard=contexts.settings.shard,
            ),
            versions=versions(),
            settings=self._settings(suite),
        )

    def _settings(self, suite: Suite) -> dict[str, Any]:
        """Give the options that could change a result, and what the run used."""
        contexts = self.contexts
        settings, context = contexts.settings, contexts.opened(suite)
        found: dict[str, Any] = {"gate": settings.gate}
        if cluster := contexts.pack_of(suite).cluster:
            found[CLUSTER_SETTING] = cluster
        if settings.shard is not None:
            found["shard"] = str(settings.shard)
        if settings.trials > 1:
            found |= {"trials": settings.trials, "trials_rule": suite.config.trials_rule()}
        if context is not None and context.live is not None:
            caps = settings.caps
            named = {"max_tokens": caps.tokens, "max_cost": caps.cost, "max_seconds": caps.seconds}
            asked = context.live.primary
            temperature = settings.temperature if asked is None else asked.backend.temperature
            found |= {"temperature": temperature, "concurrency": settings.concurrency}
            found |= {name: cap for name, cap in named.items() if cap is not None}
            found[SPENT] = sum_process_spending([*self._spent, contexts.clients.ledger.as_json()])
        if context is not None and context.guards:
            found["guards"] = [guard_name(guard) for guard in context.guards]
        return found


def _never_asked(nodeid: str) -> CaseRef:
    raise RuntimeError(f"{nodeid} has a result: nobody asks where it stands")


def _first_line(report: pytest.TestReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return (text.strip() or "no report").splitlines()[0]
