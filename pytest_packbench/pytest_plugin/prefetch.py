"""Prefetching: attempts start before pytest reaches their items."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.engine.attempt import AttemptState, Failure, redacted_failure
from pytest_packbench.engine.scheduler import AttemptKey, Flight, Job, Runner, StreamRouter, is_outside_cases
from pytest_packbench.engine.time_limit import Watchdog
from pytest_packbench.engine.trial_results import Trial, ended_attempt, error_trial, not_run_trial
from pytest_packbench.model.errors import describe_error
from pytest_packbench.model.request import TargetError
from pytest_packbench.pytest_plugin.case_run import CaseRun, file_run, file_runs, journaled_trial
from pytest_packbench.pytest_plugin.terminal import FAILING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from pytest_packbench.model.result import EndedAttempt
    from pytest_packbench.pytest_plugin.settings import SessionSuites


_LOOKAHEAD_FACTOR = 2


class Prefetcher:
    """Starts the attempts of coming items, and returns their trials when pytest runs the items.

    Attributes:
        runner: makes the attempts.
        on_ended: called with each attempt whose target has ended, on the event loop; returns whether it is stored.
        tick: called about twice a second while pytest waits.
        clear: called when the wait has ended.
        failing: attempts so far that failed or ended in an error.
    """

    def __init__(self, contexts: SessionSuites) -> None:
        self.on_ended: Callable[[EndedAttempt], bool] = lambda _: False
        self.tick: Callable[[], None] = lambda: None
        self.clear: Callable[[], None] = lambda: None
        self.failing = 0
        self._contexts = contexts
        self._runs: dict[str, CaseRun] = {}
        self._is_planned = False
        self._next_item: pytest.Item | None = None
        self._is_worker = hasattr(contexts.config, "workerinput")
        settings = contexts.settings
        self._trials = settings.trials
        throttle = contexts.clients.throttle
        self.runner = Runner(
            throttle=throttle,
            # a worker of xdist knows only its next case
            lookahead=0 if settings.debugged else throttle.max_limit * (1 if self._is_worker else _LOOKAHEAD_FACTOR),
            limit_s=settings.case_timeout_s,
            ledger=contexts.clients.ledger,
            on_settled=self._settled,
            on_ended=self._journal_ended,
            use_threads=not settings.debugged,
        )
        self._streams = StreamRouter()
        self._is_routed = settings.debugged

    def wait_for_trials(self, run: CaseRun, resumed: Mapping[int, Trial]) -> list[Trial]:
        """Wait for the trials of a case and return all; captured output becomes sections of its report.

        Args:
            run: the case.
            resumed: its trials from a resumed run, by number.
        """
        self._runs[run.nodeid] = run
        trials = dict(resumed)
        jobs = list(self._jobs(run))
        self.runner.plan(jobs)
        for job in jobs:
            done = self.runner.wait_for(job, self._tick)
            label = f" (trial {job.key.trial + 1})" if self._trials > 1 else ""
            for name, text in done.output.sections():
                run.item.add_report_section("setup", f"{name}{label}", job.context.redactor.text(text))
            trials[job.key.trial] = done.trial
        self.clear()
        return [trials[number] for number in sorted(trials)]

    def _tick(self) -> None:
        limit_s = self.runner.limit_s
        if limit_s is not None:
            Watchdog.expect(limit_s, time.monotonic())
        # looked up at each call: a debugger may replace it during the wait
        self.tick()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Plan ahead within the item, and release attempts that it did not take."""
        self._next_item = nextitem
        result = yield
        run = file_run(item)
        if run is not None:
            # another plugin may have skipped the item
            self.runner.discard(AttemptKey(run.nodeid, trial) for trial in range(self._trials))
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Plan the attempts: of the whole session, or of the items that a worker of xdist knows.

        Capturing has started when this hook is called: if it started later, it would take the terminal from a debugger
        that the first attempt has entered.
        """
        if not self._is_routed:
            # later than the constructor, when all capturing plugins exist
            self._is_routed = True
            self._route()
        if self._is_worker:
            self._plan([item, *([self._next_item] if self._next_item is not None else [])])
        elif not self._is_planned:
            self._is_planned = True
            self._plan(item.session.items)

    def pytest_enter_pdb(self) -> None:
        """Restore the terminal for a debugger, and remove the time limit."""
        self.runner.limit_s = None
        self.clear()
        self.tick = self.clear = lambda: None
        self._streams.stop()

    def close(self) -> None:
        """Cancel attempts in flight and release everything; attempts that hang are abandoned."""
        self.clear()
        self.tick = lambda: None
        self.runner.settle_all()
        self.runner.close(*self._contexts.closers())
        # what ended meanwhile
        self.runner.settle_all()
        self._streams.stop()

    def pytest_unconfigure(self) -> None:
        """Close, even if the session never started."""
        self.close()

    def _plan(self, items: Iterable[pytest.Item]) -> None:
        runs = [run for run in file_runs(items) if not _may_be_skipped(run.item)]
        self._runs.update({run.nodeid: run for run in runs})
        self.runner.plan(job for run in runs for job in self._jobs(run))

    def _jobs(self, run: CaseRun) -> Iterator[Job]:
        if run.problem or run.loaded is None or run.loaded.case.notes.skip is not None:
            return
        try:
            context = run.open_context()
        except TargetError:
            # the item itself reports it
            return
        earlier = run.earlier()
        for trial in range(self._trials):
            if trial not in earlier:
                yield Job(key=AttemptKey(run.nodeid, trial), context=context, loaded=run.loaded)

    def _journal_ended(self, job: Job, attempt: AttemptState) -> bool:
        """Store an attempt on the event loop: pytest's main thread may be busy for long."""
        self._contexts.count_unreadable(attempt)
        if attempt.secrets:
            # only the whole result can be scored, and only the redacted one may be stored
            return False
        case_ref = self._runs[job.key.nodeid].case_ref()
        try:
            return self.on_ended(ended_attempt(case_ref, attempt))
        except Exception:  # noqa: BLE001 - its result is stored all the same, or reported as an error
            return False

    def _settled(self, done: Flight) -> Trial:
        """Return the trial of an attempt that has ended; its result is stored."""
        key = done.job.key
        case_ref = self._runs[key.nodeid].case_ref()
        try:
            if done.kind:
                trial = not_run_trial(case_ref, done.kind, done.message, trial=key.trial)
            else:
                trial = journaled_trial(self._contexts, case_ref, done.attempt, done.job.context)
                self._contexts.count_unreadable(trial.attempt)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an error of a pack must not end the wait for another case
            message = f"the case's result can't be stored: {describe_error(error)}"
            failure = redacted_failure(Failure(kind="pack_error", message=message), self._contexts.redactor)
            trial = error_trial(case_ref, failure, trial=key.trial)
            self._contexts.journal(trial.result)
        self.failing += trial.result.score.verdict in FAILING
        return trial

    def _route(self) -> None:
        """Separate the output and logs of cases from what pytest captures."""
        self._streams.start()
        logs = self._contexts.config.pluginmanager.getplugin("logging-plugin")
        for name in ("caplog_handler", "report_handler"):
            handler = getattr(logs, name, None)
            if handler is not None:
                handler.addFilter(is_outside_cases)


def _may_be_skipped(item: pytest.Item) -> bool:
    """Whether a mark may skip an item, which is then not prefetched."""
    return any(item.iter_markers("skip")) or any(item.iter_markers("skipif"))
