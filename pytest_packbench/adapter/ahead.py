"""Working ahead of pytest's item loop: attempts are under way while earlier items are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.adapter.collect import CaseItem
from pytest_packbench.adapter.execute import place_of
from pytest_packbench.adapter.keys import RUN_ID
from pytest_packbench.adapter.tried import Tried, not_run, tried
from pytest_packbench.engine.output import Streams, outside_cases
from pytest_packbench.engine.runner import Done, Job, Key, Runner
from pytest_packbench.engine.targets import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_packbench.adapter.suites import Benches
    from pytest_packbench.records.entry import Entry

_AHEAD_OF_WINDOW = 2


class Ahead:
    """Plans what pytest will ask for, and gives it when it does.

    Attributes:
        runner: makes the attempts.
        keep: called with each entry as soon as there is one, before pytest reports its item.
        tick: called about twice a second while pytest waits.
        clear: called when it waits no more.
        scores: of the attempts that are over, for the progress line: how many, and their sum.
    """

    def __init__(self, config: pytest.Config, benches: Benches) -> None:
        self.keep: Callable[[Entry], None] = lambda _: None
        self.tick: Callable[[], None] = lambda: None
        self.clear: Callable[[], None] = lambda: None
        self.scores = (0, 0.0)
        self._config = config
        self._benches = benches
        self._items: dict[str, CaseItem] = {}
        self._tried: dict[Key, Tried] = {}
        self._planned = False
        self._worker = hasattr(config, "workerinput")
        settings = benches.settings
        self._trials = settings.trials
        throttle = benches.answerers.throttle
        self.runner = Runner(
            throttle=throttle,
            # a worker of xdist knows its next case only
            lookahead=throttle.most if self._worker else throttle.most * _AHEAD_OF_WINDOW,
            limit_s=settings.case_timeout_s,
            ledger=benches.answerers.ledger,
            settled=self._settled,
        )
        self._streams = Streams()
        self._route()

    def take(self, item: CaseItem) -> list[Tried]:
        """Give all trials of a case, waiting for them; what was printed meanwhile becomes sections of its report."""
        self._items[item.case_nodeid] = item
        found = []
        jobs = list(self._jobs(item))
        self.runner.plan(jobs)
        for job in jobs:
            done = self.runner.take(job, self.tick)
            label = f" (trial {job.key.trial + 1})" if len(jobs) > 1 else ""
            for name, text in done.output.sections():
                item.add_report_section("setup", f"{name}{label}", text)
            found.append(self._tried.pop(job.key))
        self.clear()
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Plan what comes: the whole session, or what a worker of xdist knows of it."""
        if self._worker:
            self._plan([item, *([nextitem] if nextitem is not None else [])])
        elif not self._planned:
            self._planned = True
            self._plan(item.session.items)

    def close(self) -> None:
        """Cancel what is under way and let go of everything; what hangs is left behind."""
        self.runner.settle_all()
        closing = [bench.caller.aclose for bench in self._benches.opened]
        closing += [backend.aclose for backend in self._benches.answerers.backends]
        self.runner.close(*closing)
        self._streams.stop()

    def _plan(self, items: Iterable[pytest.Item]) -> None:
        cases = [item for item in items if isinstance(item, CaseItem)]
        self._items.update({item.case_nodeid: item for item in cases})
        self.runner.plan(job for item in cases for job in self._jobs(item))

    def _jobs(self, item: CaseItem) -> Iterator[Job]:
        if item.problem or item.loaded is None or item.loaded.case.notes.skip is not None:
            return
        try:
            bench = self._benches.bench(item.suite)
        except TargetError:
            # the item itself says so
            return
        for trial in range(self._trials):
            yield Job(key=Key(item.case_nodeid, trial), bench=bench, loaded=item.loaded)

    def _settled(self, done: Done) -> None:
        key, bench = done.job.key, done.job.bench
        place = place_of(self._items[key.nodeid])
        if done.attempt is None:
            one = not_run(place, done.kind, done.message, trial=key.trial)
        else:
            one = tried(place, done.attempt, bench, self._config.stash[RUN_ID])
            self.keep(one.entry)
        if one.entry.score is not None:
            self.scores = (self.scores[0] + 1, self.scores[1] + one.entry.score)
        self._tried[key] = one

    def _route(self) -> None:
        """Keep the streams routed: pytest's capture puts its own in their place at every phase."""
        self._streams.start()
        capture = self._config.pluginmanager.getplugin("capturemanager")
        for name in ("suspend_global_capture", "resume_global_capture"):
            method = getattr(capture, name, None)
            if method is not None:
                setattr(capture, name, self._then_route(method))
        logs = self._config.pluginmanager.getplugin("logging-plugin")
        for name in ("caplog_handler", "report_handler"):
            handler = getattr(logs, name, None)
            if handler is not None:
                handler.addFilter(outside_cases)

    def _then_route(self, method: Callable[..., None]) -> Callable[..., None]:
        def routed(*args: object, **options: object) -> None:
            method(*args, **options)
            self._streams.route()

        return routed
