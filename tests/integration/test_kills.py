"""Runs that are killed or told to end: no finished answer is lost, none is asked for again, the records are equal."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from benchmarks.stress import kills, session
from pytest_packbench.model.result import Result
from pytest_packbench.runs.journal import is_locked, read_journal
from tests.integration.conftest import json_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CASES = 24
ONE, EIGHT, WORKERS, RECORD = kills.LIVE
PLAIN, TOGETHER, SHARED = kills.FIXTURE
BUSY = "\n\ndef pytest_runtest_logfinish(nodeid):\n    time.sleep(60)\n"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kills.Bench]:
    folder = tmp_path_factory.mktemp("kills") / "project"
    with session.Warm() as warm, kills.Bench(folder, warm, cases=CASES) as bench:
        yield bench


@pytest.fixture
def busy(bench: kills.Bench) -> Iterator[None]:
    """pytest's main thread is busy for long after the first case."""
    conftest = bench.folder / "conftest.py"
    before = conftest.read_text("utf-8")
    conftest.write_text(before + BUSY, encoding="utf-8")
    yield
    conftest.write_text(before, encoding="utf-8")


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "variant"),
    [*enumerate([EIGHT, ONE, RECORD, EIGHT, WORKERS, PLAIN, TOGETHER, SHARED])],
    ids=lambda value: value.name if isinstance(value, kills.Variant) else str(value),
)
def test_a_killed_run_loses_no_finished_answer_and_repeats_none(
    bench: kills.Bench, number: int, variant: kills.Variant
) -> None:
    moments = kills.moments_of(random.Random(number), CASES - 10)  # noqa: S311 - moments
    outcome = bench.run_killed(variant, moments)
    assert outcome.is_good, (outcome, bench.log())
    assert outcome.killed


@pytest.mark.usefixtures("busy")
def test_answers_are_kept_while_the_main_thread_is_busy(bench: kills.Bench) -> None:
    process = bench.start(EIGHT, "out_busy")
    # those of the first case and of the 16 that may run ahead
    until(lambda: len(bench.model.sent(time.time())) >= 17)
    until(lambda: len(bench.kept("out_busy")) >= 17)
    os.killpg(process, signal.SIGKILL)
    bench.wait()
    (journal,) = bench.folder.glob("out_busy/kills/*/journal.jsonl")
    entries = read_journal(journal)[1]
    assert {f"question {int(entry.case.case_id[5:])}" for entry in entries} == set(bench.model.sent(time.time()))
    assert len({entry.case.case_id for entry in entries if isinstance(entry, Result)}) < 17


def test_workers_end_when_their_controller_is_killed(bench: kills.Bench) -> None:
    # a worker has nothing to report before the last trial of a case
    options = ("-k", "case_000 or case_001", "--packbench-trials=60")
    process = bench.start(WORKERS, "out_orphans", *options)
    until(lambda: len(bench.model.sent(time.time())) >= 4)
    os.kill(process, signal.SIGKILL)
    killed = time.time()
    assert bench.wait() == -signal.SIGKILL
    until(lambda: not any(map(is_locked, bench.folder.glob("out_orphans/kills/*/journal*.jsonl"))))
    time.sleep(1)
    late = [text for text, at in bench.model.asked if at > killed + 0.5]
    assert late == []
    kept = attempts(bench, "out_orphans")
    assert len(bench.model.asked) - 8 <= len(kept) <= len(bench.model.asked) < 100
    bench.start(WORKERS, "out_orphans", *options, "--packbench-resume=latest")
    assert bench.wait() == pytest.ExitCode.TESTS_FAILED, bench.log()
    assert len(bench.model.asked) == 120 - len(kept)
    (records,) = bench.folder.glob("out_orphans/kills/*/records.jsonl")
    assert len(json_lines(records)) == 120


def attempts(bench: kills.Bench, output: str) -> set[tuple[str, int]]:
    """Return the attempts in the journals of a run: case and trial."""
    paths = bench.folder.glob(f"{output}/kills/*/journal*.jsonl")
    entries = [entry for path in paths for entry in read_journal(path)[1]]
    # an attempt that was cancelled is made again
    return {
        (entry.case.case_id, entry.attempt.trial)
        for entry in entries
        if not (isinstance(entry, Result) and entry.score.kind)
    }


@pytest.mark.parametrize("variant", [EIGHT, WORKERS, PLAIN], ids=lambda variant: variant.name)
def test_sigterm_leaves_a_partial_run(bench: kills.Bench, variant: kills.Variant) -> None:
    output = f"out_{variant.name.replace(' ', '_')}"
    process = bench.start(variant, output)
    until(lambda: len(bench.ended()) >= 6)
    # what ended a moment ago may be on its way to the journal
    finished = {text for text, at in bench.ended() if at < time.time() - 0.1}
    os.kill(process, signal.SIGTERM)
    os.kill(process, signal.SIGTERM)
    assert bench.wait() == pytest.ExitCode.INTERRUPTED, bench.log()
    (folder,) = bench.folder.glob(f"{output}/kills/*/")
    assert not list(folder.glob("journal*"))
    summary = (folder / "summary.md").read_text("utf-8")
    assert "interrupted: " in summary
    assert f"of {CASES} cases did not run" in summary
    assert finished <= bench.kept(output)
    assert "Traceback" not in bench.log()
    bench.start(variant, output, "--packbench-resume=latest")
    assert bench.wait() == pytest.ExitCode.TESTS_FAILED, bench.log()
    assert not finished & set(bench.asked(variant))
    assert bench.is_whole(variant.mode, output)
