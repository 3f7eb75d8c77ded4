"""A run that was stopped, killed or broke goes on: each attempt stands in its records once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.runs.journal import Journal, read_journal
from tests.integration.test_live import SECRET, live, points, prepare
from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.wire import error_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.conftest import Project

RESUME = "--packbench-resume=latest"
FLAKY = """import os
if os.path.exists('broken'): raise RuntimeError('for now')
with open('asked.txt', 'a') as file: file.write(context.case_id + '\\n')"""


def stable_records(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what differs from run to run."""
    for record in records:
        for name in ("timestamp", "wall_clock_ms", "run_id"):
            del record[name]
    return records


def called_cases(project: Project) -> list[str]:
    """The cases whose target was called, in order of their ids."""
    path = project.root / "asked.txt"
    return sorted(path.read_text("utf-8").splitlines()) if path.exists() else []


def run_with_errors(project: Project) -> None:
    """A run with two passed, one failed and two broken cases, which would pass now."""
    for name in ("a", "b"):
        project.case(name, python=FLAKY.replace("os.path.exists('broken')", "False"))
    project.case("low", points=0.5, python=FLAKY.replace("os.path.exists('broken')", "False"))
    for name in ("x", "y"):
        project.case(name, python=FLAKY)
    (project.root / "broken").touch()
    project.run_toy().assert_outcomes(passed=2, failed=1, errors=2)
    (project.root / "broken").unlink()
    assert called_cases(project) == ["a", "b", "low"]
    (project.root / "asked.txt").unlink()


def test_only_what_broke_is_run_again(project: Project) -> None:
    run_with_errors(project)
    (before,) = project.folders()
    result = project.run_toy(RESUME)
    result.assert_outcomes(passed=4, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert called_cases(project) == ["x", "y"]
    assert project.folders() == [before]
    result.stdout.fnmatch_lines(
        [
            f"packbench: suite toy: resuming run {before.name}: 3 attempts kept, 2 unfinished to repeat",
            "*score 0.50 < 0.80*",
            "*resumed: *not run again*",
        ]
    )
    assert [record["test_id"][-1] for record in project.lines("records.jsonl")] == ["a", "b", "w", "x", "y"]
    assert {record["run_id"] for record in project.lines("records.jsonl")} == {before.name}
    assert not project.lines("errors.jsonl")
    assert [path.name for path in before.glob("journal*")] == []
    assert len(project.lines("payloads.jsonl")) == 5
    assert project.report()["summary"]["total"] == 5
    new = project.run_toy()
    assert new.ret == result.ret
    first, second = project.folders()
    lines = [
        [json.loads(line) for line in (folder / "records.jsonl").read_text("utf-8").splitlines()]
        for folder in (first, second)
    ]
    assert stable_records(lines[0]) == stable_records(lines[1])


def test_with_nothing_missing_the_stored_records_decide(project: Project) -> None:
    project.case("good", python=FLAKY)
    project.case("low", points=0.5, python=FLAKY)
    project.run_toy("--packbench-gate=suite")
    told_before = (project.left() / "records.jsonl").read_bytes()
    count = len(called_cases(project))
    again = project.run_toy(f"--packbench-resume={project.left().name}", "--packbench-gate=suite")
    again.assert_outcomes(passed=1, xfailed=1)
    assert again.ret == pytest.ExitCode.OK
    assert project.run_toy(RESUME).ret == pytest.ExitCode.TESTS_FAILED
    assert len(called_cases(project)) == count
    assert (project.left() / "records.jsonl").read_bytes() == told_before


def test_a_path_names_a_run_elsewhere(plain: Project) -> None:
    run_with_errors(plain)
    (folder,) = plain.folders()
    elsewhere = plain.root / "kept" / "toy"
    elsewhere.mkdir(parents=True)
    folder.rename(elsewhere / folder.name)
    plain.run_toy(f"--packbench-resume=kept/toy/{folder.name}").assert_outcomes(passed=4, failed=1)
    assert (elsewhere / folder.name / "report.json").exists()
    assert plain.folders() == []


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("latest", "no run of suite toy under *"),
        ("01HF8K0M5ZQEJ8C7XV6NQAYWZP", "no run 01HF8K0M5ZQEJ8C7XV6NQAYWZP of suite toy under *"),
        ("./nowhere", "no run at *nowhere; expected latest, a run id or the folder of a run"),
        ("mine", '"mine" is not a run id; expected latest, a run id or the folder of a run'),
        ("..", '".." is not a run id; expected latest, a run id or the folder of a run'),
        ("./storage", "*storage is not a run of suite toy; expected <output>/<suite>/<run id>"),
        ("reports/benchmarks/toy/mine", "*mine is not a run of suite toy; expected <output>/<suite>/<run id>"),
    ],
)
def test_a_run_that_is_not_there_is_a_usage_error(plain: Project, run: str, said: str) -> None:
    plain.case("good")
    (plain.root / "reports/benchmarks/toy/mine").mkdir(parents=True)
    result = plain.run_toy(f"--packbench-resume={run}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --packbench-resume: {said}"])


def test_a_run_that_is_under_way_is_not_resumed(project: Project) -> None:
    run_with_errors(project)
    broken = project.left()
    newer = broken.with_name("7" + broken.name[1:])
    newer.mkdir()
    with Journal(newer / "journal.jsonl"):
        for run in ("latest", newer.name):
            result = project.run_toy(f"--packbench-resume={run}")
            assert result.ret == pytest.ExitCode.USAGE_ERROR
            said = f"ERROR: --packbench-resume: run {newer.name} is still running; wait until it ends, or stop it"
            assert said in result.stderr.str()
    newer.joinpath("journal.jsonl").unlink()
    newer.rmdir()
    project.run_toy(RESUME).assert_outcomes(passed=4, failed=1)


def edit(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry.update(values)


DAMAGED: dict[str, Callable[[dict[str, Any]], None]] = {
    'belongs to the suite "x"': edit(suite="x"),
    "has a score and no record": edit(record=None),
    "test_suite: missing": edit(record={}),
    "packbench.terms: is missing": lambda entry: entry["record"]["packbench"].pop("terms"),
}


@pytest.mark.parametrize("said", DAMAGED)
def test_a_journal_that_somebody_edited_is_refused_in_one_line(plain: Project, said: str) -> None:
    plain.case("a")
    plain.case("b", python="import os\nif os.path.exists('dying'): os.kill(os.getpid(), 9)")
    (plain.root / "dying").touch()
    # the process dies with it
    subprocess.run([sys.executable, "-m", "pytest", "--packbench-suite=toy"], cwd=plain.root, check=False)
    (plain.root / "dying").unlink()
    path = plain.left() / "journal.jsonl"
    head, line = path.read_text("utf-8").splitlines()
    entry = json.loads(line)
    DAMAGED[said](entry)
    path.write_text(f"{head}\n{json.dumps(entry)}\n", encoding="utf-8")
    result = plain.run_toy(RESUME)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --packbench-resume: {path}: the result of *: *{said}*; start a new run"])
    assert "Traceback" not in result.stderr.str()


@pytest.mark.parametrize("spent", [{}, {"calls": 1, "tokens": "x", "uncounted": 0, "cost": 0.0, "currency": "USD"}])
def test_what_a_report_does_not_tell_of_its_costs_is_left_out(
    plain: Project, monkeypatch: pytest.MonkeyPatch, spent: dict[str, Any]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    prepare(plain, "points 1")
    with FakeServer(points) as server:
        plain.run_toy(*live(server))
        path = plain.left() / "report.json"
        report = json.loads(path.read_text("utf-8"))
        report["packbench"]["run"]["settings"]["spent"] = spent
        path.write_text(json.dumps(report), encoding="utf-8")
        plain.run_toy(*live(server, RESUME)).assert_outcomes(passed=1)
    assert plain.report()["packbench"]["run"]["settings"]["spent"]["calls"] == 0


def change_case(project: Project) -> None:
    project.case("a", points=0.9)


def change_rules(project: Project) -> None:
    project.suite(text="pack: toy\nthresholds: {accept: 0.4}\n")


def change_pack(project: Project) -> None:
    path = project.root / "conftest.py"
    path.write_text(path.read_text("utf-8").replace('version = "1"', 'version = "2"'), encoding="utf-8")


def remove_case(project: Project) -> None:
    (project.root / "storage/benchmarks/toy/cases/plain/a.json").unlink()


CHANGES = {
    "case a changed": (change_case, ()),
    "case a no longer exists": (remove_case, ()),
    "the suite's scoring rules changed": (change_rules, ()),
    "the pack's version changed (from 1 to 2)": (change_pack, ()),
    "the target changed (from hook:act to mine:verify)": (lambda _: None, ("--packbench-target=mine:verify",)),
}


@pytest.mark.parametrize("said", CHANGES)
def test_what_changed_is_named_and_refused(project: Project, said: str) -> None:
    run_with_errors(project)
    project.pytester.makepyfile(mine="def verify(request):\n    return {'points': 1.0}\n")
    change, options = CHANGES[said]
    change(project)
    files = {path: path.read_bytes() for path in project.left().iterdir()}
    result = project.run_toy(RESUME, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    advice = "start a new run, or set packbench_resume_changed = run to repeat what changed"
    expected = (
        f'ERROR: --packbench-resume: run {project.left().name} of suite "toy" can\'t be resumed: {said}; {advice}'
    )
    assert expected in result.stderr.str() + result.stdout.str()
    assert "Traceback" not in result.stderr.str()
    assert {path: path.read_bytes() for path in project.left().iterdir()} == files
    assert called_cases(project) == []


@pytest.mark.parametrize("said", CHANGES)
def test_what_changed_is_run_anew_where_that_is_wanted(plain: Project, said: str) -> None:
    run_with_errors(plain)
    plain.pytester.makepyfile(mine="def verify(request):\n    return {'points': 1.0}\n")
    change, options = CHANGES[said]
    change(plain)
    plain.pytester.makeini("[pytest]\npackbench_resume_changed = run\n")
    plain.run_toy(RESUME, *options)
    ids = [record["packbench"]["case_id"] for record in plain.lines("records.jsonl")]
    left = [] if "no longer exists" in said else ["a"]
    assert ids == [*left, "b", "low", "x", "y"]
    assert {record["packbench"]["pack"] for record in plain.lines("records.jsonl")} == {
        "toy/2" if "version" in said else "toy/1"
    }
    assert len({record["packbench"]["suite_sha256"] for record in plain.lines("records.jsonl")}) == 1
    if said == "case a changed":
        assert plain.lines("records.jsonl")[0]["packbench"]["score"] == 0.9
        assert called_cases(plain) == ["x", "y"]


def test_a_run_that_can_not_be_written_says_so_and_loses_nothing_older(plain: Project) -> None:
    plain.case("good")
    (plain.root / "file").touch()
    result = plain.run_toy("--packbench-output=file/below")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str() + result.stderr.str()
    assert "packbench: cannot write reports to " in text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text


@pytest.mark.parametrize("most", [150, 700, 2000, 6000])
def test_a_full_disk_is_one_line_and_leaves_nothing_torn(plain: Project, most: int) -> None:
    for number in range(4):
        plain.case(f"case_{number}")
    code = (
        "import resource, signal, sys, pytest\n"
        "import pytest_packbench.pytest_plugin.session, pytest_packbench.reports.markdown\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, resource.RLIM_INFINITY))\n"
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    # a file cut short must not be taken for a compiled module later
    command = [sys.executable, "-B", "-c", code, "--packbench-suite=toy", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=plain.root, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stderr
    said = [line for line in done.stdout.splitlines() if "File too large" in line]
    assert said, done.stdout
    assert all(line.startswith("packbench: ") for line in said)
    assert "Traceback" not in done.stdout + done.stderr
    for path in (plain.root / "reports").rglob("*.jsonl"):
        for line in path.read_text("utf-8").splitlines(keepends=True):
            assert line.endswith("\n")
            json.loads(line)
    assert not list((plain.root / "reports").rglob("*.tmp"))
    if plain.folders():
        plain.run_toy(RESUME).assert_outcomes(passed=4)
        assert len(plain.lines("records.jsonl")) == 4


def test_a_live_run_journals_each_trial_as_it_ends(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal holds the first trial while the last is still under way."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    prepare(project, "points 1")
    seen: list[int] = []

    def looking(received: Received) -> Reply:
        journals = (project.root / "reports").rglob("journal*.jsonl")
        seen.append(len({entry.trial for path in journals for entry in read_journal(path)}))
        return points(received)

    with FakeServer(looking) as server:
        options = ("--packbench-trials=3", "--packbench-concurrency=1")
        project.run_toy(*live(server, *options)).assert_outcomes(passed=1)
    # the next trial may begin before the one before it is scored
    assert len(seen) == 3
    assert seen[0] == 0
    assert seen[2] >= 1
    assert not list((project.root / "reports").rglob("journal*"))


def test_only_the_trials_that_broke_are_made_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    prepare(project, "points 0.9", "points 0.5")
    good = 0

    def second_breaks(received: Received) -> Reply:
        # calls of one case come one after the other, whichever worker has it
        nonlocal good
        if "points 0.9" in parse_request(received).text:
            good += 1
            if good == 2:
                return error_reply(400, "not now")
        return points(received)

    with FakeServer(second_breaks) as server:
        options = ("--packbench-trials=3", "--packbench-concurrency=1")
        project.run_toy(*live(server, *options)).assert_outcomes(errors=1, failed=1)
        assert len(server.requests) == 6
        project.run_toy(*live(server, *options, RESUME)).assert_outcomes(passed=1, failed=1)
        assert len(server.requests) == 7
        refused = project.run_toy(*live(server, "--packbench-trials=2", RESUME))
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*can't be resumed: trials changed (from 3 to 2); *"])
    found = [(one["packbench"]["case_id"], one["packbench"]["trial"]) for one in project.lines("records.jsonl")]
    assert found == [(case, trial) for case in ("case_00", "case_01") for trial in range(3)]
    assert project.report()["packbench"]["run"]["settings"]["spent"]["calls"] == 7
