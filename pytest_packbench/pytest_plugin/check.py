"""The check of a run that records: each recording is replayed once, in a fresh process, cases in reverse order.

So a case that differs in each run is found, and one that lives on what an earlier one did. The process is the same
command of pytest in fixture mode; a folder that a variable names has what it has to run, and gets what came of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_packbench.cases.finder import Recording, find_recording
from pytest_packbench.cases.load import load_recording
from pytest_packbench.engine.gateway.exchanges import answer_of
from pytest_packbench.engine.gateway.shared import SharedCalls, is_same_request, shared_recording
from pytest_packbench.engine.recordings import write_recording
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.run import CHECK_FOLDER
from pytest_packbench.model.suite import FIXTURES, PENDING, SHARED, Suite
from pytest_packbench.pytest_plugin.case_run import CaseRun, file_runs, item_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_packbench.engine.gateway import CaseTraffic, RecordedCall
    from pytest_packbench.model.recording import GatewayExchange
    from pytest_packbench.model.result import Result
    from pytest_packbench.pytest_plugin.recorder import Recorder, SuiteRun


_ORDER, _FOUND = "order.json", "found.json"
_MOST_ALONE = 3
# recording again changes nothing about it
_ADVICE = re.compile("; (if the pipeline|record it again).*")
# what belongs to the recording run, or would wait for a person
_DROPPED = re.compile("--(packbench-resume|pdb|trace)(=.*)?")


class Found(NamedTuple):
    """What came of a check.

    Attributes:
        ends: verdict, score and message of each case, by node id.
        shared: recorded calls that another case than their own asked for, or none: the name of the suite, the case that
            asked, and the call as a recording states it; an empty suite and case for none.
        problem: why there is none of this; empty if there is.
    """

    ends: Mapping[str, Sequence[Any]] = {}
    shared: Sequence[tuple[str, str, dict[str, Any]]] = ()
    problem: str = ""


def check_recordings(recorder: Recorder) -> None:
    """Replay what a run has recorded, and note in the run of each suite what does not replay, and what is shared."""
    recorded: list[tuple[SuiteRun, dict[str, Result]]] = []
    for run in recorder.runs.values():
        firsts = {nodeid: trials[0] for nodeid, trials in run.by_nodeid.items()}
        # one that made no call may live on those of an earlier case
        results = {nodeid: each for nodeid, each in firsts.items() if each.score.verdict not in {"error", "not_run"}}
        caller = recorder.contexts.opened(run.suite).caller
        if not run.suite.config.recording.check:
            run.checked = "not checked (recording: check is off)"
        elif caller.opaque and not caller.runs_offline:
            run.checked = "not checked: a server is not replayed"
        elif not run.targets and any(each.attempt.cassette_sha256 for each in results.values()):
            recorded.append((run, results))
    if not recorded:
        return
    with TemporaryDirectory() as folder:
        run, results = recorded[0]
        _share(Path(folder), _calls_before(recorder), run.suite, results)
        found = _replayed(recorder, folder, [nodeid for _, results in recorded for nodeid in results][::-1])
        for run, results in recorded:
            _conclude(run, results, found, lambda nodeid: _replayed(recorder, folder, [nodeid]))


def _conclude(run: SuiteRun, results: Mapping[str, Result], found: Found, replayed: Callable[[str], Found]) -> None:
    """Note what came of the recordings of a suite.

    Args:
        run: the run of the suite.
        results: the results of the cases that were recorded, by node id.
        found: what came of the check.
        replayed: replays one case alone.
    """
    run.checked = found.problem
    if found.problem:
        return
    ends = {nodeid: _difference(result, found.ends.get(nodeid)) for nodeid, result in results.items()}
    sound = {"", *(results[nodeid].case.case_id for nodeid, difference in ends.items() if not difference)}
    names = {"", run.suite.name}
    calls = [call for suite, case_id, call in found.shared if suite in names and case_id in sound]
    if shared := _share(run.suite.path, calls, run.suite, results):
        asked = ", ".join(sorted({f"{call['method']} {call['path']}" for call in calls}))
        run.shared = f"{pluralize(shared, 'call')} made by one case for all, now in {FIXTURES}/{SHARED}: {asked}."
    for nodeid, difference in ends.items():
        if difference:
            result, why = results[nodeid], difference
            if len(run.differing) < _MOST_ALONE:
                alone = _difference(result, replayed(nodeid).ends.get(nodeid))
                why = alone or f"it does alone, but not after other cases: {difference}"
            run.differing.append(f"{result.case.case_id} does not replay: {why}")
    run.checked = f"{len(ends) - len(run.differing)} of {len(ends)} replay"


def _calls_before(recorder: Recorder) -> list[dict[str, Any]]:
    """Return the calls before the first case as recordings state them, without those whose answer has a secret."""
    serving, redactor = recorder.contexts.serving, recorder.contexts.redactor
    made = serving.gateway.before if serving is not None and serving.gateway is not None else []
    exchanges = [(call, call.as_exchange(recorder.contexts.settings.record_prompts)) for call in made]
    return [exchange for call, exchange in exchanges if not redactor.find([answer_of(exchange), call.joined_texts()])]


def _share(folder: Path, calls: Sequence[dict[str, Any]], suite: Suite, results: Mapping[str, Result]) -> int:
    """Add calls to the shared recording in a folder, which keeps what it has; return how many are new.

    Args:
        folder: that of a suite.
        calls: as recordings state them.
        suite: the suite with recordings that were made under the same conditions.
        results: the results of its cases.
    """
    place = shared_recording(folder)
    older = _plain(place)["gateway"] if place.exists() else []
    known = {(call["provider"], call["request_sha256"]) for call in older}
    new = {key: call for call in calls if (key := (call["provider"], call["request_sha256"])) not in known}
    if new:
        own = {"case_id": "shared", "input_sha256": canonical_sha256(None), "exchanges": []}
        names = (each.case.case_id for each in results.values() if each.attempt.cassette_sha256)
        recorded = _plain(_newest(suite, next(names)))
        write_recording(Path(place.location.path), recorded | own | {"gateway": [*older, *new.values()]})
    return len(new)


def _plain(recording: Recording) -> dict[str, Any]:
    return load_recording(recording)[0].model_dump(mode="json", exclude_unset=True)


def _with_pending(suite: Suite, case_id: str) -> Suite:
    """Return a suite with the recording of a case that waits for approval, if there is one."""
    waits = suite.pending_path(case_id).exists()
    return replace(suite, fixtures=f"{suite.fixtures}/{PENDING}") if waits else suite


def _newest(suite: Suite, case_id: str) -> Recording:
    return find_recording(_with_pending(suite, case_id), case_id)


def _difference(result: Result, end: Sequence[Any] | None) -> str:
    """Return how a replay ended otherwise than the recording; empty where it did not."""
    if end is None:
        return "the process that replayed it ended before"
    verdict, score, message = end
    if (verdict, score) == (result.score.verdict, result.score.score):
        return ""
    if message:
        return _ADVICE.sub("", message)
    return f"recorded with the score {result.score.score}, replayed with {score}"


def _replayed(recorder: Recorder, folder: str, order: list[str]) -> Found:
    """Replay recordings in a process of its own.

    Args:
        recorder: that of the run.
        folder: what the process gets; its calls before the first case are answered by the shared recording in it.
        order: the node ids of the cases, in the order in which they run.
    """
    config, serving = recorder.config, recorder.contexts.serving
    here, found = str(config.invocation_params.dir), Path(folder, _FOUND)
    found.unlink(missing_ok=True)
    Path(folder, _ORDER).write_text(json.dumps(order), encoding="utf-8")
    # as `pytest` does, unless python was started otherwise
    path = [] if {"", here}.intersection(sys.path) else ["-P"]
    with nullcontext() if serving is None else serving.restored():
        environment = {name: value for name, value in os.environ.items() if name != "PACKBENCH_RESUME"}
        done = subprocess.run(  # noqa: S603 - the user's own command
            [sys.executable, *path, "-m", "pytest", *_arguments(config, folder)],
            cwd=here,
            env=environment | {CHECK_FOLDER: folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    if found.exists():
        return Found(**json.loads(found.read_text("utf-8")))
    printed = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    # before the summary of a session, the error; else its last line
    said = next(
        (f": {line}" for line in printed if line.startswith("ERROR: ")), "".join(f": {line}" for line in printed[-1:])
    )
    return Found(problem=f"not checked: the process that replays them ended with exit code {done.returncode}{said}")


def _arguments(config: pytest.Config, folder: str) -> list[str]:
    words, is_dropped = [], False
    for word in map(str, config.invocation_params.args):
        if not (is_dropped or _DROPPED.fullmatch(word)):
            words.append(word)
        is_dropped = word == "--packbench-resume"
    options = {"mode": "fixture", "backend": "recorded", "output": f"{folder}/output", "concurrency": 1, "trials": 1}
    words += [f"--packbench-{name}={value}" for name, value in options.items()]
    words += [f"--override-ini=cache_dir={folder}/cache", "--maxfail=0"]
    return [*words, "-n0"] if config.pluginmanager.hasplugin("xdist") else words


class Check:
    """Replays the cases that were recorded, and notes how they end; in the process of the check."""

    def __init__(self, recorder: Recorder, folder: str) -> None:
        self._recorder = recorder
        self._folder = Path(folder)
        self._calls: _RecordedCalls | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the cases that were recorded, in the order of the check."""
        order: list[str] = json.loads((self._folder / _ORDER).read_text("utf-8"))
        places = {nodeid: place for place, nodeid in enumerate(order)}
        kept = [(places[run.nodeid], item) for item in items if (run := item_run(item)) and run.nodeid in places]
        items[:] = [item for _, item in sorted(kept, key=lambda pair: pair[0])]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Replay what waits for approval instead of what it would change."""
        runs = file_runs(session.items)
        for run in runs:
            run.context = replace(run.open_context(), suite=_with_pending(run.suite, run.name))
        serving = self._recorder.contexts.serving
        if serving is not None and serving.gateway is not None:
            serving.gateway.shared = self._calls = _RecordedCalls(serving.gateway.shared, runs)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write how the cases ended, and what is shared."""
        ends = {
            nodeid: (trials[0].score.verdict, trials[0].score.score, trials[0].score.message)
            for run in self._recorder.runs.values()
            for nodeid, trials in run.by_nodeid.items()
        }
        shared = [] if self._calls is None else self._calls.shared(self._folder)
        (self._folder / _FOUND).write_text(json.dumps({"ends": ends, "shared": shared}), encoding="utf-8")


class _RecordedCalls(SharedCalls):
    """Shared calls, and those that other cases have recorded before.

    Args:
        shared: the shared calls.
        runs: the cases, the one that was recorded last first.
    """

    def __init__(self, shared: SharedCalls, runs: Sequence[CaseRun]) -> None:
        super().__init__(shared.folders, shared.outside)
        self._runs = runs
        self._lent: dict[tuple[str, str, str, int], GatewayExchange] = {}

    def take(self, case: CaseTraffic, call: RecordedCall) -> GatewayExchange | None:
        """Return the shared answer to a call, else that to the same call of a case that was recorded before."""
        found = super().take(case, call)
        for place, exchange in self._others(case, before=True) if found is None else ():
            if place not in self._lent and case.is_of(exchange, call):
                self._lent[place] = exchange
                return exchange
        return found

    def has(self, case: CaseTraffic, exchange: GatewayExchange) -> bool:
        """Whether a call is shared, also because a case that has just run has made it."""
        if super().has(case, exchange):
            return True
        if any(is_same_request(exchange, each) for each in self._lent.values()):
            return True
        for place, other in self._others(case, before=False):
            if is_same_request(exchange, other):
                self._lent[place] = other
                return True
        return False

    def shared(self, folder: Path) -> list[tuple[str, str, Any]]:
        """Return the calls that turned out to be shared, as `Found` states them."""
        outside = [self.calls(place)[at] for place, at in self.outside.borrowed if place == folder]
        lent = [(suite, case_id, exchange) for (suite, case_id, *_), exchange in self._lent.items()]
        both = [*(("", "", exchange) for exchange in outside), *lent]
        return [(suite, case_id, each.model_dump(mode="json", exclude_unset=True)) for suite, case_id, each in both]

    def _others(
        self, case: CaseTraffic, *, before: bool
    ) -> Iterator[tuple[tuple[str, str, str, int], GatewayExchange]]:
        """Yield the recorded calls of the other cases of a suite that were recorded before a case, or after it."""
        suite: Any = case.suite
        for run in reversed(self._runs) if before else self._runs:
            if run.suite.name != getattr(suite, "name", None):
                continue
            if run.name == case.case_id:
                return
            for position, exchange in enumerate(self._calls_of(run)):
                yield (run.suite.name, case.case_id, run.name, position), exchange

    @cache  # noqa: B019 - one object for a process
    def _calls_of(self, run: CaseRun) -> tuple[GatewayExchange, ...]:
        try:
            return load_recording(_newest(run.suite, run.name))[0].gateway
        except FileNotFoundError:
            return ()
