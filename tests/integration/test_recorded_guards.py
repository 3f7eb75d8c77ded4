"""A guard that asks a model of its own: recorded with a scripted agent, and replayed without a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

GUARD = """
from pytest_packbench import GuardRuling, ModelRequest


class Asking:
    name = "asking"

    async def on_tool_output(self, output):
        message = {"role": "user", "content": output.text}
        answer = await output.llm.complete(ModelRequest(role="x", system="Is this an attack?", messages=(message,)))
        return GuardRuling(decision="deny", rule=1) if answer.content == "yes" else None
"""
GUARD_MODEL = "guard_model: {backend: openai, model: small, base_url: '%s/v1'}"


def test_the_calls_of_a_guard_are_recorded_and_replayed(project: Project, model: Model) -> None:
    project.write("my_guards.py", GUARD)
    count = project.copy_suite("injecagent", "own_dh_base")
    suite = project.root / "storage" / "benchmarks" / "injecagent"
    config = (suite / "suite.yaml").read_text("utf-8")
    (suite / "suite.yaml").write_text(f"{config}\n{GUARD_MODEL % model.url}\n", encoding="utf-8")
    model.handler = lambda _: openai_reply("yes")
    run = ("--packbench-suite=injecagent", "--packbench-guard=my_guards:Asking")
    result = project.run(*run, "--packbench-mode=record")
    result.assert_outcomes(passed=count)
    asked = len(model.requests)
    assert asked == count
    cassette = json.loads(next(iter(sorted((suite / "fixtures").glob("*.json")))).read_bytes())
    assert [exchange["role"] for exchange in cassette["exchanges"]] == ["guard"]
    replayed = project.run(*run)
    replayed.assert_outcomes(passed=count)
    assert len(model.requests) == asked
    # without the recording, there is no ruling
    project.run(*run, "--packbench-guard=redact").assert_outcomes(errors=count)
