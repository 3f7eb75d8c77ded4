"""Errors and answers: what a model or a target has said is scored, and what could not have failed is counted beside."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.conftest import ended
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


def test_what_a_model_has_said_is_scored_replayed_and_never_asked_for_again(project: Project, model: Model) -> None:
    project.prepare(*SAID, *BROKEN)
    project.pytester.makeini("[pytest]\npackbench_retries = 0\n")
    model.handler = reply
    ended(model.run(project, mode="record"), 1, failed=4, errors=2)
    assert list(terms(project).values()) == [term for _, term in SAID.values()]
    assert [error["kind"] for error in project.errors().values()] == ["server_error", "response_unreadable"]
    assert len(recordings(project)) == 4
    recorded = replayable(project.left())
    ended(project.run_toy("--packbench-target=pipeline:ask", "-k", "not case_04 and not case_05"), 1, failed=4)
    assert replayable(project.left()) == recorded
    del model.requests[:]
    model.run(project)
    del model.requests[:]
    model.handler = points
    ended(model.run(project, f"--packbench-resume={project.left().name}"), 1, passed=2, failed=4)
    assert {parse_request(received).text for received in model.requests} == set(BROKEN)
    assert project.document()["totals"]["verdicts"]["failed"] == 4


# what a program or a server answers with, and what becomes of it
ANSWERED: dict[str, Reply | str] = {
    "unreadable_answer": "input(); print('hello')",
    "target_died": "input(); print('no key'); raise SystemExit(3)",
    "unreadable_answer of a server": Reply(body=b"hello"),
    "target_error of a server": Reply(status=500),
}


@pytest.mark.parametrize("outcome", ANSWERED)
def test_a_program_answers_with_exit_code_0_and_a_server_with_200(project: Project, outcome: str) -> None:
    project.case("a")
    answer = ANSWERED[outcome]
    with FakeServer(scripted(answer if isinstance(answer, Reply) else Reply())) as server:
        project.write("program.py", answer if isinstance(answer, str) else "")
        program = f"cmd:{sys.executable} program.py" if isinstance(answer, str) else f"{server.url}/verify"
        target = f"--packbench-target={program}"
        project.run_toy("--packbench-mode=record", target)
    found = [record["packbench"]["terms"][0]["name"] for record in project.records().values()]
    assert [*found, *(error["kind"] for error in project.errors().values())] == outcome.split()[:1]
    if found:
        # its answer is replayed
        ended(project.run_toy(target), 1, failed=1)
        recorded, replayed = map(replayable, project.folders())
        assert recorded == replayed


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
    ended(
        both.run_toy(*LIVE, "-rx", "--junitxml=junit.xml"),
        0,
        "XFAIL*said vacuous*",
        "4 cases: 1 passed, 3 vacuous",
        "*3 of 4 cases could not have failed, so that they show nothing*",
        "Exposure rate: 1 of 4 cases could have failed (25.0 %, 95 % Wilson interval * 3 vacuous: neither passed*",
        passed=1,
        xfailed=3,
    )
    headline, _, page = both.text().partition("\n")
    assert "PASSED WHERE TESTED, 1 of 1 judged case passed, 3 of 4 cases vacuous" in headline
    assert page.index("Exposure rate: 1 of 4") < page.index("<details>")
    report = both.document()
    assert (report["exposure"]["tested"], report["exposure"]["n"]) == (1, 4)
    assert report["totals"]["verdicts"]["vacuous"] == 3
    assert {line["verdict"] for line in both.lines("errors.jsonl")} == {"vacuous"}
    junit = (both.root / "junit.xml").read_text("utf-8")
    assert (junit.count("<skipped"), junit.count("<error"), junit.count("<failure")) == (3, 0, 0)
    # in fixture mode a recording can be mended: an error as ever
    ended(both.run_toy("--packbench-target=own:say"), 1, passed=1, errors=3)


@pytest.mark.parametrize(
    ("texts", "gates", "codes"),
    [
        ("fine vacuous", "gates: [{metric: exposure_rate, min: 0.5}]", (0, 0)),
        ("fine vacuous vacuous", "gates: [{metric: exposure_rate, min: 0.5}]", (1, 1)),
        # where gates alone decide, none judges the scores
        ("fails vacuous", "", (1, 0)),
        ("vacuous vacuous", "", (1, 1)),
    ],
)
def test_gates_decide_on_exposure_and_a_run_that_measured_nothing_fails(
    project: Project, texts: str, gates: str, codes: tuple[int, int]
) -> None:
    vacuous_project(project, *texts.split(), gates=gates)
    ended(project.run_toy(*LIVE), codes[0])
    ended(project.run_toy(*LIVE, "--packbench-gate=suite"), codes[1])
    summary = project.text()
    if texts == "vacuous vacuous":
        assert "FAILED, NOTHING MEASURED, 2 of 2 cases vacuous" in summary
        assert "- Live mode: no case was judged, so this run measured nothing." in summary
        assert "how good" not in summary
    assert any("exposure_rate" in gate["text"] for gate in project.document()["gates"]) is bool(gates)
    # a resumed run keeps vacuous answers
    called = (project.root / "called.txt").read_text("utf-8")
    ended(project.run_toy(*LIVE, RESUME), codes[0])
    assert (project.root / "called.txt").read_text("utf-8") == called


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
