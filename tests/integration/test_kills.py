"""Runs that are killed or told to end: no finished answer is lost, none is asked for again, the records are equal."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import kills
from pytest_packbench.model.result import CaseResult, EndedAttempt
from pytest_packbench.runs.journal import is_locked, read_entries
from tests.integration.conftest import json_lines
from tests.integration.options.conftest import Model, points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.conftest import Project
    from tests.servers.fake import Received, Reply

CASES = 24
ONE, EIGHT, WORKERS, RECORD = kills.LIVE
PLAIN, TOGETHER, SHARED = kills.FIXTURE
BUSY = "\n\ndef pytest_runtest_logfinish(nodeid):\n    time.sleep(60)\n"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kills.Bench]:
    folder = tmp_path_factory.mktemp("kills") / "project"
    with kills.Warm() as warm, kills.Bench(folder, warm, cases=CASES) as bench:
        yield bench


@pytest.fixture
def busy(bench: kills.Bench) -> Iterator[None]:
    """pytest's main thread is busy for long after the first case."""
    conftest = bench.folder / "conftest.py"
    conftest.write_text(kills.CONFTEST + BUSY, encoding="utf-8")
    yield
    conftest.write_text(kills.CONFTEST, encoding="utf-8")


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "variant"),
    [*enumerate([EIGHT, ONE, EIGHT, RECORD, EIGHT, WORKERS, PLAIN, TOGETHER, PLAIN, SHARED])],
    ids=lambda value: value.name if isinstance(value, kills.Variant) else str(value),
)
def test_a_killed_run_loses_no_finished_answer_and_repeats_none(
    bench: kills.Bench, number: int, variant: kills.Variant
) -> None:
    moments = kills.moments_of(random.Random(number), CASES - 4)  # noqa: S311 - moments
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
    entries = read_entries(journal)
    assert {f"question {int(entry.case_id[5:])}" for entry in entries} == set(bench.model.sent(time.time()))
    assert len({entry.case_id for entry in entries if isinstance(entry, CaseResult)}) < 17


def test_workers_end_when_their_controller_is_killed(bench: kills.Bench) -> None:
    # a worker has nothing to report before the last trial of a case
    options = ("-k", "case_00", "--packbench-trials=12")
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
    assert len(bench.model.asked) - 8 <= len(kept) <= len(bench.model.asked) < 60
    bench.start(WORKERS, "out_orphans", *options, "--packbench-resume=latest")
    assert bench.wait() == pytest.ExitCode.TESTS_FAILED, bench.log()
    assert len(bench.model.asked) == 120 - len(kept)
    (records,) = bench.folder.glob("out_orphans/kills/*/records.jsonl")
    assert len(json_lines(records)) == 120


def attempts(bench: kills.Bench, output: str) -> set[tuple[str, int]]:
    """Return the attempts in the journals of a run: case and trial."""
    paths = bench.folder.glob(f"{output}/kills/*/journal*.jsonl")
    entries = [entry for path in paths for entry in read_entries(path)]
    # an attempt that was cancelled is made again
    return {(entry.case_id, entry.trial) for entry in entries if not (isinstance(entry, CaseResult) and entry.kind)}


@pytest.mark.parametrize("variant", [EIGHT, WORKERS, PLAIN], ids=lambda variant: variant.name)
def test_sigterm_leaves_a_partial_run(bench: kills.Bench, variant: kills.Variant) -> None:
    output = f"out_{variant.name.replace(' ', '_')}"
    process = bench.start(variant, output)
    until(lambda: len(bench.ended()) >= 6)
    finished = {text for text, _ in bench.ended()}
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


def journals(project: Project) -> list[Path]:
    return list((project.root / "reports").rglob("journal*.jsonl"))


def test_the_journal_is_written_before_the_first_request(both: Project, model: Model) -> None:
    both.prepare("points 1", "points 0.5")
    headers: list[dict[str, Any]] = []

    def look(received: Received) -> Reply:
        (path,) = (path for path in journals(both) if path.name == "journal.jsonl")
        headers.append(json.loads(path.read_text("utf-8").splitlines()[0]))
        return points(received)

    model.handler = look
    model.run(both).assert_outcomes(passed=1, failed=1)
    assert [header["run"]["mode"] for header in headers] == ["live", "live"]


def test_a_folder_that_cannot_be_written_is_told_before_the_first_request(both: Project, model: Model) -> None:
    both.prepare("points 1")
    both.write("taken", "a file")
    result = model.run(both, "--packbench-output=taken")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert len(model.requests) == 0
    message = f"ERROR: cannot write reports to {both.root / 'taken' / 'toy'}*: *; no model was called"
    result.stderr.fnmatch_lines([message])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_an_answer_whose_scoring_ends_the_process_is_not_asked_for_again(project: Project, model: Model) -> None:
    project.prepare("points 1", "points 0.5", "points 0.9")
    project.extend_conftest("""
        import os
        from pathlib import Path

        scored = Toy.score

        def score(self, case, outcome, rules):
            if Path("dying").exists():
                os._exit(9)
            return scored(self, case, outcome, rules)

        Toy.score = score
    """)
    (project.root / "dying").touch()
    options = model.options("--packbench-suite=toy", "--packbench-concurrency=1")
    for _ in range(2):
        resume = ["--packbench-resume=latest"] * bool(journals(project))
        assert project.pytester.runpytest_subprocess(*options, *resume).ret == 9
    asked = len(model.requests)
    (journal,) = journals(project)
    entries = read_entries(journal)
    assert all(isinstance(entry, EndedAttempt) for entry in entries)
    assert 1 <= len(entries) <= asked <= 3
    (project.root / "dying").unlink()
    project.run_toy(*options, "--packbench-resume=latest").assert_outcomes(passed=2, failed=1)
    assert len(model.requests) == 3 + asked - len(entries)
    assert not journals(project)
    first = project.records()
    model.run(project, "--packbench-output=whole")
    (whole,) = project.root.glob("whole/toy/*/records.jsonl")
    for record in json_lines(whole):
        assert kills.without_times(record) == kills.without_times(first[record["packbench"]["case_id"]])


def test_answers_of_cases_that_are_not_selected_are_scored(project: Project, model: Model) -> None:
    project.prepare("points 1", "points 0.5")
    model.run(project)
    folder = project.left()
    results = {record["packbench"]["case_id"]: record for record in project.lines("records.jsonl")}
    assert len(results) == 2
    journal_of_answers(project, folder)
    options = model.options("--packbench-resume=latest")
    result = project.run("storage/benchmarks/toy/cases/plain/case_00.json", *options)
    result.assert_outcomes(passed=1)
    assert len(model.requests) == 2
    assert kills.without_times(project.lines("records.jsonl")) == kills.without_times(list(results.values()))


def journal_of_answers(project: Project, folder: Path) -> None:
    """Replace a run by the journal that it had when its targets had ended."""
    from pytest_packbench.runs.journal import Journal
    from pytest_packbench.runs.report import open_report

    report = open_report(folder)
    payloads = {line["case_id"]: line["result"] for line in project.lines("payloads.jsonl")}
    with Journal(folder / "journal.jsonl", lambda: report.run) as journal:
        for result in report.results:
            record = project.records()[result.case_id]
            journal.append(
                EndedAttempt(
                    suite="toy",
                    case_id=result.case_id,
                    nodeid=result.nodeid,
                    file=result.file,
                    trial=0,
                    finished_ns=time.time_ns(),
                    duration_ms=1,
                    case_sha256=result.case_sha256,
                    cassette_sha256=None,
                    llm_backend="openai",
                    llm_model="fake-1",
                    tokens_input=record["tokens_input"],
                    tokens_output=record["tokens_output"],
                    calls=1,
                    cached=0,
                    stale=False,
                    remark="",
                    payload=payloads[result.case_id],
                    recording=None,
                )
            )
    for path in folder.iterdir():
        if path.name != "journal.jsonl":
            path.unlink()
