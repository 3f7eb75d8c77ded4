"""Working ahead of pytest's item loop: attempts are under way while earlier items are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.engine.attempt import Failure
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.engine.output import StreamRouter, is_outside_cases
from pytest_packbench.engine.result_builder import Trial, build_trial, error_trial, not_run_trial
from pytest_packbench.engine.runner import Runner
from pytest_packbench.engine.scheduler import AttemptKey, FinishedAttempt, Job, SchedulerOptions
from pytest_packbench.model.errors import describe_error
from pytest_packbench.pytest_plugin.case_run import run_of
from pytest_packbench.pytest_plugin.stash import RUN_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from pytest_packbench.engine.result_builder import CaseRef
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.pytest_plugin.case_run import CaseRun
    from pytest_packbench.pytest_plugin.suites import SessionSuites


_AHEAD_OF_WINDOW = 2


class Ahead:
    """Plans what pytest will ask for, and gives it when it does.

    Attributes:
        runner: makes the attempts.
        keep: called with each result as soon as there is one, before pytest reports its item.
        tick: called about twice a second while pytest waits.
        clear: called when it waits no more.
        again: called when pytest has written about an item.
        scores: of the attempts that are over, for the progress line: how many, and their sum.
    """

    def __init__(self, config: pytest.Config, contexts: SessionSuites) -> None:
        self.keep: Callable[[CaseResult], None] = lambda _: None
        self.tick: Callable[[], None] = lambda: None
        self.clear: Callable[[], None] = lambda: None
        self.again: Callable[[], None] = lambda: None
        self.scores = (0, 0.0)
        self._config = config
        self._contexts = contexts
        self._runs: dict[str, CaseRun] = {}
        self._trials_over: dict[AttemptKey, Trial] = {}
        self._planned = False
        self._worker = hasattr(config, "workerinput")
        settings = contexts.settings
        self._trials = settings.trials
        throttle = contexts.clients.throttle
        options = SchedulerOptions(
            throttle=throttle,
            # a worker of xdist knows its next case only
            lookahead=0 if settings.debugged else throttle.max_limit * (1 if self._worker else _AHEAD_OF_WINDOW),
            limit_s=settings.case_timeout_s,
            ledger=contexts.clients.ledger,
            use_threads=not settings.debugged,
        )
        self.runner = Runner(options, on_settled=self._settled)
        self._streams = StreamRouter()
        self._routed = settings.debugged

    def take(self, run: CaseRun, kept: Mapping[int, Trial]) -> list[Trial]:
        """Give all trials of a case, waiting for them; what was printed meanwhile becomes sections of its report.

        Those that need not be made are in `kept`, by number.
        """
        self._runs[run.nodeid] = run
        found = dict(kept)
        jobs = list(self._jobs(run))
        self.runner.plan(jobs)
        for job in jobs:
            done = self.runner.wait_for(job, self._tick)
            label = f" (trial {job.key.trial + 1})" if self._trials > 1 else ""
            live = job.context.live
            hide = live.redactor.text if live is not None else str
            for name, text in done.output.sections():
                run.item.add_report_section("setup", f"{name}{label}", hide(text))
            found[job.key.trial] = self._trials_over.pop(job.key)
        self.clear()
        return [found[trial] for trial in sorted(found)]

    def _tick(self) -> None:
        # a debugger may silence it while somebody waits
        self.tick()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Plan what comes: the whole session, or what a worker of xdist knows of it."""
        if not self._routed:
            # the plugins that capture are not all there when this one is made
            self._routed = True
            self._route()
        if self._worker:
            self._plan([item, *([nextitem] if nextitem is not None else [])])
        elif not self._planned:
            self._planned = True
            self._plan(item.session.items)
        result = yield
        run = _run_ahead(item)
        if run is not None:
            # somebody else's hook may have skipped it
            self.runner.discard(AttemptKey(run.nodeid, trial) for trial in range(self._trials))
        self.again()
        return result

    def pytest_enter_pdb(self) -> None:
        """Give a debugger the terminal and all the time it wants."""
        self.runner.remove_limit()
        self.clear()
        self.tick = self.clear = self.again = lambda: None
        self._streams.stop()

    def close(self) -> None:
        """Cancel what is under way and let go of everything; what hangs is left behind."""
        self.clear()
        self.tick = self.again = lambda: None
        self.runner.settle_all()
        self.runner.close(*self._contexts.closers())
        self._streams.stop()

    def pytest_unconfigure(self) -> None:
        """Close, also where the session never began."""
        self.close()

    def _plan(self, items: Iterable[pytest.Item]) -> None:
        runs = [run for item in items if (run := _run_ahead(item)) is not None and not _may_be_skipped(item)]
        self._runs.update({run.nodeid: run for run in runs})
        self.runner.plan(job for run in runs for job in self._jobs(run))

    def _jobs(self, run: CaseRun) -> Iterator[Job]:
        if run.problem or run.loaded is None or run.loaded.case.notes.skip is not None:
            return
        try:
            context = self._contexts.context(run.suite)
        except TargetError:
            # the item itself says so
            return
        kept = run.kept()
        for trial in range(self._trials):
            if trial not in kept:
                yield Job(key=AttemptKey(run.nodeid, trial), context=context, loaded=run.loaded)

    def _settled(self, done: FinishedAttempt) -> None:
        key = done.job.key
        place = self._runs[key.nodeid].place()
        try:
            one = self._trial_of(place, done)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a pack may be anybody's, and another case is waited for here
            message = f"the case's entry can't be kept: {describe_error(error)}"
            one = error_trial(place, Failure(kind="pack_error", message=message), trial=key.trial)
            self.keep(one.result)
        if one.result.score is not None:
            self.scores = (self.scores[0] + 1, self.scores[1] + one.result.score)
        self._trials_over[key] = one

    def _trial_of(self, place: CaseRef, done: FinishedAttempt) -> Trial:
        if done.attempt is None:
            return not_run_trial(place, done.kind, done.message, trial=done.job.key.trial)
        one = build_trial(place, done.attempt, done.job.context, self._config.stash[RUN_ID])
        self.keep(one.result)
        return one

    def _route(self) -> None:
        """Keep what cases print and log apart from what pytest captures."""
        self._streams.start()
        logs = self._config.pluginmanager.getplugin("logging-plugin")
        for name in ("caplog_handler", "report_handler"):
            handler = getattr(logs, name, None)
            if handler is not None:
                handler.addFilter(is_outside_cases)


def _run_ahead(item: pytest.Item) -> CaseRun | None:
    """Give the case of an item whose attempts are made here; a test of the user's own makes its own."""
    run = run_of(item)
    return run if run is not None and not run.own_test else None


def _may_be_skipped(item: pytest.Item) -> bool:
    """Whether a mark may skip an item: it is asked for when pytest runs it, and not before."""
    return any(item.iter_markers("skip")) or any(item.iter_markers("skipif"))
