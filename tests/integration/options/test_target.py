"""`--packbench-target`: module:attr, cmd: and http: targets."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.options.conftest import replayable
from tests.servers.fake import FakeServer, Received, Reply

if TYPE_CHECKING:
    from tests.integration.conftest import Project

PROGRAM = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["params"]["input"]["text"] == "exit":
        print("last words", file=sys.stderr)
        os._exit(3)
    usage = {"tokens_input": 6, "tokens_output": 4}
    result = {"points": 0.9, "llm_backend": "ollama", "llm_model": "small", "usage": usage}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def test_a_command_is_recorded_and_replayed_without_running(both: Project) -> None:
    both.prepare("x", "exit", "y")
    both.write("program.py", PROGRAM)
    target = f"--packbench-target=cmd:{sys.executable} program.py"
    recorded = both.run_toy("--packbench-mode=record", target)
    recorded.assert_outcomes(passed=2, errors=1)
    recorded.stdout.fnmatch_lines(["*last words*"])
    assert {name: error["kind"] for name, error in both.errors().items()} == {"case_01": "target_died"}
    (both.root / "program.py").unlink()
    replayed = both.run_toy(target, "-k", "not case_01")
    replayed.assert_outcomes(passed=2)
    replayed.stdout.fnmatch_lines(["*pipeline not run: scoring only*"])
    first, second = map(replayable, both.folders())
    assert first == second
    assert (first[0]["llm_backend"], first[0]["llm_model"]) == ("ollama", "small")
    assert (first[0]["tokens_input"], first[0]["tokens_output"]) == (6, 4)


def test_an_address_is_recorded_and_replayed_without_its_server(project: Project) -> None:
    def verify(received: Received) -> Reply:
        assert set(received.json()) == {"input", "options", "evidence"}
        cut = received.json()["input"]["text"] == "cut"
        return Reply(cut=cut, body=b"{}" * 50 if cut else {"points": 1.0})

    project.prepare("x", "cut", "y")
    with FakeServer(verify) as server:
        target = f"--packbench-target={server.url.replace('//', '//user:planted-password@')}/verify"
        recorded = project.run_toy("--packbench-mode=record", target)
    recorded.assert_outcomes(passed=2, errors=1)
    assert [error["kind"] for error in project.lines("errors.jsonl")] == ["target_died"]
    replayed = project.run_toy(target, "-k", "not case_01")
    replayed.assert_outcomes(passed=2)
    assert "planted-password" not in project.all_text() + recorded.stdout.str() + replayed.stdout.str()


@pytest.mark.parametrize("text", ["import (", "raise SystemExit(1)"])
def test_a_target_that_can_not_be_imported_is_a_usage_error(project: Project, text: str) -> None:
    project.case("good")
    project.write("broken_target.py", text)
    result = project.run_toy("--packbench-target=broken_target:x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['ERROR: target "broken_target:x": importing broken_target raised *'])


def test_a_hook_that_raises_is_a_usage_error(project: Project) -> None:
    project.case("good")
    project.extend_conftest("def pytest_packbench_target(config, suite):\n    raise OSError('no server')\n")
    result = project.run_toy()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: the hook pytest_packbench_target raised OSError: no server"])
