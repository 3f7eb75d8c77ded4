"""Controls in runs: replayed in fixture mode, written to files of their own, and in no rate."""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.commands import main
from pytest_packbench.model.run import shard_of
from tests.integration.conftest import json_lines

if TYPE_CHECKING:
    from tests.integration.conftest import Project

TABLE = yaml.safe_load(Path(__file__).with_name("data").joinpath("controls.yaml").read_text("utf-8"))
FOLDER = "storage/benchmarks/toy/fixtures/controls"
LOW = {"expected": {"verdict": "failed", "score": 0.3}, "payload": {"points": 0.3}}
OWN_TARGET = """
    import socket

    from pytest_packbench.model.request import ModelRequest

    async def grade(request, context):
        question = ModelRequest(role="grade", system="give points", messages=())
        answer = (await context.llm.complete(question)).content
        if answer.get("online"):
            socket.create_connection(("127.0.0.1", 9))
        return (await context.llm.complete(question)).content if answer.get("again") else answer

    class Checked(ToyAnswer):
        check: str = ""

        @property
        def decided_by(self):
            return 1 / 0 if self.check == "none" else self.check

    Toy.target = lambda self, rules: grade
    Toy.answer_model = Checked
    """


def add_control(project: Project, name: str, **fields: Any) -> str:
    """Write a control; return the path of its file from the project's folder."""
    control = {"id": name, "case": "a", "description": "a wrong answer", **fields}
    project.write(f"{FOLDER}/{name}.json", json.dumps(control))
    return f"{FOLDER}/{name}.json"


def totals(project: Project) -> dict[str, Any]:
    return project.report()["packbench"]["controls"]  # type: ignore[no-any-return]  # it is JSON


@pytest.fixture
def small(project: Project) -> Project:
    """Two cases, and two controls that end as written."""
    for name in ("a", "b"):
        project.case(name)
        add_control(project, f"wrong_{name}", **LOW)
    return project


def test_a_control_that_quotes_a_key_is_stored_without_it(both: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-test/Planted+0123=456789/AbCdEf"
    monkeypatch.setenv("PLANTED_API_KEY", key)
    both.case("a")
    add_control(both, "quoting", **LOW, description=f"the answer quotes {key}")
    result = both.run_toy()
    (control,) = json_lines(both.folders()[-1] / "controls.jsonl")
    assert (control["description"], control["outcome"]) == ("the answer quotes [redacted]", "as_written")
    assert key not in result.stdout.str()


def test_each_control_ends_as_written_or_is_reported(both: Project) -> None:
    both.extend_conftest(OWN_TARGET)
    both.case("a")
    both.case("c", notes={"skip": "in doubt"})
    both.case("d", notes={"xfail": "in doubt"})
    both.case("broken").write_text("{", encoding="utf-8")
    names = {name: f"control_{number:02}" for number, name in enumerate(TABLE)}
    for name, (control, _, _) in TABLE.items():
        add_control(both, names[name], **control)
    # the target of the run is that of the cases only
    result = both.run_toy()
    outcomes = [outcome for _, outcome, _ in TABLE.values()]
    wrong, broken = outcomes.count("deviates"), outcomes.count("broken")
    expected = {"passed": 1 + outcomes.count("as_written"), "failed": wrong, "errors": 1 + broken, "skipped": 1}
    assert result.parseoutcomes() == expected | {"xfailed": 1}
    lines = {line["control"]: line for line in both.lines("controls.jsonl")}
    assert [*lines] == sorted(names.values())
    for name, (_, outcome, message) in TABLE.items():
        line = lines[names[name]]
        assert line["outcome"] == outcome, (name, line)
        assert fnmatchcase(line["message"], message), (name, line["message"])
    assert both.records().keys() == {"a"}
    assert {line["kind"] for line in both.lines("errors.jsonl")} == {"case_unreadable", "skip", "xfail"}
    assert totals(both) == {
        "present": len(TABLE),
        "selected": len(TABLE),
        "as_written": outcomes.count("as_written"),
        "deviates": wrong,
        "broken": broken,
        "not_run": 0,
        "wrong": [names[name] for name, (_, outcome, _) in TABLE.items() if outcome != "as_written"],
    }
    text = f"{outcomes.count('as_written')} of {len(TABLE)} controls"
    assert f"{text} (wrong answers that must be noticed) ended as written" in (both.left() / "summary.md").read_text(
        "utf-8"
    )
    result.stdout.fnmatch_lines(
        [
            f"{text} (wrong answers that must be noticed) ended as written",
            f"*{names['an answer that passes']} *verdict passed instead of failed*",
        ]
    )
    result.stdout.fnmatch_lines_random(
        ["verdict *failed*passed*DEVIATES", "score *0.000*1.000*DEVIATES", f"re-run: pytest {FOLDER}/*::control_*"]
    )
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_controls_are_in_no_rate_and_fail_a_run_that_only_gates_decide(small: Project) -> None:
    small.suite(text="pack: toy\ngates: [{metric: pass_rate, min: 1.0}]\n")
    assert small.run_toy().ret == pytest.ExitCode.OK
    overall = small.report()["packbench"]["overall"]
    assert (overall["passed"], overall["n"], len(small.report()["tests"])) == (2, 2, 2)
    add_control(small, "wrong_c", **{**LOW, "payload": {"points": 0.9}})
    result = small.run_toy("--packbench-gate=suite", "--packbench-output=second")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"passed": 4, "failed": 1}
    result.stdout.fnmatch_lines(["*1 control did not end as written*", "2 of 3 controls (*) ended as written"])
    (run,) = (path for path in (small.root / "second" / "toy").iterdir() if path.is_dir())
    assert json.loads((run / "report.json").read_text("utf-8"))["packbench"]["status"] == "failed"


def test_a_stored_run_with_a_control_that_deviates_fails_its_gates(
    small: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    add_control(small, "wrong_b", **{**LOW, "payload": {"points": 0.9}})
    small.run_toy()
    assert main(["gate", str(small.left())]) == 1
    assert "1 of 2 controls ended as written: FAIL" in capsys.readouterr().out
    assert main(["report", str(small.left())]) in {0, 1}
    assert "Controls of toy: 1 of 2 controls ended as written; otherwise: wrong_b." in capsys.readouterr().out
    assert main(["rescore", str(small.left())]) == 0
    assert "Controls are not scored again." in capsys.readouterr().out


def test_files_that_are_no_controls_break_a_control_each(small: Project) -> None:
    folder = small.root / FOLDER
    os.mkfifo(folder / "pipe.json")
    for name in ("UPPER.JSON", "c.yaml", "a\nb.json", ".hidden.json"):
        (folder / name).write_text("{", encoding="utf-8")
    result = small.run_toy()
    assert result.parseoutcomes() == {"passed": 4, "errors": 4}
    lines = {line["control"]: line for line in small.lines("controls.jsonl")}
    assert lines.keys() == {"wrong_a", "wrong_b", "pipe", "UPPER.JSON", "c.yaml", "a\\nb.json"}
    assert all("\n" not in line["file"] + line["nodeid"] for line in lines.values())
    assert "is a named pipe, not a file" in lines["pipe"]["message"]
    result.stdout.fnmatch_lines(["*4 controls could not be replayed*"])
    result.stdout.no_fnmatch_line("*did not end as written*")


def test_a_file_instead_of_the_folder_of_controls_is_a_broken_control(project: Project) -> None:
    project.case("a")
    project.write(FOLDER, "words")
    result = project.run_toy()
    assert result.parseoutcomes() == {"passed": 1, "errors": 1}
    result.stdout.fnmatch_lines(["*cannot be read: Not a directory; expected a folder of controls*"])


CHANGED: dict[str, tuple[tuple[str, str] | None, str]] = {
    "no file": (None, "  controls: unknown: *controls.jsonl is missing, or has other controls than *: FAIL"),
    "another outcome": (('"deviates"', '"as_written"'), "  1 of 2 controls ended as written: FAIL"),
    "not run": (('"deviates"', '"not_run"'), "  1 of 2 controls ended as written: FAIL"),
    "another control": (
        ('"control":"wrong_b"', '"control":"c"'),
        "  controls: unknown: * or has other controls than *: FAIL",
    ),
    "a control twice": (
        ('"control":"wrong_b"', '"control":"wrong_a"'),
        "  controls: unknown: *: wrong_a is there twice, or of another run *: FAIL",
    ),
    "another score": (('"score":0.9', '"score":0.3'), "  1 of 2 controls ended as written: FAIL"),
    "no end": (('"actual":{', '"actual":null,"was":{'), "  controls: unknown: *: outcome: got * without both *: FAIL"),
    "no end of a score": (('"kind":""', '"sort":""'), "  controls: unknown: *: /actual/sort: *: FAIL"),
    "another run": (
        ('{"run_id":"', '{"run_id":"0'),
        "  controls: unknown: *: wrong_a is there twice, or of another run *: FAIL",
    ),
}


@pytest.mark.parametrize("change", CHANGED)
def test_changed_controls_of_a_stored_run_fail_its_gates(
    small: Project, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add_control(small, "wrong_b", **{**LOW, "payload": {"points": 0.9}})
    small.run_toy()
    file, (words, line) = small.left() / "controls.jsonl", CHANGED[change]
    if words is None:
        file.unlink()
    else:
        assert words[0] in file.read_text("utf-8")
        file.write_text(file.read_text("utf-8").replace(*words), "utf-8")
    for name in (".", "records.jsonl", "report.json"):
        assert main(["gate", str(small.left() / name)]) == 1
        assert any(fnmatchcase(each, line) for each in capsys.readouterr().out.splitlines())


def test_shards_without_their_controls_are_not_merged(small: Project, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        small.run_toy(f"--packbench-shard={number}/2")
    parts = small.folders()
    for part in parts:
        (part / "controls.jsonl").unlink(missing_ok=True)
    assert main(["merge", *map(str, parts), "--output=merged"]) == 2
    assert "controls.jsonl is missing, or has other controls than the report counts" in capsys.readouterr().err


def test_shards_with_other_controls_are_not_merged(small: Project, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        small.run_toy(f"--packbench-shard={number}/2")
    merge = ["merge", *map(str, small.folders()), "--output=merged"]
    assert main(merge) == 0
    wrong_b = small.root / FOLDER / "wrong_b.json"
    text = wrong_b.read_text("utf-8")
    changes = {
        text.replace('"failed"', '"passed"'): "the control wrong_b is not the one of the suite here",
        "{": "the control wrong_b is not the one of the suite here",
        "": "the control wrong_b is not the one of the suite here",
    }
    capsys.readouterr()
    for changed, message in changes.items():
        wrong_b.write_text(changed, "utf-8")
        if not changed:
            wrong_b.unlink()
        assert main(merge) == 2
        assert message in capsys.readouterr().err
    wrong_b.write_text(text, "utf-8")
    add_control(small, "wrong_c", **LOW)
    assert main(merge) == 2
    assert "the suite of the runs had 2 controls, the suite here has 3; merge the runs of" in capsys.readouterr().err


SELECTED: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "all": (("--packbench-suite=toy",), {"a", "b", "wrong_a", "wrong_b"}),
    "the folder": (("storage/benchmarks/toy",), {"a", "b", "wrong_a", "wrong_b"}),
    "cases": (("storage/benchmarks/toy/cases",), {"a", "b"}),
    "one case": (("storage/benchmarks/toy/cases/plain/a.json",), {"a"}),
    "controls": ((FOLDER,), {"wrong_a", "wrong_b"}),
    "recordings": (("storage/benchmarks/toy/fixtures",), {"wrong_a", "wrong_b"}),
    "a control": ((f"{FOLDER}/wrong_b.json",), {"wrong_b"}),
    "a node id": ((f"{FOLDER}/wrong_b.json::wrong_b",), {"wrong_b"}),
    "a control twice": (("storage/benchmarks/toy", f"{FOLDER}/wrong_b.json"), {"a", "b", "wrong_a", "wrong_b"}),
    "-k": (("--packbench-suite=toy", "-k", "wrong_a"), {"wrong_a"}),
    "by kind": (("--packbench-suite=toy", "-m", "packbench(kind='control')"), {"wrong_a", "wrong_b"}),
    "without": (("--packbench-suite=toy", "-m", "not packbench(kind='control')"), {"a", "b"}),
    "by type": (("--packbench-suite=toy", "-m", "packbench(case_type='plain')"), {"a", "b"}),
}


@pytest.mark.parametrize("how", SELECTED)
def test_controls_are_selected_as_tests_are(small: Project, how: str) -> None:
    arguments, names = SELECTED[how]
    result = small.run("-v", *arguments)
    assert result.ret == pytest.ExitCode.OK
    assert {line.split()[0].rpartition("::")[2] for line in result.outlines if " PASSED" in line} == names
    assert result.parseoutcomes()["passed"] == len(names)


def test_a_complete_run_without_its_controls_says_so(small: Project) -> None:
    for words in (("-m", "not packbench(kind='control')"), ("-k", "a and not wrong_a and not wrong_b")):
        result = small.run_toy(*words)
        result.stdout.fnmatch_lines(["2 controls not selected"])


def test_the_last_failed_control_runs_alone(small: Project) -> None:
    add_control(small, "wrong_b", **{**LOW, "payload": {"points": 0.9}})
    assert small.run_toy("-p", "cacheprovider").ret == pytest.ExitCode.TESTS_FAILED
    result = small.run_toy("--lf")
    assert result.parseoutcomes() == {"failed": 1, "deselected": 3}
    result.stdout.fnmatch_lines(["0 of 1 control (*) ended as written, 1 not selected"])


def test_controls_are_replayed_in_fixture_mode_only(small: Project) -> None:
    mode = "--packbench-mode=live"
    small.extend_conftest("""
    from pytest_packbench import without_model

    without_model(act)
    """)
    result = small.run_toy(mode)
    assert result.parseoutcomes() == {"passed": 2}
    result.stdout.fnmatch_lines(["2 controls: fixture mode only"])
    assert "controls" not in small.report()["packbench"]
    result = small.run(mode, f"{FOLDER}/wrong_a.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{FOLDER}/wrong_a.json: contains no case; *"])


def test_each_control_is_in_one_shard_and_in_the_merged_run(small: Project, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["wrong_a", "wrong_b", *(f"more_{number}" for number in range(4))]
    for name in names[2:]:
        add_control(small, name, **LOW)
    for number in (1, 2):
        small.run_toy(f"--packbench-shard={number}/2")
    parts = {path: [line["control"] for line in json_lines(path / "controls.jsonl")] for path in small.folders()}
    for part in parts.values():
        assert part == sorted(name for name in names if shard_of(name, 2) == shard_of(part[0], 2))
    assert main(["merge", *map(str, parts), "--output=merged"]) == 0
    assert "6 of 6 controls (wrong answers that must be noticed) ended as written" in capsys.readouterr().out
    (merged,) = (path for path in (small.root / "merged" / "toy").iterdir() if path.is_dir())
    assert [line["control"] for line in json_lines(merged / "controls.jsonl")] == sorted(names)


def test_a_resumed_run_keeps_the_controls_of_its_earlier_session(small: Project) -> None:
    small.run_toy("-k", "a")
    run_id = small.left().name
    assert small.run_toy(f"--packbench-resume={run_id}", "-k", "b").ret == pytest.ExitCode.OK
    small.run(f"--packbench-resume={run_id}", "storage/benchmarks/toy/cases/plain/a.json")
    assert [line["control"] for line in small.lines("controls.jsonl")] == ["wrong_a", "wrong_b"]
    file = small.left() / "controls.jsonl"
    text = file.read_text("utf-8").replace('{"run_id":"', '{"run_id":"0')
    for changed, problem in ((text, "wrong_a is there twice, or of another run than *"), ("{}\n", "*")):
        file.write_text(changed, encoding="utf-8")
        result = small.run_toy(f"--packbench-resume={run_id}", "-k", "b")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines([f"*the controls of the resumed run can't be read: *controls.jsonl:1: {problem}"])


def test_a_resumed_run_keeps_no_control_that_was_changed(small: Project) -> None:
    small.run_toy()
    run_id = small.left().name
    add_control(small, "wrong_a", **{**LOW, "expected": {"verdict": "failed", "score": 0.4}})
    result = small.run(f"--packbench-resume={run_id}", "storage/benchmarks/toy/cases/plain/b.json")
    result.stdout.fnmatch_lines(["1 of 1 control (*) ended as written, 1 not selected"])
    assert [line["control"] for line in small.lines("controls.jsonl")] == ["wrong_b"]


HOOKS = """
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item):
        assert (item.fixturenames, item.funcargs) == ([], {})
        if item.name == "skipped":
            pytest.skip("no licence")
        if item.name in {"a", "unprepared"}:
            raise OSError("no server")

    def pytest_itemcollected(item):
        item.add_marker(pytest.mark.skipif(False, reason="never"))

    def pytest_runtest_call(item):
        if item.name == "b":
            raise OSError("no licence")

    def pytest_runtest_teardown(item):
        if item.name == "skipped_late":
            pytest.skip("no licence")
        if item.name == "left":
            raise OSError("no server")
    """


def test_what_a_hook_does_to_a_control_is_told_of_it(both: Project) -> None:
    both.extend_conftest(HOOKS)
    both.case("a")
    both.case("b")
    for name in ("left", "skipped", "skipped_late", "unprepared"):
        add_control(both, name, **LOW)
    # files that are no recordings are those of other plugins
    both.write("storage/benchmarks/toy/fixtures/test_own.py", "def test_own(): pass\n")
    both.write("storage/benchmarks/toy/fixtures/more/test_own_too.py", "def test_own(): pass\n")
    add_control(both, "ignored", **LOW)
    ignore = (f"--ignore={FOLDER}/ignored.json", "--ignore=storage/benchmarks/toy/fixtures/more")
    result = both.run_toy("--packbench-concurrency=2", *ignore)
    assert result.parseoutcomes() == {"passed": 3, "failed": 1, "skipped": 2, "errors": 3}
    assert {line["control"]: (line["outcome"], line["message"]) for line in both.lines("controls.jsonl")} == {
        "left": ("broken", "OSError: no server"),
        "skipped": ("not_run", "Skipped: no licence"),
        "skipped_late": ("as_written", ""),
        "unprepared": ("broken", "OSError: no server"),
    }
    assert both.errors()["a"]["kind"] == "setup_broken"
    result.stdout.fnmatch_lines_random(["E * OSError: no server", "E * OSError: no licence"])


TWICE = """
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(item, nextitem):
        from _pytest.runner import runtestprotocol

        # as a plugin does that repeats tests
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        runtestprotocol(item, nextitem=nextitem, log=False)
        runtestprotocol(item, nextitem=nextitem, log=True)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True
    """


def test_an_item_that_is_run_again_has_its_verdict_again(small: Project) -> None:
    small.extend_conftest(TWICE)
    called = "with open('called', 'a') as file: file.write(context.case_id[-1])"
    small.case("low", points=0.1, python=called)
    small.case("fell", python=f"{called}; 1 / 0")
    small.case("set_aside", notes={"skip": "in doubt"})
    result = small.run_toy()
    assert result.parseoutcomes() == {"passed": 4, "failed": 1, "errors": 1, "skipped": 1}
    assert sorted((small.root / "called").read_text()) == ["l", "w"]
    verdicts = small.report()["packbench"]["totals"]["verdicts"]
    assert [verdicts[name] for name in ("passed", "failed", "error")] == [2, 1, 1]
    assert totals(small)["as_written"] == 2


def test_a_control_that_is_not_reached_is_not_run(both: Project) -> None:
    both.case("a", points=0.0, python="import time; time.sleep(0.3)")
    both.case("b")
    add_control(both, "wrong_a", **LOW)
    assert both.run_toy("-x").ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
    if not both.workers:
        assert totals(both)["not_run"] == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", 'the pack "toy" has no target of its own; give the result as payload instead'),
        ("Toy.target = lambda self, rules: 1 / 0", "*raised in target(): ZeroDivisionError*"),
    ],
)
def test_a_pack_without_a_usable_target_breaks_the_replay_only(project: Project, code: str, message: str) -> None:
    project.extend_conftest(f"\n{code}\n")
    project.case("a")
    add_control(project, "payload", **LOW)
    exchanges = [{"role": "grade", "answer": {"points": 0.3}}]
    add_control(project, "replayed", expected=LOW["expected"], cassette={"cassette_version": 2, "exchanges": exchanges})
    project.run_toy().stdout.no_fnmatch_line("*INTERNALERROR*")
    outcomes = {line["control"]: line for line in project.lines("controls.jsonl")}
    assert outcomes["replayed"]["outcome"] == "broken"
    assert fnmatchcase(outcomes["replayed"]["message"], f"*: /cassette: {message}")
    assert outcomes["payload"]["outcome"] == "as_written"


def test_what_a_control_left_running_makes_it_broken(project: Project) -> None:
    project.extend_conftest(
        OWN_TARGET
        + """
    import pathlib
    import threading
    import time

    ended = pathlib.Path("ended").absolute()

    def reach_out():
        while not ended.exists():
            time.sleep(0.01)
        socket.create_connection(("127.0.0.1", 9))

    async def leave_running(request, context):
        answer = await grade(request, context)
        threading.Thread(target=reach_out, name="left", daemon=True).start()
        return answer

    Toy.target = lambda self, rules: leave_running
    """
    )
    project.case("a")
    project.case("b", python="pass")
    answer = {"cassette_version": 2, "exchanges": [{"role": "grade", "answer": {"points": 0.3}}]}
    add_control(project, "wrong_a", expected=LOW["expected"], cassette=answer)
    add_control(project, "wrong_b", **LOW)
    # the attempt of the control has ended: the thread goes on, and the session waits for it
    lines = (
        "import pathlib, threading",
        "def test_wait():",
        "    pathlib.Path('ended').touch()",
        "    [thread.join(10) for thread in threading.enumerate() if thread.name == 'left']",
    )
    project.write("test_wait.py", "\n".join(lines))
    assert project.run_toy("storage", "test_wait.py").ret == pytest.ExitCode.TESTS_FAILED
    assert totals(project)["broken"] == 1
    assert project.records().keys() == {"a", "b"}


def test_a_control_at_which_a_worker_crashes_is_broken(small: Project) -> None:
    small.extend_conftest("""
    import os

    ToyAnswer.decided_by = property(lambda self: os._exit(3) if self.points == 0.2 else "")
    """)
    add_control(small, "wrong_a", **{**LOW, "payload": {"points": 0.2}})
    assert small.run_toy("-n2").ret == pytest.ExitCode.TESTS_FAILED
    ends = {line["control"]: (line["outcome"], line["actual"] is None) for line in small.lines("controls.jsonl")}
    assert ends == {"wrong_a": ("broken", True), "wrong_b": ("as_written", False)}
    assert small.records().keys() == {"a", "b"}


def test_a_job_page_names_the_control(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wrong_b", "wrong_c", "wrong_d", "wrong_e", "wrong_f", "wrong_g"):
        add_control(small, name, **{**LOW, "payload": {"points": 0.9}})
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = small.run_toy()
    where = f"file={FOLDER}/wrong_b.json,line=1,title=toy%3A 6 controls did not end as written"
    messages = "wrong_b: verdict passed instead of failed; *%0Awrong_c: *%0Aand 1 more"
    result.stdout.fnmatch_lines([f"::error {where}::{messages}"])


def test_a_list_of_suites_counts_controls(small: Project) -> None:
    small.run("--packbench-list").stdout.fnmatch_lines(["  toy: 2 cases (plain 2); 2 controls; pack toy: a toy"])
