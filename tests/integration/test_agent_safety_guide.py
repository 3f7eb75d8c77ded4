"""The guide to agent safety: the commands of each section print what it quotes."""

from __future__ import annotations

import json
import re
import shutil
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

import pytest_packbench.packs.agent_safety.pack
import pytest_packbench.pytest_plugin.session
from pytest_packbench.packs.agent_safety.outcome import read
from pytest_packbench.plugin import SETTINGS
from tests.doc_blocks import BLOCK, ROOT, Block, PageRunner, clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

# pytester forgets what a run imported: what is imported here is imported once
_WARM = [pytest_packbench.pytest_plugin, pytest_packbench.packs]
if find_spec("agentdojo") is not None:
    _WARM.append(import_module("pytest_packbench.packs.agent_safety.agentdojo.pair"))

PAGE = (ROOT / "docs" / "agent-safety.md").read_text("utf-8")
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n## ")[1:]}
CODES = {
    "Guard off, guard on": [1, 0],
    "AgentDojo": [0, 1, 0, 1],
    "InjecAgent": [1, 0],
    "HarmBench": [0, 1, 1, 0],
    "Judges": [1],
    "Guards": [1],
    "Your own agent": [0, 1],
}
EXECUTED = ("console", "text", "yaml", "python")


def blocks(title: str) -> Iterator[Block]:
    for match in BLOCK.finditer(SECTIONS[title]):
        yield Block(match["file"], match["kind"], match["text"])


def needs_agentdojo(title: str) -> bool:
    return any("agentdojo" in block.text for block in blocks(title) if block.kind == "console")


def test_every_section_with_commands_is_run() -> None:
    assert set(CODES) == {title for title in SECTIONS if any(block.kind == "console" for block in blocks(title))}
    assert {block.kind for title in SECTIONS for block in blocks(title)} == {*EXECUTED, "sh", "json"}


@pytest.mark.parametrize("title", CODES)
def test_the_commands_of_a_section_print_what_it_quotes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], title: str
) -> None:
    if needs_agentdojo(title) and find_spec("agentdojo") is None:
        pytest.skip("the extra agentdojo is not installed")
    clean_environment(monkeypatch)
    pytester.makeini("[pytest]\n")
    for suite in ("agentdojo", "harmbench", "injecagent"):
        shutil.copytree(ROOT / "storage" / "benchmarks" / suite, pytester.path / "storage" / "benchmarks" / suite)
    runner = PageRunner(pytester, capsys)
    for block in blocks(title):
        if block.kind in EXECUTED:
            runner.block(block)
    assert runner.codes == CODES[title]


def test_commands_that_are_not_run_name_existing_options() -> None:
    options = {f"--packbench-{setting.name.replace('_', '-')}" for setting in SETTINGS}
    example = [block.text for title in SECTIONS for block in blocks(title) if block.kind == "sh"]
    assert example
    assert set(re.findall(r"--packbench-[\w-]*\w", "".join(example))) <= options


def test_the_result_of_the_guide_can_be_read() -> None:
    (example,) = [block.text for title in SECTIONS for block in blocks(title) if block.kind == "json"]
    outcome = read(json.loads(example))
    assert (outcome.landed, outcome.exposed, outcome.utility) == (False, True, True)
    assert [(call.name, call.status) for call in outcome.tool_calls] == [("send_money", "denied")]
    assert read({"error": {"kind": "timeout", "message": "..."}}).breakdown is not None
