"""`--packbench-resume`: attempts with errors are repeated, all others are kept, and what changed is refused."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.runs.journal import Journal, lock_folder
from tests.integration import killing
from tests.integration.conftest import CASES, MANY, ended, json_lines, toy_case, without_times
from tests.integration.options.conftest import points
from tests.servers.wire import error_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received, Reply

RESUME = "--packbench-resume=latest"
ALL = ["a", "b", "low", "x", "y"]
RUN_FILES = {"payloads.jsonl", "records.jsonl", "report.html", "report.json", "summary.md"}
CALLED = "with open('called.txt', 'a') as file: file.write(context.case_id + '\\n')"
FLAKY = f"import os\nif os.path.exists('broken'): raise RuntimeError('for now')\n{CALLED}"


def called_cases(project: Project) -> list[str]:
    """The cases whose target was called, in order of their ids."""
    path = project.root / "called.txt"
    return sorted(path.read_text("utf-8").splitlines()) if path.exists() else []


def verdicts_by_case(project: Project) -> dict[str, list[str]]:
    """Return the verdicts in the report, by case and in order of trials."""
    verdicts: dict[str, list[str]] = {}
    for row in sorted(project.document()["cases"], key=lambda row: row["trial"]):
        verdicts.setdefault(row["case_id"], []).append(row["verdict"])
    return verdicts


def run_with_errors(project: Project) -> None:
    """A run with two passed cases, a failed one and two errors, which would pass now."""
    for name, score in (("a", 1.0), ("b", 1.0), ("low", 0.5)):
        project.case(name, points=score, python=CALLED)
    for name in ("x", "y"):
        project.case(name, python=FLAKY)
    (project.root / "broken").touch()
    ended(project.run_toy(), 1, passed=2, failed=1, errors=2)
    (project.root / "broken").unlink()
    assert called_cases(project) == ["a", "b", "low"]
    (project.root / "called.txt").unlink()


def test_only_attempts_with_errors_are_repeated(both: Project) -> None:
    run_with_errors(both)
    before = both.left()
    kept = f"packbench: suite toy: resuming run {before.name}: 3 attempts kept, 2 unfinished to repeat"
    ended(both.run_toy(RESUME), 1, kept, "*score 0.50 < 0.80*", "*resumed: *not run again*", passed=4, failed=1)
    assert called_cases(both) == ["x", "y"]
    assert both.folders() == [before]
    records = both.text("records.jsonl")
    assert {path.name for path in before.iterdir()} == RUN_FILES
    assert {record["run_id"] for record in both.lines("records.jsonl")} == {before.name}
    assert list(both.records()) == ALL
    assert len(both.lines("payloads.jsonl")) == both.report()["summary"]["total"] == 5
    # a complete run is judged again from its records, by gates too, and by its path in another folder
    moved = both.root / "kept" / "toy" / before.name
    moved.parent.mkdir(parents=True)
    before.rename(moved)
    again = both.run_toy(f"--packbench-resume=kept/toy/{moved.name}", "--packbench-gate=suite")
    ended(again, 0, passed=4, xfailed=1)
    assert (called_cases(both), both.folders()) == (["x", "y"], [])
    assert (moved / "records.jsonl").read_text("utf-8") == records
    ended(both.run_toy(), 1)
    assert without_times(both.lines("records.jsonl")) == without_times(json_lines(moved / "records.jsonl"))


UNKNOWN_RUNS = (
    *("latest", "01HF8K0M5ZQEJ8C7XV6NQAYWZP", "./nowhere", "mine", "..", "./storage"),
    "reports/benchmarks/toy/mine",
)


def test_a_run_that_does_not_exist_or_was_edited_is_a_usage_error(project: Project, expected: ExpectedTexts) -> None:
    project.case("a")
    project.case("b", python="import os\nif os.path.exists('dying'): os.kill(os.getpid(), 9)")
    mine = project.root / "reports/benchmarks/toy/mine"
    mine.mkdir(parents=True)
    lines = []

    def refuse(title: str, run: str = "latest") -> None:
        result = ended(project.run_toy(f"--packbench-resume={run}"), 4)
        error = re.sub(r"toy/01\w{24}", "toy/<RUN>", result.stderr.str().strip())
        lines.append(f"{title}: {error}\n".replace(str(project.root), "<PROJECT>"))

    for run in UNKNOWN_RUNS:
        refuse(run, run)
    mine.rmdir()
    (project.root / "dying").touch()
    subprocess.run([sys.executable, "-m", "pytest", "--packbench-suite=toy"], cwd=project.root, check=False)
    (project.root / "dying").unlink()
    path = project.left() / "journal.jsonl"
    header, line = path.read_text("utf-8").splitlines()
    entry = json.loads(line)
    record = entry["record"]
    extension = {key: value for key, value in record["packbench"].items() if key != "terms"}
    changes: dict[str, dict[str, Any]] = {
        "suite": {"suite": "x"},
        "no record": {"record": None},
        "empty record": {"record": {}},
        "no terms": {"record": {**record, "packbench": extension}},
        "no number": {"payload": {"points": math.inf}},
        "another test id": {"test_id": "toy:plain:c"},
        "another case": {"case_id": "b"},
        "another score": {"score": 0.25},
        "another verdict": {"record": {**record, "passed": not record["passed"]}},
    }
    for title, change in changes.items():
        path.write_text(f"{header}\n{json.dumps(entry | change)}\n", encoding="utf-8")
        refuse(title)
    expected.check("".join(lines))


def test_a_run_in_progress_is_not_resumed(project: Project) -> None:
    run_with_errors(project)
    running = "--packbench-resume: run {} is still running; wait until it ends, or stop it*"
    # another session resumes it
    lock = lock_folder(project.left())
    assert lock is not None
    project.refused(running.format(project.left().name), RESUME)
    os.close(lock)
    newer = project.left().with_name("7" + project.left().name[1:])
    newer.mkdir()
    with Journal(newer / "journal.jsonl"):
        for run in ("latest", newer.name):
            project.refused(running.format(newer.name), f"--packbench-resume={run}")
    # a folder that can't be opened has no lock
    assert (lock_folder(newer / "missing") or 0) < 0


def change_pack(project: Project) -> None:
    path = project.root / "conftest.py"
    path.write_text(path.read_text("utf-8").replace('version = "1"', 'version = "2"'), encoding="utf-8")


MINE = "def verify(request):\n    return {'points': 1.0}\n"
LOWER = "pack: toy\nthresholds: {accept: 0.4}\n"
# what changes, the cases in the records afterwards, and those that the target `act` is called for
CHANGES: dict[str, tuple[Callable[[Project], object], list[str], list[str]]] = {
    "case a changed": (lambda project: project.case("a", points=0.9), ALL, ["x", "y"]),
    "case a no longer exists": (lambda project: (project.root / CASES / "plain/a.json").unlink(), ALL[1:], ["x", "y"]),
    "the suite's scoring rules changed": (lambda project: project.suite(text=LOWER), ALL, ALL),
    "the pack's version changed (from 1 to 2)": (change_pack, ALL, ALL),
    "the target changed (from hook:act to mine:verify)": (lambda project: project.write("mine.py", MINE), ALL, []),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_change_is_refused_or_repeated(project: Project, message: str) -> None:
    run_with_errors(project)
    change, cases, called = CHANGES[message]
    change(project)
    options = ("--packbench-target=mine:verify",) if "target" in message else ()
    files = {path: path.read_bytes() for path in project.left().iterdir()}
    advice = (
        "repeat the options of that run, start a new run, or set packbench_resume_changed = run to repeat what changed"
    )
    reason = f'run {project.left().name} of suite "toy" can\'t be resumed: {message}*; {advice}*'
    project.refused(f"--packbench-resume: {reason}", RESUME, *options)
    assert {path: path.read_bytes() for path in project.left().iterdir()} == files
    assert called_cases(project) == []
    # workers use no result that the controller has discarded
    workers = ("-n", "2") if "rules" in message else ()
    again = project.run_toy(RESUME, *options, "-o", "packbench_resume_changed=run", *workers)
    again.stdout.fnmatch_lines(["*answer* of an earlier session of this run: replaced, because *"])
    assert "of an earlier session of this run: replaced" in project.text()
    records = [record["packbench"] for record in project.lines("records.jsonl")]
    assert [record["case_id"] for record in records] == cases
    assert called_cases(project) == called
    assert {record["pack"] for record in records} == {"toy/2" if "version" in message else "toy/1"}
    assert len({record["suite_sha256"] for record in records}) == 1
    assert records[0]["score"] == (0.9 if message == "case a changed" else 1.0)


def test_guards_of_a_hook_are_those_of_the_run_that_is_resumed(project: Project) -> None:
    project.extend_conftest("""
        import os

        class Wall:
            name = "wall"

        def pytest_packbench_guards(config, suite):
            return [Wall()] if os.path.exists("guarded") else []
    """)
    for name, code in (("a", CALLED), ("x", FLAKY)):
        project.case(name, python=f"context.guards\n{code}")
    broken, guarded = project.root / "broken", project.root / "guarded"
    broken.touch()
    guarded.touch()
    ended(project.run_toy(), 1, passed=1, errors=1)
    broken.unlink()
    guarded.unlink()
    project.refused("*guards changed (from [[]'wall'] to [[]])*", RESUME)
    guarded.touch()
    ended(project.run_toy(RESUME), 0, passed=2)
    assert called_cases(project) == ["a", "x"]


def test_results_of_cases_that_are_not_selected_are_kept(project: Project) -> None:
    run_with_errors(project)
    project.run(*(f"{CASES}/plain/{name}.json::{name}" for name in ("a", "x")), RESUME)
    verdicts = {"a": ["passed"], "b": ["passed"], "low": ["failed"], "x": ["passed"], "y": ["error"]}
    assert verdicts_by_case(project) == verdicts
    assert project.document()["complete"]
    # a case that had no score may be deleted; one that had may not even change
    (project.root / CASES / "plain" / "y.json").unlink()
    ended(project.run_toy(RESUME), 1, passed=3, failed=1)
    assert set(verdicts_by_case(project)) == {"a", "b", "low", "x"}
    assert called_cases(project) == ["x"]
    project.case("b", points=0.2)
    project.refused("*can't be resumed: case b changed; *", "-k", "x.json", RESUME)


def test_a_session_that_ends_early_keeps_what_was_scored_and_names_the_lines_of_today(both: Project) -> None:
    first, *others = toy_case("a", python=FLAKY), *(toy_case(name) for name in "bcde")
    both.case_lines(first, *others)
    (both.root / "broken").touch()
    ended(both.run_toy(), 1, passed=4, errors=1)
    before = both.records()
    both.run_toy(RESUME, "-x")
    assert (both.records(), len(both.lines("payloads.jsonl"))) == (before, 4)
    (both.root / "broken").unlink()
    both.case_lines(toy_case("new"), first, *others)
    ended(both.run_toy(RESUME), 0, passed=6)
    files = {name: f"{MANY}:{number}" for number, name in enumerate(("new", *"abcde"), 1)}
    assert {name: record["packbench"]["file"] for name, record in both.records().items()} == files
    assert {row["case_id"]: row["file"] for row in both.document()["cases"]} == files


DYING = """
import os, re, threading, time
from pathlib import Path

LOCK = threading.Lock()


def stored_trials(name):
    lines = [line for path in Path().glob("reports/**/journal*.jsonl") for line in path.read_text().splitlines()]
    scored = [line for line in lines if f'"{name}"' in line and "packbench_ended" not in line]
    return {trial for line in scored for trial in re.findall(r'"trial": ?([0-9]+)', line)}


def verify(request):
    name = request.input["name"]
    with LOCK, open("called.txt", "a+") as file:
        file.write(name + "\\n")
        file.seek(0)
        times = file.read().split().count(name)
    if name == "dies" and times >= 3 and not Path("fixed").exists():
        # its worker is killed during the third trial, when the others, which run beside it, are stored with their scores
        end = time.monotonic() + 20
        while len(stored_trials(name)) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    return {"points": 1.0}
"""


def test_trials_that_a_killed_worker_had_finished_are_kept(project: Project, model: Model) -> None:
    project.write("mine.py", DYING)
    for name in ("dies", "lives"):
        project.case(name, name=name)
    options = ("-n2", "--packbench-trials=3", "--packbench-concurrency=1")
    for more in ((), (RESUME,)):
        model.run(project, *options, *more, target="mine:verify")
        assert verdicts_by_case(project) == {"dies": ["passed", "passed", "error"], "lives": ["passed"] * 3}
    (project.root / "fixed").touch()
    ended(model.run(project, *options, RESUME, target="mine:verify"), 0, passed=2)
    assert called_cases(project) == ["dies"] * 5 + ["lives"] * 3
    assert len(project.lines("records.jsonl")) == 6


# the limit is lifted between the runs: coverage writes a file at the end
FULL_DISK = """
import resource, signal, pytest
import pytest_packbench.pytest_plugin.session, pytest_packbench.reports.story
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for most in (150, 700, 2000, 6000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    code = pytest.main(["--packbench-suite=toy", f"--packbench-output=most{most}", "-p", "no:cacheprovider"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print("exit code", most, int(code), flush=True)
"""


def test_a_full_disk_is_one_line_and_leaves_no_torn_file(project: Project) -> None:
    project.cases("a", "b", "c", "d")
    # a file cut short must not be taken for a compiled module later
    command = [sys.executable, "-B", "-c", FULL_DISK]
    output = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    assert "Traceback" not in output.stdout + output.stderr
    parts = re.split(r"exit code (\d+) 1\n", output.stdout)
    assert parts[1::2] == ["150", "700", "2000", "6000"]
    for most, run in zip(parts[1::2], parts[::2], strict=False):
        errors = [line for line in run.splitlines() if "File too large" in line]
        assert errors, run
        assert all(line.startswith("packbench: ") for line in errors)
        folder = project.root / f"most{most}"
        for path in folder.rglob("*.jsonl"):
            assert all(json_lines(path))
        if any(folder.glob("toy/*/")):
            ended(project.run_toy(RESUME, f"--packbench-output=most{most}"), 0, passed=4)
            assert len(list(folder.rglob("records.jsonl"))) == 1


def test_only_trials_with_errors_are_repeated(project: Project, model: Model) -> None:
    project.suite(text="pack: toy\nprices: {fake-1: {input_per_million: 100000, output_per_million: 0}}\n")
    project.prepare("points 0.9", "points 0.5")
    good: list[Received] = []

    def refuse_the_second(received: Received) -> Reply:
        # calls of one case come one after the other, whichever worker has it
        if "points 0.9" in parse_request(received).text:
            good.append(received)
            if len(good) == 2:
                return error_reply(400, "not now")
        return points(received)

    model.handler = refuse_the_second
    options = ("--packbench-trials=3", "--packbench-concurrency=1")
    ended(model.run(project, *options), 1, errors=1, failed=1)
    ended(model.run(project, *options, RESUME), 1, passed=1, failed=1)
    assert len(model.requests) == 7
    ended(model.run(project, "--packbench-trials=2", RESUME), 4, "*can't be resumed: trials changed (from 3 to 2); *")
    records = [one["packbench"] for one in project.lines("records.jsonl")]
    attempts = [(one["case_id"], one["trial"]) for one in records]
    assert attempts == [(case, trial) for case in ("case_00", "case_01") for trial in range(3)]
    report = project.document()
    spent, costs = report["run"]["settings"]["spent"], [row["cost_usd"] for row in report["cases"]]
    assert (spent["calls"], [one["cost_usd"] for one in records], min(costs) > 0) == (7, costs, True)
    assert sum(costs) == pytest.approx(spent["cost"])


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
        assert session["killed"] or session["code"] == 0, session["log"]
        assert session["moment"] or not session["killed"]
        # what was scored before is not called again, and nothing twice
        assert not set(session["scored"]) & set(session["calls"]), session
        assert len(session["calls"]) == len(set(session["calls"])), session
    return sessions


def records_of_run(folder: Path) -> Any:
    """Return the records of the only run in a folder, without what differs from run to run."""
    (run,) = (path for path in (folder / "toy").iterdir() if path.is_dir())
    assert {path.name for path in run.iterdir()} == RUN_FILES
    records = json_lines(run / "records.jsonl")
    rows = json.loads((run / "report.json").read_text("utf-8"))["packbench"]["cases"]
    assert [row["test_id"] for row in rows] == [record["test_id"] for record in records]
    assert {record["run_id"] for record in records} == {run.name}
    return without_times(records)


def test_a_run_killed_at_any_moment_is_resumed_to_the_records_of_a_whole_run(project: Project) -> None:
    chains = {f"out_{number}": [moment] for number, moment in enumerate(MOMENTS)}
    sessions = run_killed(project, 4, {"out_whole": [], **chains})
    assert [session["moment"] for session in sessions if session["moment"] and not session["killed"]] == []
    expected = records_of_run(project.root / "out_whole")
    assert len(expected) == 4
    for output, moments in chains.items():
        assert records_of_run(project.root / output) == expected, moments
