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
from tests.integration.conftest import ended, json_lines

if TYPE_CHECKING:
    from tests.integration.conftest import Project

FOLDER = "storage/benchmarks/toy/fixtures/controls"
DATA = yaml.safe_load(Path(__file__).with_name("data").joinpath("controls.yaml").read_text("utf-8"))
TABLE = DATA["ends"]
LOW = {"expected": {"verdict": "failed", "score": 0.3}, "payload": {"points": 0.3}}
HIGH = {**LOW, "payload": {"points": 0.9}}
ONLY_CASES = ("-m", "not packbench(kind='control')")
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


def add_control(project: Project, name: str, **fields: Any) -> None:
    control = {"id": name, "case": "a", "description": "a wrong answer", **fields}
    project.write(f"{FOLDER}/{name}.json", json.dumps(control))


def outcomes(project: Project) -> dict[str, str]:
    """How the controls of the last run ended."""
    return {line["control"]: line["outcome"] for line in project.lines("controls.jsonl")}


@pytest.fixture
def small(project: Project) -> Project:
    """Two cases, and two controls that end as written."""
    project.cases("a", "b")
    for name in ("wrong_a", "wrong_b"):
        add_control(project, name, **LOW)
    return project


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
    ends = [outcome for _, outcome, _ in TABLE.values()]
    counts = {outcome: ends.count(outcome) for outcome in ("as_written", "deviates", "broken", "not_run")}
    expected = {"passed": 1 + counts["as_written"], "failed": counts["deviates"], "errors": 1 + counts["broken"]}
    assert result.parseoutcomes() == expected | {"skipped": 1, "xfailed": 1}
    lines = {line["control"]: line for line in both.lines("controls.jsonl")}
    assert [*lines] == sorted(names.values())
    for name, (_, outcome, message) in TABLE.items():
        line = lines[names[name]]
        assert line["outcome"] == outcome, (name, line)
        assert fnmatchcase(line["message"], message), (name, line["message"])
    assert both.records().keys() == {"a"}
    assert {line["kind"] for line in both.lines("errors.jsonl")} == {"case_unreadable", "skip", "xfail"}
    wrong = [names[name] for name, (_, outcome, _) in TABLE.items() if outcome != "as_written"]
    number = {"present": len(TABLE), "selected": len(TABLE), **counts}
    assert both.document()["controls"] == {**number, "wrong": wrong}
    text = f"{counts['as_written']} of {len(TABLE)} controls (wrong answers that must be noticed) ended as written"
    assert text in both.text()
    deviates = [
        "verdict *failed*passed*DEVIATES",
        "score *0.000*1.000*DEVIATES",
        f"re-run: pytest {FOLDER}/*::control_*",
    ]
    ended(result, 1, text, f"*{names['an answer that passes']} *verdict passed instead of failed*", *deviates)
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_controls_are_in_no_rate_and_fail_a_run_that_only_gates_decide(
    small: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.suite(text="pack: toy\ngates: [{metric: pass_rate, min: 1.0}]\n")
    ended(small.run_toy(), 0)
    overall = small.document()["overall"]
    assert (overall["passed"], overall["n"], len(small.report()["tests"])) == (2, 2, 2)
    key = "sk-test/Planted+0123=456789/AbCdEf"
    monkeypatch.setenv("PLANTED_API_KEY", key)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    names = ["wrong_c", "wrong_d", "wrong_e", "wrong_f"]
    for name in names:
        add_control(small, name, **HIGH, description=f"it quotes {key}")
    where = f"::error file={FOLDER}/wrong_c.json,line=1,title=toy%3A 4 controls did not end as written"
    result = ended(
        small.run_toy("--packbench-gate=suite"),
        1,
        "*4 controls did not end as written*",
        "2 of 6 controls (*) ended as written",
        f"{where}::wrong_c: verdict passed instead of failed; *%0Awrong_d: *",
    )
    assert result.parseoutcomes() == {"passed": 4, "failed": 4}
    assert small.document()["status"] == "failed"
    assert small.lines("controls.jsonl")[-1]["description"] == "it quotes [redacted]"
    assert key not in result.stdout.str()


def test_files_that_are_no_controls_break_a_control_each(small: Project) -> None:
    os.mkfifo(small.root / FOLDER / "pipe.json")
    for name in ("UPPER.JSON", "c.yaml", "a\nb.json", ".hidden.json"):
        small.write(f"{FOLDER}/{name}", "{")
    result = ended(small.run_toy(), 1, "*4 controls could not be replayed*", passed=4, errors=4)
    lines = {line["control"]: line for line in small.lines("controls.jsonl")}
    assert lines.keys() == {"wrong_a", "wrong_b", "pipe", "UPPER.JSON", "c.yaml", "a\\nb.json"}
    assert all("\n" not in line["file"] + line["nodeid"] for line in lines.values())
    assert "is a named pipe, not a file" in lines["pipe"]["message"]
    result.stdout.no_fnmatch_line("*did not end as written*")
    # nor is a file the folder of controls
    (small.root / FOLDER).rename(small.root / "elsewhere")
    small.write(FOLDER, "words")
    message = "*cannot be read: Not a directory; expected a folder of controls*"
    ended(small.run_toy(), 1, message, passed=2, errors=1)


def test_a_stored_run_with_a_control_that_deviates_or_was_changed_fails_its_gates(
    small: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    add_control(small, "wrong_b", **HIGH)
    small.run_toy()
    file = small.left() / "controls.jsonl"
    text = file.read_text("utf-8")
    capsys.readouterr()
    for old, new, line in DATA["changed"].values():
        assert old in text
        file.write_text(text.replace(old, new or ""), "utf-8")
        if new is None:
            file.unlink()
        for name in (".", "records.jsonl", "report.json"):
            assert main(["gate", str(small.left() / name)]) == 1
            assert any(fnmatchcase(each, line) for each in capsys.readouterr().out.splitlines()), line
    file.write_text(text, "utf-8")
    main(["report", str(small.left())])
    assert "Controls of toy: 1 of 2 controls ended as written; otherwise: wrong_b." in capsys.readouterr().out


@pytest.mark.parametrize("how", DATA["selected"])
def test_controls_are_selected_as_tests_are(small: Project, how: str) -> None:
    arguments, names = DATA["selected"][how]
    result = ended(small.run("-v", *(each.format(folder=FOLDER) for each in arguments)), 0)
    assert sorted(line.split()[0].rpartition("::")[2] for line in result.outlines if " PASSED" in line) == names.split()


def test_what_was_not_selected_is_said(small: Project) -> None:
    for words in (ONLY_CASES, ("-k", "a and not wrong_a and not wrong_b")):
        ended(small.run_toy(*words), 0, "2 controls not selected")
    add_control(small, "wrong_b", **HIGH)
    ended(small.run_toy("-p", "cacheprovider"), 1)
    result = ended(small.run_toy("--lf"), 1, "0 of 1 control (*) ended as written, 1 not selected")
    assert result.parseoutcomes() == {"failed": 1, "deselected": 3}


def test_controls_are_replayed_in_fixture_mode_only(small: Project) -> None:
    small.extend_conftest("""
    from pytest_packbench import without_model

    without_model(act)
    """)
    mode = "--packbench-mode=live"
    ended(small.run_toy(mode), 0, "2 controls: fixture mode only", passed=2)
    assert "controls" not in small.document()
    control = f"{FOLDER}/wrong_a.json"
    ended(small.run(mode, control), 4, f"ERROR: *{control}: contains no case; *")


def test_each_control_is_in_one_shard_and_in_the_merged_run_of_the_same_controls(
    small: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["wrong_a", "wrong_b", *(f"more_{number}" for number in range(4))]
    for name in names[2:]:
        add_control(small, name, **LOW)
    for number in (1, 2):
        small.run_toy(f"--packbench-shard={number}/2")
    for folder in small.folders():
        part = [line["control"] for line in json_lines(folder / "controls.jsonl")]
        assert part == sorted(name for name in names if shard_of(name, 2) == shard_of(part[0], 2))
    merge = ["merge", *map(str, small.folders()), "--output=merged"]
    capsys.readouterr()
    assert main(merge) == 0
    assert "6 of 6 controls (wrong answers that must be noticed) ended as written" in capsys.readouterr().out
    (merged,) = (small.root / "merged" / "toy").glob("*/controls.jsonl")
    assert [line["control"] for line in json_lines(merged)] == sorted(names)

    def refused(message: str) -> None:
        assert main(merge) == 2
        assert message in capsys.readouterr().err

    wrong_b = small.root / FOLDER / "wrong_b.json"
    text = wrong_b.read_text("utf-8")
    for changed in (text.replace('"failed"', '"passed"'), "{"):
        wrong_b.write_text(changed, "utf-8")
        refused("the control wrong_b is not the one of the suite here")
    wrong_b.write_text(text, "utf-8")
    add_control(small, "wrong_c", **LOW)
    refused("the suite of the runs had 6 controls, the suite here has 7; merge the runs of")
    for folder in small.folders():
        (folder / "controls.jsonl").unlink()
    refused("controls.jsonl is missing, or has other controls than the report counts")


def test_a_resumed_run_keeps_the_controls_of_its_earlier_session_that_are_unchanged(small: Project) -> None:
    small.run_toy("-k", "a")
    resume = f"--packbench-resume={small.left().name}"
    ended(small.run_toy(resume, "-k", "b"), 0)
    one_case = (resume, "storage/benchmarks/toy/cases/plain/a.json")
    small.run(*one_case)
    assert [*outcomes(small)] == ["wrong_a", "wrong_b"]
    file = small.left() / "controls.jsonl"
    text = file.read_text("utf-8")
    other_run = text.replace('{"run_id":"', '{"run_id":"0')
    for changed, problem in ((other_run, "wrong_a is there twice, or of another run than *"), ("{}\n", "*")):
        file.write_text(changed, encoding="utf-8")
        unread = f"*the controls of the resumed run can't be read: *controls.jsonl:1: {problem}"
        ended(small.run_toy(resume, "-k", "b"), 1, unread)
    file.write_text(text, encoding="utf-8")
    add_control(small, "wrong_a", **{**LOW, "expected": {"verdict": "failed", "score": 0.4}})
    ended(small.run(*one_case), 0, "1 of 1 control (*) ended as written, 1 not selected")
    assert [*outcomes(small)] == ["wrong_b"]


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
    both.cases("a", "b")
    for name in ("left", "skipped", "skipped_late", "unprepared", "ignored"):
        add_control(both, name, **LOW)
    # files that are no recordings are those of other plugins
    for name in ("test_own.py", "more/test_own_too.py"):
        both.write(f"storage/benchmarks/toy/fixtures/{name}", "def test_own(): pass\n")
    ignore = (f"--ignore={FOLDER}/ignored.json", "--ignore=storage/benchmarks/toy/fixtures/more")
    result = both.run_toy("--packbench-concurrency=2", *ignore)
    ended(result, 1, "E * OSError: no server", "E * OSError: no licence")
    assert result.parseoutcomes() == {"passed": 3, "failed": 1, "skipped": 2, "errors": 3}
    assert {line["control"]: (line["outcome"], line["message"]) for line in both.lines("controls.jsonl")} == {
        "left": ("broken", "OSError: no server"),
        "skipped": ("not_run", "Skipped: no licence"),
        "skipped_late": ("as_written", ""),
        "unprepared": ("broken", "OSError: no server"),
    }
    assert both.errors()["a"]["kind"] == "setup_broken"


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
    ended(small.run_toy(), 1, passed=4, failed=1, errors=1, skipped=1)
    assert sorted((small.root / "called").read_text()) == ["l", "w"]
    verdicts = small.document()["totals"]["verdicts"]
    assert [verdicts[name] for name in ("passed", "failed", "error")] == [2, 1, 1]
    assert [*outcomes(small).values()] == ["as_written"] * 2


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", 'the pack "toy" has no target of its own; give the result as payload instead'),
        ("Toy.target = lambda self, rules: 1 / 0", "*raised in target(): ZeroDivisionError*"),
    ],
)
def test_a_pack_without_a_usable_target_breaks_the_replay_only(small: Project, code: str, message: str) -> None:
    small.extend_conftest(f"\n{code}\n")
    answer = {"cassette_version": 2, "exchanges": [{"role": "grade", "answer": {"points": 0.3}}]}
    add_control(small, "replayed", expected=LOW["expected"], cassette=answer)
    small.run_toy().stdout.no_fnmatch_line("*INTERNALERROR*")
    assert outcomes(small) == {"replayed": "broken", "wrong_a": "as_written", "wrong_b": "as_written"}
    assert fnmatchcase(small.lines("controls.jsonl")[0]["message"], f"*: /cassette: {message}")


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
    project.cases("a", "b")
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
    ended(project.run_toy("storage", "test_wait.py"), 1)
    assert [*outcomes(project).values()].count("broken") == 1
    assert project.records().keys() == {"a", "b"}


def test_a_control_that_is_not_reached_is_not_run_and_one_at_which_a_worker_crashes_is_broken(small: Project) -> None:
    small.case("a", points=0.0)
    ended(small.run_toy("-x"), 1)
    assert small.document()["controls"]["not_run"] == 2
    small.extend_conftest("""
    import os

    ToyAnswer.decided_by = property(lambda self: os._exit(3) if self.points == 0.2 else "")
    """)
    add_control(small, "wrong_a", **{**LOW, "payload": {"points": 0.2}})
    ended(small.run_toy("-n2"), 1)
    ends = {line["control"]: (line["outcome"], line["actual"] is None) for line in small.lines("controls.jsonl")}
    assert ends == {"wrong_a": ("broken", True), "wrong_b": ("as_written", False)}
    assert small.records().keys() == {"a", "b"}
