"""Errors and answers: what a model or a target has said is scored, and what could not have failed is counted beside."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.testing import SuiteResults
from tests.integration.options.conftest import points, recordings, replayable
from tests.servers.fake import FakeServer, Reply, scripted
from tests.servers.wire import error_reply, openai_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

SAID = {
    "no JSON": (openai_reply("I think it deserves 1 point."), "unreadable_answer"),
    "cut off": (openai_reply('{"points": 1', finish_reason="length"), "truncated_answer"),
    "empty": (openai_reply(""), "unreadable_answer"),
    "wrong shape": (openai_reply('{"marks": 1}'), "unreadable_answer"),
}
BROKEN = {"server error": error_reply(500, "an error"), "no chat": Reply(body=b"<html>Welcome</html>")}
RESUME = "--packbench-resume=latest"


def terms(project: Project, suite: str = "toy") -> dict[str, str]:
    """The first term of each record, by case id; every answer that nobody can read has the score 0 and has failed."""
    records = project.records(suite)
    for record in records.values():
        own = record["packbench"]
        assert own["terms"][0]["name"] == "points" or (record["passed"], own["score"]) == (False, 0.0)
    return {name: record["packbench"]["terms"][0]["name"] for name, record in records.items()}


def reply(received: Any) -> Reply:
    text = parse_request(received).text
    return SAID[text][0] if text in SAID else BROKEN.get(text) or points(received)


def test_what_a_model_has_said_is_scored_and_never_asked_for_again(project: Project, model: Model) -> None:
    project.prepare(*SAID, *BROKEN)
    project.pytester.makeini("[pytest]\npackbench_retries = 0\n")
    model.handler = reply
    model.run(project).assert_outcomes(failed=4, errors=2)
    assert list(terms(project).values()) == [term for _, term in SAID.values()]
    assert {(line["verdict"], line["kind"]) for line in project.lines("errors.jsonl")} == {
        ("error", "server_error"),
        ("error", "response_unreadable"),
    }
    del model.requests[:]
    model.handler = points
    model.run(project, RESUME).assert_outcomes(passed=2, failed=4)
    assert {parse_request(received).text for received in model.requests} == set(BROKEN)
    assert project.report()["packbench"]["totals"]["verdicts"]["failed"] == 4


def test_an_answer_that_nobody_can_read_is_recorded_and_replayed_as_it_was(project: Project, model: Model) -> None:
    project.prepare(*SAID)
    model.handler = reply
    model.run(project, mode="record").assert_outcomes(failed=4)
    assert len(recordings(project)) == 4
    project.run_toy("--packbench-target=pipeline:ask", "--packbench-backend=recorded").assert_outcomes(failed=4)
    recorded, replayed = map(replayable, project.folders())
    assert recorded == replayed


def test_a_target_that_handles_an_unreadable_answer_is_scored_by_what_it_returns(
    project: Project, model: Model
) -> None:
    project.prepare("no JSON", "server error")
    project.pytester.makeini("[pytest]\npackbench_retries = 0\n")
    model.handler = reply
    model.run(project, target="pipeline:ignore_errors").assert_outcomes(passed=1, errors=1)
    assert list(project.records()) == ["case_00"]


COMMANDS = {
    "no_json": ("input(); print('hello')", "unreadable_answer"),
    "fails": ("input(); print('no key'); raise SystemExit(3)", "target_died"),
    "silent": ("raise SystemExit(0)", "target_died"),
}


def test_a_command_answers_with_exit_code_0_and_fails_with_another(project: Project) -> None:
    project.case("a")
    for name, (code, outcome) in COMMANDS.items():
        project.write(f"{name}.py", code)
        target = f"--packbench-target=cmd:{sys.executable} {name}.py"
        project.run_toy("--packbench-mode=live", target)
        run = SuiteResults(folder=project.folders()[-1])
        found = [record["packbench"]["terms"][0]["name"] for record in run.records]
        assert [*found, *(error["kind"] for error in run.errors)] == [outcome], name


def test_a_server_answers_with_200_and_fails_with_500_and_its_answer_is_replayed(project: Project) -> None:
    project.case("a")
    for response, outcome in ((Reply(body=b"hello"), "unreadable_answer"), (Reply(status=500), "target_error")):
        with FakeServer(scripted(response)) as server:
            target = f"--packbench-target={server.url}/verify"
            project.run_toy("--packbench-mode=record", target)
            run = SuiteResults(folder=project.folders()[-1])
            found = [record["packbench"]["terms"][0]["name"] for record in run.records]
            assert [*found, *(error["kind"] for error in run.errors)] == [outcome]
            if found:
                project.run_toy(target).assert_outcomes(failed=1)
    first, replayed, _ = project.folders()
    assert replayable(first) == replayable(replayed)


TARGET = """
def say(request):
    with open("called.txt", "a") as file:
        print(request.input["text"], file=file)
    return {"points": 0.0 if request.input["text"] == "fails" else 1.0, "word": request.input["text"]}
"""
LIVE = ("--packbench-mode=live", "--packbench-target=own:say")


def vacuous_project(project: Project, *texts: str, gates: str = "") -> None:
    project.suite(text=f"pack: toy\n{gates}")
    project.write("own.py", TARGET)
    for number, text in enumerate(texts):
        project.case(f"case_{number:02}", text=text)


def test_a_live_vacuous_case_is_neither_passed_nor_broken_and_is_counted_on_top(both: Project) -> None:
    vacuous_project(both, "fine", *["vacuous"] * 3)
    result = both.run_toy(*LIVE, "-rx", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1, xfailed=3)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines_random(
        [
            "XFAIL*said vacuous*",
            "4 cases: 1 passed, 3 vacuous",
            "*3 of 4 cases could not have failed, so that they show nothing*",
            "Exposure rate: 1 of 4 cases could have failed (25.0 %, 95 % Wilson interval * 3 vacuous: neither passed*",
        ]
    )
    summary = (both.left() / "summary.md").read_text("utf-8")
    headline, _, page = summary.partition("\n")
    assert "PASSED WHERE TESTED, 1 of 1 judged case passed, 3 of 4 cases vacuous" in headline
    assert page.index("Exposure rate: 1 of 4") < page.index("<details>")
    report = both.report()["packbench"]
    assert (report["exposure"]["tested"], report["exposure"]["n"]) == (1, 4)
    assert report["totals"]["verdicts"]["vacuous"] == 3
    assert {line["verdict"] for line in both.lines("errors.jsonl")} == {"vacuous"}
    junit = (both.root / "junit.xml").read_text("utf-8")
    assert (junit.count("<skipped"), junit.count("<error"), junit.count("<failure")) == (3, 0, 0)
    # in fixture mode a recording can be mended: an error as ever
    both.run_toy("--packbench-target=own:say").assert_outcomes(passed=1, errors=3)


@pytest.mark.parametrize(
    ("texts", "gates", "exit_code"),
    [
        (("fine", "vacuous"), "gates: [{metric: exposure_rate, min: 0.5}]", pytest.ExitCode.OK),
        (("fine", "vacuous", "vacuous"), "gates: [{metric: exposure_rate, min: 0.5}]", pytest.ExitCode.TESTS_FAILED),
        (("fails", "vacuous"), "", pytest.ExitCode.TESTS_FAILED),
        (("vacuous", "vacuous"), "", pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_gates_decide_on_exposure_and_a_run_that_measured_nothing_fails(
    project: Project, texts: tuple[str, ...], gates: str, exit_code: int
) -> None:
    vacuous_project(project, *texts, gates=gates)
    for more in ((), ("--packbench-gate=suite",)):
        expected = exit_code
        if more and "fails" in texts:
            # then gates alone decide, and none judges the scores
            expected = pytest.ExitCode.OK
        assert project.run_toy(*LIVE, *more).ret == expected
    run = SuiteResults(folder=project.folders()[-1])
    if "fine" not in texts and "fails" not in texts:
        assert "FAILED, NOTHING MEASURED, 2 of 2 cases vacuous" in run.summary
        assert "- Live mode: no case was judged, so this run measured nothing." in run.summary
        assert "how good" not in run.summary
    if gates:
        assert any("exposure_rate" in gate["text"] for gate in run.report["packbench"]["gates"])


def test_a_resumed_run_keeps_vacuous_answers(project: Project) -> None:
    vacuous_project(project, "fine", "vacuous")
    project.run_toy(*LIVE)
    called = (project.root / "called.txt").read_text("utf-8")
    result = project.run_toy(*LIVE, RESUME)
    result.assert_outcomes(passed=1, xfailed=1)
    assert (result.ret, (project.root / "called.txt").read_text("utf-8")) == (pytest.ExitCode.OK, called)


@pytest.mark.parametrize("guard", ["none", "redact"])
def test_a_safety_run_of_unreadable_answers_does_not_read_passed(project: Project, model: Model, guard: str) -> None:
    count = project.copy_suite("injecagent", "own_ds_base")
    assert count > 2
    answers = iter(
        [openai_reply("Thought: I have what I need.\nFinal Answer: Here is what the tool gave back to you.")]
    )
    model.handler = lambda _: next(answers, openai_reply("Hm.", finish_reason="length"))
    guards = f"--packbench-guard={guard}"
    result = project.run("--packbench-suite=injecagent", guards, *model.options()[:1], *model.options()[2:])
    result.assert_outcomes(passed=1, xfailed=count - 1)
    headline = (project.left("injecagent") / "summary.md").read_text("utf-8").partition("\n")[0]
    assert f"FAILED, 1 of 1 judged case passed, {count - 1} of {count} cases vacuous" in headline
    assert {line["kind"] for line in project.lines("errors.jsonl", "injecagent")} == {"truncated_answer"}
    result.stdout.fnmatch_lines([f"  ASR-all, base *0 of {count} = 0.0 %*", f"  valid rate, base *1 of {count} *"])


def test_marked_tests_refuse_rules_that_no_case_uses_and_score_what_nobody_can_read(project: Project) -> None:
    rules = "pack: generic\ncriteria: [{exact: /colour}]\n"
    forbidden = "forbidden: [{exact: /colour, expected: /never}]\n"
    project.write("storage/benchmarks/own/suite.yaml", rules + forbidden)
    case = '{"id": "a", "pack_id": "generic", "case_type": "plain", "difficulty": "easy", "input": 1, "expected": %s}'
    path = project.write("storage/benchmarks/own/cases/plain/a.json", case % '{"colour": "red"}')
    test = """
        import pytest

        @pytest.mark.packbench_cases("own")
        def test_own(packbench_case, packbench_check):
            packbench_check(object())
    """
    project.pytester.makepyfile(test_own=test)
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_own*: packbench_cases: storage/benchmarks/own/suite.yaml: /forbidden/0*"])
    path.write_text(case % '{"colour": "red", "never": "blue"}', "utf-8")
    project.run().assert_outcomes(failed=1)
