"""`--packbench-mode`: recordings are written and replayed, and live runs keep output and secrets where they belong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.options.conftest import LIVE, recordings, replayable
from tests.servers.fake import Received, Reply
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


def test_recordings_replay_to_the_same_records_and_are_made_again_for_selected_cases(
    both: Project, model: Model
) -> None:
    both.prepare("points 0.9", "points 0.5", "points 1", "bad")
    model.run(both, mode="record").assert_outcomes(passed=2, failed=1, errors=1)
    recorded = recordings(both)
    # a case with an error has no recording
    assert sorted(recorded) == ["case_00.json", "case_01.json", "case_02.json"]
    both.run_toy("--packbench-target=pipeline:ask").assert_outcomes(passed=2, failed=1, errors=1)
    assert len(model.requests) == 4
    first, second = map(replayable, both.folders())
    model.run(both, "-k", "case_01", mode="record").assert_outcomes(failed=1)
    assert first == second
    assert (first[0]["llm_backend"], first[0]["llm_model"]) == ("openai", "fake-1")
    assert (first[0]["tokens_input"], first[0]["tokens_output"]) == (11, 7)
    cassette = json.loads(recorded["case_00.json"])
    assert (cassette["origin"], cassette["exchanges"][0]["answer"]) == ("recorded", {"points": 0.9})
    assert {name for name, content in recordings(both).items() if recorded[name] != content} == {"case_01.json"}


@pytest.mark.parametrize("target", ["pipeline:ask", "pipeline:ask_sync"])
def test_a_failure_shows_the_output_of_its_own_case(project: Project, model: Model, target: str) -> None:
    project.prepare("points 0.1", "points 1", "points 1", "points 1")
    model.latency_s = 0.05
    result = model.run(project, target=target)
    text = result.stdout.str()
    for output in ("asking for case_00", "asked for case_00", "trouble with case_00", "logging for case_00"):
        assert text.count(output) == 1, output
    assert not [number for number in range(1, 4) if f"case_{number:02}\n" in text.replace("::case_", "")]
    assert "asking for" not in result.stderr.str()


def test_a_case_that_another_plugin_skips_calls_no_model(both: Project) -> None:
    both.prepare(*(f"text_{number}" for number in range(12)))
    both.extend_conftest("""
        def pytest_collection_modifyitems(items):
            for item in items[:-2]:
                item.add_marker(pytest.mark.skip(reason="not today"))
        """)
    result = both.run_toy(LIVE, "--packbench-target=pipeline:note", "--packbench-concurrency=2")
    result.assert_outcomes(passed=2, skipped=10)
    assert sorted((both.root / "called.txt").read_text("utf-8").split()) == ["text_10", "text_11"]


def test_secrets_reach_no_file_and_no_terminal(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "tok-other-planted-9876543210"
    monkeypatch.setenv("SOME_SERVICE_TOKEN", other)

    def echo(received: Received) -> Reply:
        key = received.headers["authorization"].removeprefix("Bearer ")
        assert key.startswith("sk-planted-")
        if "error" in parse_request(received).text:
            return Reply(status=400, body={"error": {"message": f"bad key {key}, Authorization: Bearer {key}"}})
        return openai_reply(json.dumps({"points": 0.1, "echo": f"{key} and {other}", other: [key]}))

    model.handler = echo
    project.prepare("error", "echo")
    echoed = model.run(project, mode="record", target="pipeline:leak")
    raised = project.run_toy(LIVE, "--packbench-target=pipeline:leak_error")
    echoed.assert_outcomes(errors=1, failed=1)
    raised.assert_outcomes(errors=2)
    text = project.all_text() + "".join(run.stdout.str() + run.stderr.str() for run in (echoed, raised))
    assert not [secret for secret in ("sk-planted-", other) if secret in text]
    assert "[redacted]" in text
