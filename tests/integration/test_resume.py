"""`--packbench-resume`: attempts with errors are repeated, all others are kept, and what changed is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.runs.journal import Journal, read_journal
from tests.integration import killing
from tests.integration.model_server import json_lines, live, model_server, points, prepare, without_times
from tests.servers.wire import error_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.conftest import Project
    from tests.servers.fake import Received, Reply

RESUME = "--packbench-resume=latest"
FLAKY = """import os
if os.path.exists('broken'): raise RuntimeError('for now')
with open('asked.txt', 'a') as file: file.write(context.case_id + '\\n')"""


def called_cases(project: Project) -> list[str]:
    """The cases whose target was called, in order of their ids."""
    path = project.root / "asked.txt"
    return sorted(path.read_text("utf-8").splitlines()) if path.exists() else []


def run_with_errors(project: Project) -> None:
    """A run with two passed cases, a failed one and two errors, which would pass now."""
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


def test_only_attempts_with_errors_are_repeated(both: Project) -> None:
    run_with_errors(both)
    (before,) = both.folders()
    result = both.run_toy(RESUME)
    result.assert_outcomes(passed=4, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert called_cases(both) == ["x", "y"]
    result.stdout.fnmatch_lines(
        [
            f"packbench: suite toy: resuming run {before.name}: 3 attempts kept, 2 unfinished to repeat",
            "*score 0.50 < 0.80*",
            "*resumed: *not run again*",
        ]
    )
    assert both.folders() == [before]
    assert sorted(path.name for path in before.iterdir()) == [
        "payloads.jsonl", "records.jsonl", "report.json", "summary.md"
    ]  # fmt: skip
    assert {record["run_id"] for record in both.lines("records.jsonl")} == {before.name}
    assert [record["test_id"][-1] for record in both.lines("records.jsonl")] == ["a", "b", "w", "x", "y"]
    assert len(both.lines("payloads.jsonl")) == 5
    assert both.report()["summary"]["total"] == 5
    assert both.run_toy().ret == result.ret
    first, second = (without_times(json_lines(folder / "records.jsonl")) for folder in both.folders())
    assert first == second


def test_a_complete_run_is_judged_again_from_its_records(project: Project) -> None:
    project.case("good", python=FLAKY)
    project.case("low", points=0.5, python=FLAKY)
    project.run_toy("--packbench-gate=suite")
    records = (project.left() / "records.jsonl").read_bytes()
    again = project.run_toy(f"--packbench-resume={project.left().name}", "--packbench-gate=suite")
    again.assert_outcomes(passed=1, xfailed=1)
    assert again.ret == pytest.ExitCode.OK
    assert project.run_toy(RESUME).ret == pytest.ExitCode.TESTS_FAILED
    assert called_cases(project) == ["good", "low"]
    assert (project.left() / "records.jsonl").read_bytes() == records


def test_a_run_in_another_folder_is_resumed_by_its_path(project: Project) -> None:
    run_with_errors(project)
    (folder,) = project.folders()
    moved = project.root / "kept" / "toy" / folder.name
    moved.parent.mkdir(parents=True)
    folder.rename(moved)
    project.run_toy(f"--packbench-resume=kept/toy/{folder.name}").assert_outcomes(passed=4, failed=1)
    assert (moved / "report.json").exists()
    assert project.folders() == []


@pytest.mark.parametrize(
    ("run", "message"),
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
def test_a_run_that_does_not_exist_is_a_usage_error(project: Project, run: str, message: str) -> None:
    project.case("good")
    (project.root / "reports/benchmarks/toy/mine").mkdir(parents=True)
    result = project.run_toy(f"--packbench-resume={run}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --packbench-resume: {message}"])


def test_a_run_in_progress_is_not_resumed(both: Project) -> None:
    run_with_errors(both)
    newer = both.left().with_name("7" + both.left().name[1:])
    newer.mkdir()
    with Journal(newer / "journal.jsonl"):
        for run in ("latest", newer.name):
            result = both.run_toy(f"--packbench-resume={run}")
            assert result.ret == pytest.ExitCode.USAGE_ERROR
            message = f"ERROR: --packbench-resume: run {newer.name} is still running; wait until it ends, or stop it"
            assert message in result.stderr.str()
    newer.joinpath("journal.jsonl").unlink()
    newer.rmdir()
    both.run_toy(RESUME).assert_outcomes(passed=4, failed=1)


def test_an_edited_journal_is_refused_in_one_line(project: Project) -> None:
    project.case("a")
    project.case("b", python="import os\nif os.path.exists('dying'): os.kill(os.getpid(), 9)")
    (project.root / "dying").touch()
    subprocess.run([sys.executable, "-m", "pytest", "--packbench-suite=toy"], cwd=project.root, check=False)
    (project.root / "dying").unlink()
    path = project.left() / "journal.jsonl"
    header, line = path.read_text("utf-8").splitlines()
    entry = json.loads(line)
    extension = {key: value for key, value in entry["record"]["packbench"].items() if key != "terms"}
    for change, message in (
        ({"suite": "x"}, 'belongs to the suite "x"'),
        ({"record": None}, "has a score and no record"),
        ({"record": {}}, "test_suite: missing"),
        ({"record": {**entry["record"], "packbench": extension}}, "packbench.terms: is missing"),
    ):
        path.write_text(f"{header}\n{json.dumps(entry | change)}\n", encoding="utf-8")
        result = project.run_toy(RESUME)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            [f"ERROR: --packbench-resume: {path}: the result of *: *{message}*; start a new run"]
        )
        assert "Traceback" not in result.stderr.str()


def change_case(project: Project) -> None:
    project.case("a", points=0.9)


def change_rules(project: Project) -> None:
    project.suite(text="pack: toy\nthresholds: {accept: 0.4}\n")


def change_pack(project: Project) -> None:
    path = project.root / "conftest.py"
    path.write_text(path.read_text("utf-8").replace('version = "1"', 'version = "2"'), encoding="utf-8")


def remove_case(project: Project) -> None:
    (project.root / "storage/benchmarks/toy/cases/plain/a.json").unlink()


def change_target(project: Project) -> None:
    project.pytester.makepyfile(mine="def verify(request):\n    return {'points': 1.0}\n")


# what changes, the cases in the records afterwards, and those that the target `act` is called for
CHANGES: dict[str, tuple[Callable[[Project], object], list[str], list[str]]] = {
    "case a changed": (change_case, ["a", "b", "low", "x", "y"], ["x", "y"]),
    "case a no longer exists": (remove_case, ["b", "low", "x", "y"], ["x", "y"]),
    "the suite's scoring rules changed": (change_rules, ["a", "b", "low", "x", "y"], ["a", "b", "low", "x", "y"]),
    "the pack's version changed (from 1 to 2)": (
        change_pack,
        ["a", "b", "low", "x", "y"],
        ["a", "b", "low", "x", "y"],
    ),
    "the target changed (from hook:act to mine:verify)": (change_target, ["a", "b", "low", "x", "y"], []),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_change_is_refused_or_repeated(project: Project, message: str) -> None:
    run_with_errors(project)
    change, cases, called = CHANGES[message]
    change(project)
    options = ("--packbench-target=mine:verify",) if change is change_target else ()
    files = {path: path.read_bytes() for path in project.left().iterdir()}
    refused = project.run_toy(RESUME, *options)
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    advice = "start a new run, or set packbench_resume_changed = run to repeat what changed"
    run = f'run {project.left().name} of suite "toy"'
    assert f"ERROR: --packbench-resume: {run} can't be resumed: {message}; {advice}" in refused.stderr.str()
    assert {path: path.read_bytes() for path in project.left().iterdir()} == files
    assert called_cases(project) == []
    project.run_toy(RESUME, *options, "-o", "packbench_resume_changed=run")
    records = [record["packbench"] for record in project.lines("records.jsonl")]
    assert [record["case_id"] for record in records] == cases
    assert called_cases(project) == called
    assert {record["pack"] for record in records} == {"toy/2" if change is change_pack else "toy/1"}
    assert len({record["suite_sha256"] for record in records}) == 1
    assert records[0]["score"] == (0.9 if change is change_case else 1.0)


def test_workers_refuse_a_change(project: Project) -> None:
    run_with_errors(project)
    change_case(project)
    result = project.run_toy("-n2", RESUME)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "can't be resumed: case a changed; " in result.stderr.str() + result.stdout.str()


@pytest.mark.parametrize("spent", [{}, {"calls": 1, "tokens": "x", "uncounted": 0, "cost": 0.0, "currency": "USD"}])
def test_costs_that_an_earlier_report_lacks_are_left_out(project: Project, spent: dict[str, Any]) -> None:
    prepare(project, "points 1")
    with model_server() as server:
        project.run_toy(*live(server))
        path = project.left() / "report.json"
        report = json.loads(path.read_text("utf-8"))
        report["packbench"]["run"]["settings"]["spent"] = spent
        path.write_text(json.dumps(report), encoding="utf-8")
        project.run_toy(*live(server, RESUME)).assert_outcomes(passed=1)
    assert project.report()["packbench"]["run"]["settings"]["spent"]["calls"] == 0


def test_an_output_that_cannot_be_written_is_one_line(project: Project) -> None:
    project.case("good")
    (project.root / "file").touch()
    result = project.run_toy("--packbench-output=file/below")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str() + result.stderr.str()
    assert "packbench: cannot write reports to " in text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text


def test_a_full_disk_is_one_line_and_leaves_no_torn_file(project: Project) -> None:
    for number in range(4):
        project.case(f"case_{number}")
    # the limit is lifted between the runs: coverage writes a file at the end
    code = """
import resource, signal, pytest
import pytest_packbench.pytest_plugin.session, pytest_packbench.reports.markdown
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for most in (150, 700, 2000, 6000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    code = pytest.main(["--packbench-suite=toy", f"--packbench-output=most{most}", "-p", "no:cacheprovider"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print("exit code", most, int(code), flush=True)
"""
    # a file cut short must not be taken for a compiled module later
    command = [sys.executable, "-B", "-c", code]
    ended = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stdout + ended.stderr
    output = ended.stdout
    for most in (150, 700, 2000, 6000):
        run, found, output = output.partition(f"exit code {most} {int(pytest.ExitCode.TESTS_FAILED)}\n")
        assert found, ended.stdout
        errors = [line for line in run.splitlines() if "File too large" in line]
        assert errors, run
        assert all(line.startswith("packbench: ") for line in errors)
        for path in (project.root / f"most{most}").rglob("*.jsonl"):
            assert all(json.loads(line) for line in path.read_text("utf-8").splitlines())
        if any((project.root / f"most{most}").glob("toy/*/")):
            resumed = project.run_toy(RESUME, f"--packbench-output=most{most}")
            resumed.assert_outcomes(passed=4)
            assert len(list((project.root / f"most{most}").rglob("records.jsonl"))) == 1


def test_a_live_run_stores_each_trial_as_it_ends(both: Project) -> None:
    prepare(both, "points 1")
    stored: list[int] = []

    def count_trials(received: Received) -> Reply:
        journals = (both.root / "reports").rglob("journal*.jsonl")
        stored.append(len({entry.trial for path in journals for entry in read_journal(path)}))
        return points(received)

    with model_server(count_trials) as server:
        options = ("--packbench-trials=3", "--packbench-concurrency=1")
        both.run_toy(*live(server, *options)).assert_outcomes(passed=1)
    # the next trial may begin before the one before it is scored
    assert (len(stored), stored[0], stored[2] >= 1) == (3, 0, True)
    assert not list((both.root / "reports").rglob("journal*"))


def test_only_trials_with_errors_are_repeated(both: Project) -> None:
    prepare(both, "points 0.9", "points 0.5")
    good: list[Received] = []

    def refuse_the_second(received: Received) -> Reply:
        # calls of one case come one after the other, whichever worker has it
        if "points 0.9" in parse_request(received).text:
            good.append(received)
            if len(good) == 2:
                return error_reply(400, "not now")
        return points(received)

    with model_server(refuse_the_second) as server:
        options = ("--packbench-trials=3", "--packbench-concurrency=1")
        both.run_toy(*live(server, *options)).assert_outcomes(errors=1, failed=1)
        assert len(server.requests) == 6
        both.run_toy(*live(server, *options, RESUME)).assert_outcomes(passed=1, failed=1)
        assert len(server.requests) == 7
        refused = both.run_toy(*live(server, "--packbench-trials=2", RESUME))
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*can't be resumed: trials changed (from 3 to 2); *"])
    attempts = [(one["packbench"]["case_id"], one["packbench"]["trial"]) for one in both.lines("records.jsonl")]
    assert attempts == [(case, trial) for case in ("case_00", "case_01") for trial in range(3)]
    assert both.report()["packbench"]["run"]["settings"]["spent"]["calls"] == 7


# the third call of a target, any of the files that a run writes, and a journal cut within and between its lines
MOMENTS = [
    "call:1",
    "call:3",
    *(f"file:{number}" for number in range(1, 17)),
    *(f"bytes:{500 * n}" for n in range(1, 8)),
]
SCRIPT = Path(killing.__file__)


def run_killed(project: Project, cases: int, chains: dict[str, list[str]], *options: str) -> list[dict[str, Any]]:
    """Run sessions that are killed and resumed; return what each of them did."""
    conftest = project.root / "conftest.py"
    arming = f"import sys\nsys.path.insert(0, {str(SCRIPT.parent)!r})\nimport killing\nkilling.arm()\n"
    conftest.write_text(f"{conftest.read_text('utf-8')}\n{arming}", encoding="utf-8")
    for number in range(cases):
        python = "import killing; killing.called(context.case_id)"
        project.case(f"case_{number:02}", points=0.5 if number == 1 else 1.0, python=python)
    plan = json.dumps({"chains": chains, "options": options})
    command = [sys.executable, "-B", str(SCRIPT), plan]
    # looking for plugins takes longer than a run
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        ended = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    sessions: list[dict[str, Any]] = [json.loads(line) for line in ended.stdout.splitlines()]
    for session in sessions:
        assert session["killed"] or session["exit_code"] == 0, session["log"]
        assert session["moment"] or not session["killed"]
        # what was scored before is not called again, and nothing twice
        assert not set(session["scored"]) & set(session["calls"]), session
        assert len(session["calls"]) == len(set(session["calls"])), session
    return sessions


def records_of_run(folder: Path) -> Any:
    """Return the records of the only run in a folder, without what differs from run to run."""
    (run,) = (path for path in (folder / "toy").iterdir() if path.is_dir())
    assert {path.name for path in run.iterdir()} == {"report.json", "records.jsonl", "payloads.jsonl", "summary.md"}
    records = json_lines(run / "records.jsonl")
    rows = json.loads((run / "report.json").read_text("utf-8"))["packbench"]["cases"]
    assert [row["test_id"] for row in rows] == [record["test_id"] for record in records]
    assert {record["run_id"] for record in records} == {run.name}
    return without_times(records)


def test_a_run_killed_at_any_moment_is_resumed_to_the_records_of_a_whole_run(project: Project) -> None:
    whole: list[str] = []
    chains = {"out_whole": whole} | {f"out_{number}": [moment] for number, moment in enumerate(MOMENTS)}
    sessions = run_killed(project, 4, chains)
    assert [session["moment"] for session in sessions if session["moment"] and not session["killed"]] == []
    expected = records_of_run(project.root / "out_whole")
    assert len(expected) == 4
    for output, moments in chains.items():
        assert records_of_run(project.root / output) == expected, moments


def test_a_run_of_workers_killed_again_and_again_is_resumed(project: Project) -> None:
    moments = ["call:1", "call:2", "file:4", "call:1"]
    sessions = run_killed(project, 20, {"out_killed": moments, "out_whole": []}, "-n", "2")
    assert [session["killed"] for session in sessions] == [True] * 4 + [False] * 2
    records = records_of_run(project.root / "out_killed")
    assert len(records) == 20
    assert records == records_of_run(project.root / "out_whole")
