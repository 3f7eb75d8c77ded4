"""`--packbench-mode`: live calls a model, record also stores its answers, fixture replays them without any client."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import all_text, cassettes, live, model_server, prepare, replayable
from tests.servers.fake import Reply
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.servers.fake import Received


def test_a_recording_replays_to_the_same_records(both: Project) -> None:
    prepare(both, "points 0.9", "points 0.5", "points 1")
    with model_server() as server:
        both.run_toy(*live(server, mode="record")).assert_outcomes(passed=2, failed=1)
        both.run_toy("--packbench-target=pipeline:ask").assert_outcomes(passed=2, failed=1)
        assert len(server.requests) == 3
    first, second = map(replayable, both.folders())
    assert first == second
    assert (first[0]["llm_backend"], first[0]["llm_model"]) == ("openai", "fake-1")
    assert (first[0]["tokens_input"], first[0]["tokens_output"]) == (11, 7)
    cassette = json.loads(cassettes(both)["case_00.json"])
    assert (cassette["origin"], cassette["exchanges"][0]["answer"]) == ("recorded", {"points": 0.9})


def test_live_mode_stores_no_recording(project: Project) -> None:
    prepare(project, "points 1")
    with model_server() as server:
        project.run_toy(*live(server)).assert_outcomes(passed=1)
    assert not (project.root / "storage/benchmarks/toy/fixtures").exists()
    assert project.lines("records.jsonl")[0]["packbench"]["mode"] == "live"


def test_only_selected_cases_are_recorded_again(project: Project) -> None:
    prepare(project, "points 1", "points 1")
    with model_server() as server:
        project.run_toy(*live(server, mode="record")).assert_outcomes(passed=2)
        before = cassettes(project)
        project.run_toy(*live(server, "-k", "case_01", mode="record")).assert_outcomes(passed=1, deselected=1)
    after = cassettes(project)
    assert {name for name in before if before[name] != after[name]} == {"case_01.json"}


def test_a_case_with_an_error_is_not_recorded(project: Project) -> None:
    prepare(project, "bad", "points 1")
    with model_server() as server:
        project.run_toy(*live(server, mode="record")).assert_outcomes(errors=1, passed=1)
    assert list(cassettes(project)) == ["case_01.json"]
    assert [error["kind"] for error in project.lines("errors.jsonl")] == ["bad_request"]
    assert len(project.lines("records.jsonl")) == 1


@pytest.mark.parametrize(
    ("target", "replies"),
    [
        ("pipeline:read_refusal", [openai_reply(None, refusal="I would rather not")]),
        ("pipeline:ask_again", [Reply(status=400, body={"error": {}}), openai_reply('{"points": 1}')]),
    ],
    ids=["a refusal", "a repeated call"],
)
def test_what_is_no_plain_answer_is_recorded_and_replayed(project: Project, target: str, replies: list[Reply]) -> None:
    prepare(project, "x")
    with model_server(lambda _: replies.pop(0)) as server:
        project.run_toy(*live(server, mode="record", target=target)).assert_outcomes(passed=1)
    project.run_toy(f"--packbench-target={target}").assert_outcomes(passed=1)


@pytest.mark.parametrize("target", ["pipeline:ask", "pipeline:ask_sync"])
def test_a_failure_shows_the_output_of_its_own_case(project: Project, target: str) -> None:
    prepare(project, "points 0.1", "points 1", "points 1", "points 1")
    with model_server(latency_s=0.05) as server:
        result = project.run_toy(*live(server, target=target))
    text = result.stdout.str()
    for output in ("asking for case_00", "asked for case_00", "trouble with case_00", "logging for case_00"):
        assert text.count(output) == 1, output
    assert not [number for number in range(1, 4) if f"case_{number:02}\n" in text.replace("::case_", "")]
    assert "asking for" not in result.stderr.str()


def test_an_interrupted_run_stores_all_answers_that_it_has(project: Project) -> None:
    prepare(project, *["points 1"] * 8)
    conftest = project.root / "conftest.py"
    hook = (
        "\n\ndef pytest_runtest_logreport(report):\n"
        "    if report.when == 'call' and 'case_02' in report.nodeid:\n"
        "        raise KeyboardInterrupt\n"
    )
    conftest.write_text(conftest.read_text("utf-8") + hook, encoding="utf-8")
    with model_server(latency_s=0.05) as server:
        result = project.run_toy(*live(server, "--packbench-concurrency=2"))
    assert (result.ret, "Traceback" in result.stderr.str()) == (pytest.ExitCode.INTERRUPTED, False)
    # also of cases that pytest had not reached
    scored = len(project.lines("records.jsonl"))
    assert 3 <= scored <= len(server.requests) <= 3 + 2 * 2
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["interrupted"] * (8 - scored)


def test_a_case_that_another_plugin_skips_calls_no_model(both: Project) -> None:
    prepare(both, *(f"text_{number}" for number in range(12)))
    conftest = both.root / "conftest.py"
    hook = (
        "\n\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items[:-2]:\n"
        "        item.add_marker(pytest.mark.skip(reason='not today'))\n"
    )
    conftest.write_text(conftest.read_text("utf-8") + hook, encoding="utf-8")
    result = both.run_toy("--packbench-mode=live", "--packbench-target=pipeline:note", "--packbench-concurrency=2")
    result.assert_outcomes(passed=2, skipped=10)
    assert sorted((both.root / "called.txt").read_text("utf-8").split()) == ["text_10", "text_11"]


def test_secrets_reach_no_file_and_no_terminal(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "tok-other-planted-9876543210"
    monkeypatch.setenv("SOME_SERVICE_TOKEN", other)

    def echo(received: Received) -> Reply:
        key = received.headers["authorization"].removeprefix("Bearer ")
        assert key.startswith("sk-planted-")
        if "error" in parse_request(received).text:
            return Reply(status=400, body={"error": {"message": f"bad key {key}, Authorization: Bearer {key}"}})
        return openai_reply(json.dumps({"points": 0.1, "echo": f"{key} and {other}", other: [key]}))

    prepare(project, "error", "echo")
    with model_server(echo) as server:
        echoed = project.run_toy(*live(server, mode="record", target="pipeline:leak"))
    raised = project.run_toy("--packbench-mode=live", "--packbench-target=pipeline:leak_error")
    echoed.assert_outcomes(errors=1, failed=1)
    raised.assert_outcomes(errors=2)
    text = all_text(project) + "".join(run.stdout.str() + run.stderr.str() for run in (echoed, raised))
    assert "sk-planted-" not in text
    assert other not in text
    assert "[redacted]" in text


def test_fixture_mode_imports_no_client(project: Project) -> None:
    project.case("ab", points=1.0)
    project.pytester.makepyfile(test_nothing="def test_one(): pass")
    # other plugins of the environment may import theirs
    code = """
import sys, pytest
def imported(argument):
    assert pytest.main(["-q", "-p", "no:cacheprovider", argument]) == 0
    return {"openai", "anthropic", "ollama", "httpx", "httpx2", "httpcore", "genai_prices"} & set(sys.modules)
assert imported("test_nothing.py") == imported("--packbench-suite=toy")
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=project.root, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
