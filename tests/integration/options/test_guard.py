"""`--packbench-guard`: guards between an agent and untrusted text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

OWN_GUARD = """
from pytest_packbench.packs.agent_safety.guards.base import GuardRuling

class Quiet:
    name = "quiet"

    def on_tool_output(self, output):
        return GuardRuling(decision="replace", text="", rule=42)
"""


@pytest.mark.parametrize(
    ("guards", "hooks", "named", "landed"),
    [
        ([], ["tool_policy.pre_tool_use"], "guards redact, tool_policy", 0),
        (["none"], [], "no guard", 2),
        (
            ["spotlight", "my_guards:Quiet"],
            ["spotlight.on_prompt_submit", "spotlight.on_tool_output", "quiet.on_tool_output"],
            "guards spotlight, quiet",
            0,
        ),
    ],
    ids=["the suite's", "none", "own"],
)
def test_guards_rule_in_their_order(
    project: Project, guards: list[str], hooks: list[str], named: str, landed: int
) -> None:
    project.write("my_guards.py", OWN_GUARD)
    project.copy_suite("injecagent", "own_dh_base_1", "own_ds_base_1")
    result = project.run("--packbench-suite=injecagent", *(f"--packbench-guard={guard}" for guard in guards))
    result.assert_outcomes(**{"failed" if guards == ["none"] else "passed": 2})
    figures = [f"Figures: InjecAgent, scripted agent gullible, {named}:", f"  ASR-valid, base*{landed} of 2"]
    result.stdout.fnmatch_lines(figures)
    record = project.lines("records.jsonl", "injecagent")[0]
    assert [hook["hook"] for hook in record["hook_decisions"]][: len(hooks) or 1] == hooks
