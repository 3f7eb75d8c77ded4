"""The recorder: takes results from reports, journals them, and writes the files and the exit code at the end.

Only the controller, or the only process, has one; a worker of xdist runs cases and reports them. A resumed run is
found and checked here too.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.finder import (
    CaseIndex,
    Project,
    case_counts,
    find_controls,
    find_recording,
    suite_locations,
)
from pytest_packbench.cases.load import case_file_sha256, is_same_control, load_recording
from pytest_packbench.engine.offline import take_late
from pytest_packbench.engine.recordings import discard_recording, guard_name, recording_problem
from pytest_packbench.engine.trial_results import CaseRef, build_trial, carried_over_trial, unscored_result, versions
from pytest_packbench.model.errors import CassetteError, StoredRunError, describe_error, describe_raised, pluralize
from pytest_packbench.model.pack import panels_of
from pytest_packbench.model.report import PolicyChange, PolicyError, PolicyOutcome
from pytest_packbench.model.result import (
    FIXTURE,
    Attempt,
    EndedAttempt,
    Result,
    format_timestamp,
    models_of,
    timestamp_now,
)
from pytest_packbench.model.run import (
    CAPS,
    CLUSTER_SETTING,
    CONTROL_OWNER,
    PROGRAM_RUNS,
    RECORD_PROMPTS,
    RUN_LIMITS,
    SPENT,
    Run,
    join_sorted,
    partial_reason,
    sum_spending,
    target_names,
)
from pytest_packbench.plugin import CONTROLLER, JOURNALED_ATTRIBUTE, RESULTS_ATTRIBUTE, SELECTION, rootdir_of, ungrouped
from pytest_packbench.policy import PolicyBase, compare_policy, open_base, policy_of
from pytest_packbench.pytest_plugin.case_run import CaseRun, item_run, run_of, uncollected_case_ref
from pytest_packbench.pytest_plugin.explain import rerun_options
from pytest_packbench.pytest_plugin.json_report import document_of
from pytest_packbench.pytest_plugin.settings import SessionSuites, project_of
from pytest_packbench.runs.folder import CONTROLS, JOURNAL, NO_BASELINE, REPORT
from pytest_packbench.runs.journal import Entry, read_worker_journals
from pytest_packbench.runs.writing import RunResults, RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.recording import ControlResult, ControlTally, Outcome
    from pytest_packbench.model.report import BaselineLookup
    from pytest_packbench.model.suite import Panel, Suite
    from pytest_packbench.runs.resuming import ResumedRun, ResumeError


OPTION = "--packbench-resume"


def resume(contexts: SessionSuites, *, collecting: bool) -> None:
    """Find and read the run to resume, which no other session resumes until the end of this one.

    Args:
        contexts: the suites of the session, which gets the run.
        collecting: whether collection has started, so that cases come from marked tests only.

    Raises:
        pytest.UsageError: the run does not exist, or it can't be read.
    """
    if collecting:
        raise pytest.UsageError(f"{OPTION}: tests marked with packbench_cases can't be resumed; run them without it")
    from pytest_packbench.runs.resuming import ResumeError, find_resumed

    config, settings = contexts.config, contexts.settings
    # a worker of xdist must not look for the latest run itself
    from_controller = getattr(config, "workerinput", {}).get(OPTION, "")
    try:
        resumed = find_resumed(
            from_controller or settings.resume,
            settings.output,
            contexts.suites,
            relative_to=settings.home,
            rerun_changed=settings.resume_changed,
            recording_sha256=_recording_sha256 if settings.mode == FIXTURE else None,
            is_worker=bool(from_controller),
        )
    except ResumeError as error:
        raise _usage_error(error) from None
    config.add_cleanup(resumed.release)
    contexts.run_id, contexts.resumed = resumed.run_id, resumed


def check_resumed(resumed: ResumedRun, suite: Suite, now: Run) -> None:
    """Check that a suite's run is still the one that was started.

    Raises:
        pytest.UsageError: something changed, and changed cases are not to be run again.
    """
    from pytest_packbench.runs.resuming import MISSING_CASE, ResumeError, check_unchanged

    index = CaseIndex(suite_locations(suite) if suite.name in resumed.prior else ())

    def case_sha256(case_id: str) -> str | None:
        location = index.find(case_id)
        return MISSING_CASE if location is None else case_file_sha256(location)

    try:
        check_unchanged(resumed, now, case_sha256)
    except ResumeError as error:
        raise _usage_error(error) from None


def _usage_error(error: ResumeError) -> pytest.UsageError:
    return pytest.UsageError(f"{OPTION}: {error}")


def _recording_sha256(suite: Suite, case_id: str) -> str | None:
    try:
        return load_recording(find_recording(suite, case_id))[1]
    except (OSError, CassetteError):
        return None


# shorter waits are not worth a line
_WAIT_SHOWN_MS = 100
_BASE_URLS = "OPENAI_BASE_URL, ANTHROPIC_BASE_URL, OLLAMA_HOST or GOOGLE_GEMINI_BASE_URL"


class SuiteRun(RunResults):
    """The run of one suite in the session: its results so far, with their journal, and what they came to at the end.

    Attributes:
        contexts: the session's suites.
        suite: the suite.
        pack: its pack.
        selected: the selected cases by node id; the function is called only for a case without a result.
        crashed: the node ids of those at which a worker of xdist has ended.
        targets: the names of the marked tests that run its cases; empty for items of case files.
        results: all results in the order of the files, at the end.
        has_recorded_nothing: whether a run that records kept the recording of no case.
        case_count: the number of cases of the suite, at the end.
        due_count: the number of them that the suite, or the shard, has to run.
        rerun: the options of pytest that make the same run, quoted for a shell, at the end.
        conclusion: gates and figures of the run, at the end.
        control_results: what the selected controls came to so far, by node id; at first, not run.
        controls: what they came to, at the end; None if there are none, or none is replayed in this mode.
        control_note: why none was replayed, in a line; empty if that is not so.
        checked: how many recordings of a run that records replay, or why that is not known; empty for another run.
        differing: which do not, and why; a line each.
        notes: what else is to be known about the recordings of a run, such as which calls are shared; a sentence each.
    """

    def __init__(self, contexts: SessionSuites, suite: Suite) -> None:
        prior = contexts.resumed.prior.get(suite.name) if contexts.resumed is not None else None
        super().__init__(RunWriter(contexts.output, suite.name, contexts.run_id, prior=prior), self.head)
        self.contexts = contexts
        self.suite = suite
        self.pack = contexts.pack_of(suite)
        self._redact: Callable[[str], str] = contexts.redactor.json
        self.selected: dict[str, Callable[[], CaseRef]] = {}
        self.crashed: set[str] = set()
        self.targets: set[str] = set()
        self.results: Sequence[Result] = ()
        self.has_recorded_nothing = False
        self.case_count = self.due_count = 0
        self.rerun = ""
        self.conclusion: Conclusion | None = None
        self.control_results: dict[str, ControlResult] = {}
        self.controls: ControlTally | None = None
        self.control_note = ""
        self.checked = ""
        self.differing: list[str] = []
        self.notes: list[str] = []

    @property
    def failed(self) -> bool:
        """Whether the suite as a whole fails the session."""
        concluded = self.conclusion is not None and self.conclusion.failed
        unsound = (self.controls and self.controls.wrong) or self.has_recorded_nothing or self.differing
        return bool(self.problems or concluded or unsound)

    def head(self) -> Run:
        """Return what is known of the run when it starts."""
        return replace(self._metadata(), finished_at="", partial="")

    def complete(self, *, interrupted: bool) -> None:
        """Complete the cases that have no result of their own: with their known trials, and why the others are not."""
        idle = [nodeid for nodeid in self.selected if nodeid not in self.by_nodeid]
        if not idle:
            return
        from pytest_packbench.runs.resuming import fill_missing_trials

        controller: Any = self.contexts.config.pluginmanager.get_plugin(CONTROLLER)
        if controller is not None:
            controller.end_workers()
        journaled = read_worker_journals(self.writer.folder)
        kind, how = ("interrupted", "interrupted") if interrupted else ("stopped", "stopped early")
        resumed = self.contexts.resumed
        for nodeid in idle:
            case_ref, entries = self.selected[nodeid](), journaled.get(nodeid, {})
            if nodeid in self.crashed:
                message = "the worker crashed while running this case"
                missing = unscored_result(case_ref, "error", "worker_crashed", message)
                # scoring an answer may be what crashed the worker
                entries = {trial: entry for trial, entry in entries.items() if isinstance(entry, Result)}
            else:
                missing = unscored_result(case_ref, "not_run", kind, f"not run: the session was {how}")
            case = case_ref.case
            earlier = {} if resumed is None else resumed.kept(self.suite, case.case_id, case.case_sha256)
            known: dict[int, Result] = {
                number: self._scored(case_ref, entry)
                for number, entry in {**earlier, **entries, **self.unreported(nodeid)}.items()
                # answers to a changed case are not used
                if entry.case.case_sha256 in {None, case.case_sha256}
            }
            self.by_nodeid[nodeid] = fill_missing_trials(known, missing, self.contexts.settings.trials)

    def _scored(self, case_ref: CaseRef, entry: Entry) -> Result:
        """Return the result of an entry, at the place of the case today; an ended attempt is scored."""
        if isinstance(entry, Result):
            return carried_over_trial(entry, case_ref).result
        from pytest_packbench.engine.attempt import settle_stored

        context = self.contexts.context(self.suite)
        attempt = settle_stored(context, case_ref.readable, entry)
        return build_trial(case_ref, attempt, context, self.contexts.run_id).result

    def _scored_unselected(self, ended: EndedAttempt) -> Result | None:
        """Return the result of an ended attempt at a case that is not selected; None if the case has changed."""
        file, _, name = ended.case.nodeid.rpartition("::")
        case_ref = uncollected_case_ref(self.contexts, self.suite, ended.case.nodeid, file=file, name=name)
        is_same = case_ref.case.case_sha256 == ended.case.case_sha256
        return self._scored(case_ref, ended) if is_same else None

    def count_controls(self) -> None:
        """Count the controls of the suite; those that pytest did not report were not run."""
        settings, prior = self.contexts.settings, self.writer.prior
        present = {found.name: found for found in find_controls(self.suite.controls_path)}
        due = sum(settings.shard is None or name in settings.shard for name in present)
        if not due or not (self.selected or self.control_results or prior is not None):
            return
        if settings.mode != FIXTURE:
            self.control_note = f"{pluralize(due, 'control')}: fixture mode only"
            return
        from pytest_packbench.model.recording import tally_of
        from pytest_packbench.runs.folder import read_controls

        results = list(self.control_results.values())
        selected = {result.control for result in results}
        try:
            earlier = read_controls(self.writer.folder / CONTROLS, self.contexts.run_id) if prior is not None else []
            # of earlier sessions those that are not selected now, and are still the same
            carried = (result for result in earlier if result.control not in selected)
            results += [result for result in carried if is_same_control(result, present.get(result.control))]
        except (OSError, StoredRunError) as error:
            self.problems.append(f"the controls of the resumed run can't be read: {error}")
        self.controls = tally_of(results, due)

    def has_run(self, session: pytest.Session) -> bool:
        """Whether the suite was run; notes why it was not, where it was requested by name."""
        name, selection, codes = self.suite.name, self.contexts.config.stash[SELECTION], pytest.ExitCode
        has_collected = session.exitstatus in {codes.OK, codes.TESTS_FAILED, codes.NO_TESTS_COLLECTED}
        # the shard of a suite with cases may have none: then the run is complete, and merge needs it
        is_empty_shard = self.contexts.settings.shard is not None and self.case_count > 0 and self.due_count == 0
        if self.selected or (is_empty_shard and has_collected):
            return True
        # controls alone can be replayed: they are no run of the suite
        if not self.control_results:
            if name in selection.named and not self.contexts.collected[name]:
                self.problems.append(f'suite "{name}" has no case under {self.suite.cases_path}; add one')
            elif name in selection.required and has_collected:
                problem = f'suite "{name}" is requested by name, but none of its cases is selected'
                self.problems.append(f"{problem}; select at least one, or do not name the suite")
        return False

    def judge(self, project: Project) -> Conclusion:
        """Return what the run of this project came to, but for changes of its acceptance policy.

        From now on, all results are known.
        """
        contexts, pack = self.contexts, self.pack
        self.rerun = self._redact(rerun_options(contexts.opened(self.suite), is_marked=bool(self.targets)))
        from pytest_packbench.analysis.conclusion import conclude, with_figures
        from pytest_packbench.analysis.counting import MetricError

        self.carry_over(self._scored_unselected)
        self.results = self.ordered()
        metadata = replace(self._metadata(), findings=(*self._findings(),))
        is_part = len(self.by_nodeid) < self.case_count
        concluded = partial(
            conclude,
            metadata,
            self.results,
            levels=pack.metrics.depths,
            scope="shard" if contexts.settings.shard is not None else "part" if is_part else "whole",
        )
        try:
            conclusion = concluded(rules=self.suite.config, earlier=self._earlier(metadata))
        except MetricError as error:
            self.problems.append(contexts.redactor.text(str(error)))
            # the results are kept, without gates: they can't be judged
            conclusion = concluded(rules=None)
        with self._calling_pack("figures"):
            conclusion = with_figures(conclusion, pack, lambda: self.results, self._redact)
        policy = contexts.redactor.json(policy_of(self.suite, pack, project))
        return replace(conclusion, controls=self.controls, stored_policy=policy)

    def _earlier(self, metadata: Run) -> BaselineLookup | None:
        settings = self.contexts.settings
        if settings.baseline == NO_BASELINE:
            return None
        from pytest_packbench.model.report import BaselineLookup
        from pytest_packbench.runs.reading import find_baseline

        lookup = BaselineLookup(
            requested=settings.baseline, optional=settings.baseline_optional, fail_on=settings.fail_on
        )
        return find_baseline(
            lookup,
            metadata,
            folder=self.writer.folder,
            committed=self.suite.baseline_path,
            models=models_of(self.results),
        )

    def _findings(self) -> Iterator[str]:
        """Yield remarks on the run as a whole, and note whether it has recorded nothing."""
        prior, context = self.writer.prior, self.contexts.opened(self.suite)
        if prior is not None and prior.replaced:
            # the first answers may have been worse
            answers = pluralize(prior.replaced, "answer")
            yield f"{answers} of an earlier session of this run: replaced, because a case or the suite has changed."
        judged = [result for result in self.results if result.score.counted]
        missing = sum(result.attempt.cassette_sha256 is None for result in judged)
        if self.contexts.settings.mode == "record" and context.is_recorded and missing:
            # the target made no call that the run could see
            self.has_recorded_nothing = missing == len(judged)
            cases = "" if self.has_recorded_nothing else f" for {pluralize(missing, 'case')}"
            own = f"have its client read {_BASE_URLS}, " if context.serves_gateway else ""
            advice = f"call models through context.llm, {own}or mark the target with without_model if it calls none"
            yield f"Nothing was recorded{cases}: the target called no model through packbench; {advice}."
        waits = [result.attempt.waited_ms for result in self.results if result.attempt.waited_ms]
        if (total := sum(waits)) >= _WAIT_SHOWN_MS:
            from pytest_packbench.analysis.statistics import format_duration

            cases, waited = pluralize(len(waits), "case"), format_duration(total)
            yield (
                f"Replayed calls of {cases} were left open for {waited} until their clients ended them, as when they "
                "were recorded; give these clients a shorter limit in tests."
            )
        yield from map(self._redact, [*self.notes, *self.differing])
        remarks: list[str] = []
        with self._calling_pack("remarks"):
            ids = [result.case.test_id for result in self.results]
            remarks = list(map(self._redact, self.pack.metrics.remarks(self.suite.config, ids)))
        yield from remarks

    @contextmanager
    def _calling_pack(self, method: str) -> Iterator[None]:
        """Call code of the suite's pack; that it raises is a problem of the run."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - packs are the user's code
            problem = f"the pack {self.suite.config.pack} raised in {method}: {describe_raised(error)}"
            self.problems.append(self.contexts.redactor.text(problem))

    def write(self, conclusion: Conclusion) -> None:
        """Write the files of the run but for its report.

        Raises:
            OSError: a file can't be written.
        """
        from pytest_packbench.cases.texts import shown_texts
        from pytest_packbench.reports.page import page_of_run, write_pages
        from pytest_packbench.reports.page.case_data import CaseSources, root_link
        from pytest_packbench.reports.story import Place
        from pytest_packbench.runs.reading import earlier_runs

        self.writer.write_results(self.results)
        pack, root, config = self.pack, rootdir_of(self.contexts.config), self.suite.config
        place = Place(root_link(root, self.writer.folder), self.rerun)
        texts = shown_texts(self.suite, pack, root, conclusion.run, is_checked=False)
        sources = CaseSources(*texts, redact=self._redact, place=place, can_accept=config.accepts_more)
        panels: tuple[Panel, ...] = ()
        with self._calling_pack("panels"):
            of_labels = conclusion.labels.panels(pack.metrics.label)
            panels = (*of_labels, *panels_of(pack, self.results, conclusion.figures))
        stored = conclusion.baseline and conclusion.baseline.stored
        earlier = earlier_runs(self.writer.folder.parent, conclusion.run, stored)
        page = page_of_run(conclusion, lambda: self.results, sources, earlier=earlier, panels=panels)
        self.writer.write_controls(conclusion.controls)
        write_pages(self.writer.write_page, page, place, self._redact)

    def resumable(self) -> str:
        """Say what to do about a run whose files can't be written; its journal has what could be."""
        if not (self.writer.folder / JOURNAL).exists():
            return "correct that and run again: nothing of this run was kept"
        return f"what was stored is kept: correct that, then resume with --packbench-resume={self.contexts.run_id}"

    def write_report(self, session: pytest.Session) -> None:
        """Write the report, which ends the run, unless there is a problem; one with the report fails the session."""
        if self.conclusion is None or self.problems:
            return
        config = self.contexts.config
        try:
            from pytest_packbench.analysis.conclusion import run_document

            document = run_document(self.conclusion, self.rerun)
            self.writer.complete(document, document_of(config, session, self.by_nodeid))
        except (OSError, MemoryError, RecursionError) as error:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
            path = self.writer.folder / REPORT
            problem = f"packbench: {path}: {describe_error(error)}; {self.resumable()}"
            config.get_terminal_writer().line(problem, red=True)

    def _metadata(self) -> Run:
        """Return the metadata of a suite's run with its results so far."""
        contexts, suite = self.contexts, self.suite
        pack, resumed = self.pack, self.writer.prior
        target = target_names(self.results) or join_sorted(self.targets) or contexts.target_name(suite)
        # after the name of the target, which may open it
        context = contexts.opened(suite)
        started_at = resumed.run.started_at if resumed is not None and resumed.run is not None else ""
        return Run(
            run_id=self.contexts.run_id,
            suite=suite.name,
            description=suite.config.description,
            pack=pack.name,
            pack_version=pack.version,
            suite_sha256=suite.sha256,
            bundled=suite.bundled,
            mode=contexts.settings.mode,
            target=target,
            backend=context.backend or None,
            model=context.model if context.backend else None,
            started_at=started_at or format_timestamp(self.contexts.started_ns),
            finished_at=timestamp_now(),
            partial=partial_reason(
                self.results,
                RUN_LIMITS,
                selected=len(self.by_nodeid),
                due=self.due_count,
                present=self.case_count,
                shard=contexts.settings.shard,
            ),
            versions=versions(),
            settings=self._settings(context),
        )

    def _settings(self, context: SuiteContext) -> dict[str, Any]:
        """Return the options that can change a result, and what the run spent."""
        settings = self.contexts.settings
        values: dict[str, Any] = {"gate": settings.gate}
        if cluster := context.pack.metrics.cluster:
            values[CLUSTER_SETTING] = cluster
        if settings.shard is not None:
            values["shard"] = str(settings.shard)
        if settings.trials > 1:
            values |= {"trials": settings.trials, "trials_rule": context.suite.config.trials_rule()}
        if context.live is not None:
            client = context.live.primary
            temperature = settings.temperature if client is None else client.backend.temperature
            values |= {"temperature": temperature, "concurrency": settings.concurrency}
            values |= {name: cap for name, cap in zip(CAPS, settings.caps, strict=True) if cap is not None}
            values[SPENT] = sum_spending([*self.contexts.spent, self.contexts.clients.ledger.as_json()])
        if context.runs_program:
            values[PROGRAM_RUNS] = True
        if not settings.record_prompts:
            values[RECORD_PROMPTS] = False
        if context.guards:
            values["guards"] = [guard_name(guard) for guard in context.guards]
        return values


class Recorder:
    """Collects the results of all suites and writes the files of the run."""

    def __init__(self, contexts: SessionSuites) -> None:
        self.config = config = contexts.config
        self.contexts = contexts
        self._runs_by_nodeid: dict[str, SuiteRun] = {}
        self._late: dict[str, list[tuple[str, str]]] = {}
        self._has_spoiled = False
        settings = contexts.settings
        self.project = project_of(config)
        self.policy_base: PolicyBase | None = None
        if settings.policy_from and not config.option.collectonly:
            try:
                self.policy_base = open_base(settings.policy_from, self.project, settings.output)
            except PolicyError as error:
                raise pytest.UsageError(f"--packbench-policy-from: {error}") from None
        self.runs: dict[str, SuiteRun] = {}
        for suite in contexts.suites.values():
            self.run_of(suite)
        self._check_resumed()

    def run_of(self, suite: Suite) -> SuiteRun:
        """Return the run of a suite, which is added if there is none: that of a marked test becomes known late."""
        if suite.name not in self.runs:
            self.runs[suite.name] = SuiteRun(self.contexts, suite)
        return self.runs[suite.name]

    def select(
        self, suite: Suite, nodeid: str, case_ref: Callable[[], CaseRef] | None = None, target: str = ""
    ) -> None:
        """Add a selected case, once, or a control, which was not run until it is replayed.

        Args:
            suite: its suite.
            nodeid: its node id.
            case_ref: returns the reference to a case; None for a control.
            target: the name of the marked test that runs it.
        """
        run = self._runs_by_nodeid[nodeid] = self.run_of(suite)
        if case_ref is not None:
            run.selected.setdefault(nodeid, case_ref)
            run.targets.update([target] if target else [])
        elif nodeid not in run.control_results:
            # most suites have none
            from pytest_packbench.model.recording import ControlResult

            file, _, name = nodeid.rpartition("::")
            run.control_results[nodeid] = ControlResult(suite.name, name, nodeid, file, "not_run", message="not run")

    def reject(self, nodeids: Iterable[str], message: str) -> None:
        """Turn what a worker reported into errors, because it ran something else than this process has.

        Args:
            nodeids: the node ids of its reports.
            message: what differs, in one line.
        """
        text = self.contexts.redactor.text(message)
        self._has_spoiled = True
        for reported in nodeids:
            nodeid = ungrouped(reported, self._runs_by_nodeid)
            if nodeid in self._runs_by_nodeid:
                self._spoil(self._runs_by_nodeid[nodeid], nodeid, "worker_differs", text)

    def note_worker(self, told: Mapping[str, Any]) -> None:
        """Add what a worker tells at its end.

        Args:
            told: how many cases of each suite it collected before any was deselected, what it spent, and what the cases
                of each suite left running and the offline guard refused: case id and message.
        """
        # each worker collects all
        self.contexts.collected |= Counter(told.get("collected", {}))
        self.contexts.spent += [told["spent"]] if "spent" in told else []
        for name, late in told.get("late", {}).items():
            self._late.setdefault(name, []).extend(map(tuple, late))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Add the selected cases; under xdist they come from the workers."""
        for item in session.items:
            run = item_run(item)
            if isinstance(run, CaseRun):
                self.select(run.suite, run.nodeid, run.case_ref, run.target)
            elif run is not None:
                self.select(run.suite, run.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the results of a report; a report without them is that of an error outside the case."""
        # removed, because other plugins may write reports as JSON
        results = report.__dict__.pop(RESULTS_ATTRIBUTE, None)
        journaled = report.__dict__.pop(JOURNALED_ATTRIBUTE, False)
        if results and isinstance(results[0], Result):
            self.runs[results[0].case.suite].add_case(results, journaled=journaled)
            return
        if results:
            (control,) = results
            self.runs[control.suite].control_results[control.nodeid] = control
            return
        if report.passed:
            return
        nodeid = ungrouped(report.nodeid, self._runs_by_nodeid)
        run = self._runs_by_nodeid.get(nodeid)
        if run is None:
            return
        control = run.control_results.get(nodeid)
        if control is not None:
            # it failed or was skipped outside of its own code
            if report.failed or control.outcome == "not_run":
                outcome: Outcome = "broken" if report.failed else "not_run"
                run.control_results[nodeid] = control._replace(outcome=outcome, message=_first_line(report))
        elif report.when not in {"setup", "call", "teardown"}:
            run.crashed.add(nodeid)
        elif nodeid not in run.by_nodeid:
            case_ref, line = run.selected[nodeid](), _first_line(report)
            if report.skipped:
                result = unscored_result(case_ref, "not_run", "skipped_elsewhere", line)
            else:
                result = unscored_result(case_ref, "error", "setup_broken", line)
            run.add_case((result,))

    def journal(self, entry: Entry) -> bool:
        """Append an ended attempt, on any thread, or a result to the journal, so that a paid answer is never lost.

        Returns:
            Whether it is on the disk; if not, a run that asks models starts no more attempts.
        """
        run = self.runs[entry.case.suite]
        is_kept = run.journal(entry)
        if not is_kept and run.problems:
            self.contexts.stop_unstored(run.problems[-1])
        return is_kept

    def _check_resumed(self) -> None:
        """Check that the resumed run is unchanged.

        Raises:
            pytest.UsageError: something changed; one line names it.
        """
        resumed = self.contexts.resumed
        if resumed is None:
            return
        from pytest_packbench.runs.resuming import prior_spending

        # cost counts even if its results are dropped
        spent = prior_spending(resumed)
        for run in self.runs.values():
            check_resumed(resumed, run.suite, run.head())
        self.contexts.spent += [spent] if spent is not None else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Start the journals before the first attempt."""
        option = self.config.option
        if not option.collectonly and not (session.testsfailed and not option.continue_on_collection_errors):
            self.begin_journals()

    def begin_journals(self, *, resumed: bool = False) -> None:
        """Start the journals of suites with selected cases, or of those with results of a resumed run.

        Raises:
            pytest.UsageError: a journal can't be written, so that answers that are paid for would not be kept.
        """
        mode = self.contexts.settings.mode
        for run in self.runs.values():
            due = run.writer.prior is not None if resumed else bool(run.selected)
            if due and not run.open_journal(checks_space=mode != "fixture") and mode != "fixture":
                raise pytest.UsageError(f"{run.problems[0]}; no model was called")
            if due and mode == "record" and (problem := recording_problem(run.suite)):
                raise pytest.UsageError(f"{problem}; no model was called")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Complete and write the run and apply its gates, before other plugins build their reports."""
        if self.config.option.collectonly or session.exitstatus == pytest.ExitCode.USAGE_ERROR:
            for run in self.runs.values():
                run.writer.discard_journal()
            return (yield)
        self.contexts.close()
        # also those of marked tests of which none is selected
        runs = [*map(self.run_of, self.contexts.suites.values())]
        if self.contexts.settings.mode == "record" and session.exitstatus != pytest.ExitCode.INTERRUPTED:
            from pytest_packbench.pytest_plugin.check import check_recordings

            check_recordings(self)
        for run in runs:
            try:
                self._finish(run, session)
            except (OSError, MemoryError, RecursionError) as error:
                # a target has used up what the process may have: files, memory, levels of calls
                run.writer.close_journal()
                run.problems.append(f"the run can't be concluded: {describe_error(error)}; {run.resumable()}")
        session.exitstatus = self._exit_code(session.exitstatus)
        result = yield
        for run in self.runs.values():
            run.write_report(session)
        return result

    def _exit_code(self, exit_code: int) -> int:
        """Return the exit code of the session, given that of its tests, once all runs are concluded."""
        runs = self.runs.values()
        if exit_code == pytest.ExitCode.NO_TESTS_COLLECTED and all(run.conclusion for run in runs):
            exit_code = pytest.ExitCode.OK
        if exit_code == pytest.ExitCode.OK and (self._has_spoiled or any(run.failed for run in runs)):
            exit_code = pytest.ExitCode.TESTS_FAILED
        return exit_code

    def _note_late(self, run: SuiteRun) -> None:
        """Turn cases into errors whose threads or tasks were refused when their result was known already."""
        # of several messages the first counts, as in an attempt
        messages = dict(reversed([*self._late.get(run.suite.name, ()), *take_late(run.suite)]))
        kind = "offline" if self.contexts.settings.mode == FIXTURE else "unattributed"
        owners = {nodeid: CONTROL_OWNER + control.control for nodeid, control in run.control_results.items()}
        for nodeid, trials in run.by_nodeid.items():
            if not all(result.score.verdict in {"error", "not_run"} for result in trials):
                owners[nodeid] = trials[0].case.case_id
        for nodeid, owner in owners.items():
            if owner in messages:
                self._spoil(run, nodeid, kind, messages[owner])

    def _spoil(self, run: SuiteRun, nodeid: str, kind: str, message: str) -> None:
        """Turn the results of a case into errors, or break a control."""
        self._has_spoiled = True
        if nodeid in run.control_results:
            run.control_results[nodeid] = run.control_results[nodeid]._replace(outcome="broken", message=message)
        trials = run.by_nodeid.get(nodeid, ())
        # what a worker has stored of a case before it crashed does not count either
        if not trials and nodeid not in run.crashed:
            return
        case_ref = run.selected[nodeid]()
        if self.contexts.settings.mode == "record":
            discard_recording(run.suite, case_ref.case.case_id, since=format_timestamp(self.contexts.started_ns))
        attempts = [result.attempt for result in trials] or [Attempt()]
        now = timestamp_now()
        errors = (
            unscored_result(
                case_ref, "error", kind, message, Attempt(trial=each.trial, timestamp=now, duration_ms=each.duration_ms)
            )
            for each in attempts
        )
        run.add_case(tuple(errors))

    def _finish(self, run: SuiteRun, session: pytest.Session) -> None:
        run.case_count, run.due_count = case_counts(run.suite, self.contexts.settings.shard)
        run.complete(interrupted=session.exitstatus == pytest.ExitCode.INTERRUPTED)
        self._note_late(run)
        run.count_controls()
        if not run.has_run(session):
            return
        _release_cases(run.suite, session)
        conclusion = run.judge(self.project)
        run.conclusion = replace(conclusion, policy=self._policy(run, conclusion.run))
        run.writer.close_journal()
        if not run.guard(partial(run.write, run.conclusion)):
            run.problems.append(run.resumable())

    def _policy(self, run: SuiteRun, tested: Run) -> PolicyOutcome | None:
        """Return in which points the acceptance policy differs from that of the base; None without a base."""
        if self.policy_base is None:
            return None
        selections = [("cases", "selection", len(run.by_nodeid), run.due_count)]
        if run.controls is not None:
            selections.append(("controls", "controls", run.controls.counts.selected, run.controls.counts.present))
        skipped = [
            PolicyChange(f"{what} not selected", "arguments of this run", key, "all", f"{selected} of {due}")
            for what, key, selected, due in selections
            if selected < due
        ]
        return compare_policy(self.policy_base, run.suite, run.pack, self.project, skipped, tested)


def _release_cases(suite: Suite, session: pytest.Session) -> None:
    """Free the cases of a suite: reports need their results only, and memory peaks while they are written."""
    for item in session.items:
        run = run_of(item)
        if run is not None and run.suite is suite:
            run.loaded = None


def _first_line(report: pytest.TestReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return (text.strip() or "no report").splitlines()[0]
