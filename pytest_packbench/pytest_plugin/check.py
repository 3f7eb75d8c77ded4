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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.run import CHECK_FOLDER
from pytest_packbench.model.suite import PENDING
from pytest_packbench.pytest_plugin.case_run import file_runs, item_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.result import Result
    from pytest_packbench.pytest_plugin.recorder import Recorder, SuiteRun

    Ends = dict[str, list[Any]]


_ORDER, _ENDS = "order.json", "ends.json"
_MOST_ALONE = 3
# recording again changes nothing about it
_ADVICE = re.compile("; (if the pipeline|record it again).*")
# what belongs to the recording run, or would wait for a person
_DROPPED = re.compile("--(packbench-resume|pdb|trace)(=.*)?")


def check_recordings(recorder: Recorder) -> None:
    """Replay what a run has recorded, and note in the run of each suite what does not replay."""
    recorded: dict[str, tuple[SuiteRun, Result]] = {}
    for run in recorder.runs.values():
        due = {nodeid: trials[0] for nodeid, trials in run.by_nodeid.items() if trials[0].attempt.cassette_sha256}
        caller = recorder.contexts.opened(run.suite).caller
        if not run.suite.config.recording.check:
            run.checked = "not checked (recording: check is off)"
        elif caller.opaque and not caller.runs_offline:
            run.checked = "not checked: a server is not replayed"
        elif due and not run.targets:
            recorded |= {nodeid: (run, result) for nodeid, result in due.items()}
    if not recorded:
        return
    ends, problem = _replayed(recorder, list(reversed(recorded)))
    differing = [nodeid for nodeid, (_, result) in recorded.items() if _difference(result, ends.get(nodeid))]
    for nodeid in differing if ends else ():
        run, result = recorded[nodeid]
        alone = ends if len(run.differing) >= _MOST_ALONE else _replayed(recorder, [nodeid])[0]
        difference = _difference(result, alone.get(nodeid))
        if not difference:
            difference = f"it does alone, but not after other cases: {_difference(result, ends.get(nodeid))}"
        run.differing.append(f"{result.case.case_id} does not replay: {difference}")
    for run in {id(run): run for run, _ in recorded.values()}.values():
        count = sum(each is run for each, _ in recorded.values())
        run.checked = f"{count - len(run.differing)} of {pluralize(count, 'recording')} replay" if ends else problem


def _difference(result: Result, end: Sequence[Any] | None) -> str:
    """Return how a replay ended otherwise than the recording; empty where it did not."""
    if end is None:
        return "the process that replayed it ended before"
    verdict, score, message = end
    if (verdict, score) == (result.score.verdict, result.score.score):
        return ""
    shown = (f"{name}{'' if points is None else f' {points:.2f}'}" for name, points in _scores(result, end))
    return _ADVICE.sub("", message) or "recorded as {}, replayed as {}".format(*shown)


def _scores(result: Result, end: Sequence[Any]) -> list[tuple[str, float | None]]:
    return [(result.score.verdict, result.score.score), (end[0], end[1])]


def _replayed(recorder: Recorder, order: list[str]) -> tuple[Ends, str]:
    """Replay recordings in a process of its own.

    Args:
        recorder: that of the run.
        order: the node ids of the cases, in the order in which they run.

    Returns:
        How each case ended, by node id; and why there is none, if there is none.
    """
    config, serving = recorder.config, recorder.contexts.serving
    here = str(config.invocation_params.dir)
    with TemporaryDirectory() as folder, nullcontext() if serving is None else serving.restored():
        Path(folder, _ORDER).write_text(json.dumps(order), encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name != "PACKBENCH_RESUME"}
        # as `pytest` itself does, unless python was started otherwise
        path = [] if {"", here}.intersection(sys.path) else ["-P"]
        command = [sys.executable, *path, "-m", "pytest", *_arguments(config, folder)]
        done = subprocess.run(
            command,
            cwd=here,
            env=environment | {CHECK_FOLDER: folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if (ends := Path(folder, _ENDS)).exists():
            return json.loads(ends.read_text("utf-8")), ""
    printed = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return {}, f"not checked: the process that replays them ended with exit code {done.returncode}: {printed[-1:]}"


def _arguments(config: pytest.Config, folder: str) -> list[str]:
    words, is_dropped = [], False
    for word in map(str, config.invocation_params.args):
        dropped = _DROPPED.fullmatch(word)
        if not (is_dropped or dropped):
            words.append(word)
        is_dropped = word == "--packbench-resume"
    options = {"mode": "fixture", "backend": "recorded", "output": f"{folder}/output", "concurrency": 1, "trials": 1}
    words += [f"--packbench-{name}={value}" for name, value in options.items()]
    words += [f"--override-ini=cache_dir={folder}/cache", "--maxfail=0"]
    return [*words, "-n0"] if config.pluginmanager.hasplugin("xdist") else words


class Check:
    """Runs the cases that were recorded, and notes how they end; in the process of the check."""

    def __init__(self, recorder: Recorder, folder: str) -> None:
        self._recorder = recorder
        self._folder = Path(folder)

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
        for run in file_runs(session.items):
            if run.suite.pending_path(run.name).exists():
                suite = replace(run.suite, fixtures=f"{run.suite.fixtures}/{PENDING}")
                run.context = replace(run.open_context(), suite=suite)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write how the cases ended."""
        ends = {
            nodeid: (trials[0].score.verdict, trials[0].score.score, trials[0].score.message)
            for run in self._recorder.runs.values()
            for nodeid, trials in run.by_nodeid.items()
        }
        (self._folder / _ENDS).write_text(json.dumps(ends), encoding="utf-8")
