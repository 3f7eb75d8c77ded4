"""What a green replay does not mean: results of another target, or without the guard that stood before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

PROGRAM = """
import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"points": 1.0}}), flush=True)
"""
GUARDED = """
from pytest_packbench.model.request import ModelRequest


class Wall:
    name = "wall"

    def __init__(self, height=2):
        self.height = height


class High(Wall):
    def __init__(self):
        super().__init__(3)


def ask(request, context):
    message = {"role": "user", "content": "the same"}
    context.llm.complete_sync(ModelRequest(role="ask", system="", messages=(message,)))
    return {"points": 1.0 if len(context.guards) < 3 else 0.0}
"""


def test_a_result_of_one_program_is_none_of_another(project: Project) -> None:
    project.write("agent.py", PROGRAM)
    for number in range(3):
        project.case(f"case_{number}")
    target = "--packbench-target=cmd:python agent.py"
    project.run_toy("--packbench-mode=record", target).assert_outcomes(passed=3)
    project.run_toy(target).assert_outcomes(passed=3)
    for other in ("cmd:does-not-exist", "http://example.invalid/verify"):
        result = project.run_toy(f"--packbench-target={other}")
        result.assert_outcomes(errors=3)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert (
            f"/conditions/target: recorded with cmd:python agent.py, run with {other}; record it again"
            in result.stdout.str()
        )


@pytest.mark.parametrize("before", ["wall:Wall", "none"])
def test_a_guard_cannot_be_taken_out_of_a_recording_or_put_into_one(
    project: Project, model: Model, before: str
) -> None:
    project.write("wall.py", GUARDED)
    project.case("case_0")
    model.handler = lambda _: openai_reply("ok")
    model.run(project, f"--packbench-guard={before}", mode="record", target="wall:ask").assert_outcomes(passed=1)
    target = "--packbench-target=wall:ask"
    project.run_toy(target, f"--packbench-guard={before}").assert_outcomes(passed=1)
    behind = {"wall:Wall": "wall (height=2)", "wall:High": "wall (height=3)", "none": "none"}
    for guard in behind.keys() - {before}:
        result = project.run_toy(target, f"--packbench-guard={guard}")
        result.assert_outcomes(errors=1)
        difference = f"/conditions/guards: recorded with {behind[before]}, run with {behind[guard]}; record it again"
        assert difference in result.stdout.str()


def test_a_client_of_ones_own_is_not_recorded_in_silence(both: Project, model: Model) -> None:
    both.write("own.py", "def ask(request, context=None):\n    return {'points': 1.0}\n")
    both.case("case_0")
    both.case("case_1")
    result = model.run(both, mode="record", target="own:ask")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "Nothing was recorded: the target called no model through packbench; call models through context.llm, *",
            "used: 0 model calls, 0 tokens, 0.0000 USD",
        ]
    )
    assert "Nothing was recorded: " in (both.left() / "summary.md").read_text("utf-8")
