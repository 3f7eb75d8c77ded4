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
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.finder import Recording, find_recording
from pytest_packbench.cases.load import load_recording
from pytest_packbench.engine.gateway.exchanges import answer_of
from pytest_packbench.engine.gateway.likeness import applied
from pytest_packbench.engine.gateway.shared import SharedCalls, key_of, shared_calls
from pytest_packbench.engine.recordings import write_recording
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.recording import GatewayExchange
from pytest_packbench.model.result import EFFECTS
from pytest_packbench.model.run import CHECK_FOLDER
from pytest_packbench.model.suite import CONFIG_NAME, FIXTURES, PENDING, SHARED, Suite
from pytest_packbench.pytest_plugin.case_run import CaseRun, file_runs, item_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.engine.gateway import CaseTraffic
    from pytest_packbench.model.result import Result
    from pytest_packbench.pytest_plugin.recorder import Recorder, SuiteRun


_ORDER, _ENDS = "order.json", "ends.json"
_MOST_ALONE = 3
# recording again changes nothing about it
_ADVICE = re.compile("; (if the pipeline|record it again).*")


def check_recordings(recorder: Recorder) -> None:
    """Replay what a run has recorded, and note in the run of each suite what does not replay, and what is shared."""
    recorded = {nodeid: (run, trials[0]) for run in _due(recorder) for nodeid, trials in run.by_nodeid.items()}
    # one that made no call may live on those of an earlier case
    recorded = {nodeid: pair for nodeid, pair in recorded.items() if EFFECTS[pair[1].score.verdict].kept}
    ends, problem = _replayed(recorder, [*recorded][::-1]) if recorded else ({}, "")
    for nodeid, (run, result) in recorded.items():
        run.checked = problem
        if ends and (why := _difference(result, ends.get(nodeid))):
            if len(run.differing) < _MOST_ALONE:
                alone = _difference(result, _replayed(recorder, [nodeid])[0].get(nodeid))
                why = alone or f"it does alone, but not after other cases: {why}"
            run.differing.append(f"{result.case.case_id} does not replay: {why}")
    for run in {id(run): run for run, _ in recorded.values()}.values() if ends else ():
        count = sum(each is run for each, _ in recorded.values())
        run.checked = f"{count - len(run.differing)} of {count} replay"
        run.notes += filter(None, [ends.get(run.suite.name)])


def _share(suite: Suite, exchanges: Iterable[GatewayExchange], case_id: str) -> str:
    """Add calls to the shared recording of a suite, which keeps what it has; return which, in a sentence.

    Args:
        suite: the suite.
        exchanges: the calls.
        case_id: a case with a recording that was made under the same conditions.
    """
    older = {key_of(each): each for each in shared_calls(suite.path)}
    new = {key_of(each): each for each in exchanges if key_of(each) not in older}
    if not new:
        return ""
    calls = (*older.values(), *new.values())
    own = {"case_id": "shared", "input_sha256": canonical_sha256(None), "exchanges": (), "gateway": calls}
    shared = load_recording(_newest(suite, case_id))[0].model_copy(update=own)
    write_recording(suite.path / FIXTURES / SHARED, shared.model_dump(mode="json", exclude_unset=True))
    asked = ", ".join(sorted({f"{call.method} {call.path}" for call in new.values()}))
    return f"{pluralize(len(new), 'call')} made once for all cases, now in {FIXTURES}/{SHARED}: {asked}."


def _due(recorder: Recorder) -> Iterator[SuiteRun]:
    """Yield the runs of suites whose recordings are checked; note in the others why they are not."""
    before = _calls_before(recorder)
    for run in recorder.runs.values():
        caller, firsts = recorder.contexts.opened(run.suite).caller, [trials[0] for trials in run.by_nodeid.values()]
        recorded = [result.case.case_id for result in firsts if result.attempt.cassette_sha256]
        if run.targets or not recorded:
            continue
        run.notes += [*filter(None, [_share(run.suite, before, recorded[0])]), *_idle_rules(run.suite, recorded)]
        if not run.suite.config.recording.check:
            run.checked = "not checked (recording: check is off)"
        elif caller.opaque and not caller.runs_offline:
            run.checked = "not checked: a server is not replayed"
        else:
            yield run


def _idle_rules(suite: Suite, names: Sequence[str]) -> Iterator[str]:
    """Yield which rules of a suite match nothing in what was recorded of these cases."""
    for number, rule in enumerate(suite.config.recording.ignore):
        calls = (call for name in names for call in load_recording(_newest(suite, name))[0].gateway)
        if not any(applied(rule, call.request) != call.request for call in calls):
            yield f"{CONFIG_NAME}: /recording/ignore/{number} matches nothing in what was recorded."


def _calls_before(recorder: Recorder) -> list[GatewayExchange]:
    """Return the calls before the first case, such as those of imports, without answers that have a secret."""
    contexts = recorder.contexts
    made = contexts.serving.gateway.before if contexts.serving and contexts.serving.gateway else []
    exchanges = [(call, call.as_exchange(contexts.settings.record_prompts)) for call in made]
    find = contexts.redactor.find
    return [
        GatewayExchange.model_validate(exchange)
        for call, exchange in exchanges
        if not find([answer_of(exchange), call.joined_texts()])
    ]


def _with_pending(suite: Suite, case_id: str) -> Suite:
    """Return a suite with the recording of a case that waits for approval, if there is one."""
    waits = suite.pending_path(case_id).exists()
    return replace(suite, fixtures=f"{suite.fixtures}/{PENDING}") if waits else suite


def _newest(suite: Suite, case_id: str) -> Recording:
    return find_recording(_with_pending(suite, case_id), case_id)


def _calls_of(run: CaseRun) -> tuple[GatewayExchange, ...]:
    # it may have made no call
    found = _newest(run.suite, run.name)
    return load_recording(found)[0].gateway if found.exists() else ()


def _difference(result: Result, end: Sequence[Any] | None) -> str:
    """Return how a replay ended otherwise than the recording; empty where it did not."""
    if end is None:
        return "the process that replayed it ended before"
    verdict, score, message = end
    if (verdict, score) == (result.score.verdict, result.score.score):
        return ""
    return _ADVICE.sub("", message) or f"recorded with the score {result.score.score}, replayed with {score}"


def _replayed(recorder: Recorder, order: list[str]) -> tuple[dict[str, Any], str]:
    """Replay recordings in a process of its own.

    Args:
        recorder: that of the run.
        order: the node ids of the cases, in the order in which they run.

    Returns:
        Verdict, score and message of each case by node id; and why there are none, if there are none.
    """
    config, serving = recorder.config, recorder.contexts.serving
    here = str(config.invocation_params.dir)
    # as `pytest` does, unless python was started otherwise
    path = [] if {"", here}.intersection(sys.path) else ["-P"]
    with TemporaryDirectory() as folder, serving.restored() if serving is not None else nullcontext():
        Path(folder, _ORDER).write_text(json.dumps(order), encoding="utf-8")
        done = subprocess.run(  # noqa: S603 - the user's own command
            [sys.executable, *path, "-m", "pytest", *_arguments(config, folder)],
            cwd=here,
            # as in the run that recorded; a run in fixture mode names the setting
            env={**os.environ, "PACKBENCH_ALLOW_PROCESSES": "yes", CHECK_FOLDER: folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if (ends := Path(folder, _ENDS)).exists():
            return json.loads(ends.read_text("utf-8")), ""
    said = " ".join(re.findall("(?m)^(?:ERROR|E  ).*", done.stdout)[-1:])
    problem = f"not checked: the process that replays ended with exit code {done.returncode}: {said}"
    return {}, recorder.contexts.redactor.text(problem)


def _arguments(config: pytest.Config, folder: str) -> list[str]:
    words = map(str, config.invocation_params.args)
    options = {"mode": "fixture", "backend": "recorded", "output": f"{folder}/output", "concurrency": 1, "trials": 1}
    return [
        *(word for word in words if not word.startswith("--packbench-resume")),
        *(f"--packbench-{name}={value}" for name, value in options.items()),
        "--maxfail=0",
        # those of plugins that may be off
        *([f"--override-ini=cache_dir={folder}/cache"] if config.pluginmanager.hasplugin("cacheprovider") else []),
        *(["-n0"] if config.pluginmanager.hasplugin("xdist") else []),
    ]


class Check(SharedCalls):
    """Replays the cases that were recorded, and notes how they end; in the process of the check.

    A call that the recording of a case lacks is answered from that of a case that was recorded before.
    """

    def __init__(self, recorder: Recorder, folder: str) -> None:
        serving = recorder.contexts.serving
        self._gateway = serving.gateway if serving is not None else None
        super().__init__(self._gateway.shared.folders if self._gateway is not None else ())
        self._recorder = recorder
        self._folder = Path(folder)
        self._runs: list[CaseRun] = []
        self._calls_of = cache(_calls_of)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the cases that were recorded, in the order of the check."""
        order: list[str] = json.loads((self._folder / _ORDER).read_text("utf-8"))
        found = {run.nodeid: item for item in items if (run := item_run(item)) is not None}
        items[:] = [found[nodeid] for nodeid in order if nodeid in found]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Replay what waits for approval instead of what it would change."""
        self._runs = file_runs(session.items)
        for run in self._runs:
            run.context = replace(run.open_context(), suite=_with_pending(run.suite, run.name))
        if self._gateway is not None:
            self._gateway.shared = self

    def of(self, case: CaseTraffic, *, is_missing: bool) -> Iterator[GatewayExchange]:
        """Return what is shared, and the calls of the cases that were recorded before, or have just run."""
        yield from (*super().of(case, is_missing=is_missing), *(call for _, call in self.lent))
        runs = [run for run in self._runs if case.suite is not None and run.suite.name == case.suite.name]
        for run in takewhile(lambda run: run.name != case.case_id, reversed(runs) if is_missing else runs):
            yield from self._calls_of(run)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write how the cases ended, and share what they share."""
        ends: dict[str, Any] = {}
        for suite_run in self._recorder.runs.values():
            suite, firsts = suite_run.suite, {nodeid: trials[0] for nodeid, trials in suite_run.by_nodeid.items()}
            scores = {nodeid: result.score for nodeid, result in firsts.items()}
            ends |= {nodeid: (score.verdict, score.score, score.message) for nodeid, score in scores.items()}
            sound = {result.case.case_id for result in firsts.values() if EFFECTS[result.score.verdict].kept}
            lent = [call for case, call in self.lent if case.suite.name == suite.name and case.case_id in sound]
            if lent:
                like = next(run.name for run in self._runs if run.suite is suite and _newest(suite, run.name).exists())
                ends[suite.name] = _share(suite, lent, like)
        (self._folder / _ENDS).write_text(json.dumps(ends), encoding="utf-8")
