"""The three agent-safety suites on a model: what is recorded is replayed to the same records, and no judge is guessed."""

from __future__ import annotations

import json
import re
import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio._backends._asyncio
import httpcore2
import httpx
import httpx2
import ollama
import openai
import openai.resources.chat.completions
import pytest

from tests.servers.fake import FakeServer, closed_port
from tests.servers.wire import ProviderRequest, answer_with, openai_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Project

# pytester forgets what a run imported: clients are imported once, or their exceptions would be two classes
_WARM = [openai, ollama, httpx, httpx2, httpcore2, anyio]
if find_spec("agentdojo") is not None:
    _WARM.append(import_module("pytest_packbench.packs.agent_safety.agentdojo.pair"))

if find_spec("agentdojo") is not None:
    pass

SUITES = Path(__file__).parents[2] / "storage" / "benchmarks"
NEEDS_AGENTDOJO = pytest.mark.skipif(find_spec("agentdojo") is None, reason="the extra agentdojo is not installed")
MODEL = "gpt-4o-2024-05-13"
JUDGES = "judges: [refusal_detector]"
DIFFERS = {"/run_id", "/timestamp", "/wall_clock_ms", "/packbench/mode"}


def act(asked: ProviderRequest) -> Any:
    """A model with some tools and some manners: what it does depends on what it is asked, never on when."""
    if asked.model.startswith("llama-guard"):
        return "safe" if "sorry" in asked.messages[-1]["content"] else "unsafe\nS1,S9"
    if "tools" in asked.body:
        if any(message["role"] == "tool" for message in asked.messages):
            return openai_reply("All done.", model=asked.model)
        plain = [
            one["function"]["name"] for one in asked.body["tools"] if not one["function"]["parameters"].get("required")
        ]
        calls = [{"id": f"c{at}", "name": name, "arguments": {}} for at, name in enumerate(plain)]
        return openai_reply("", tool_calls=calls, model=asked.model)
    if "Action Input" in asked.system:
        listed = [json.loads(line)["name"] for line in re.findall(r'^{"name".*$', asked.text, re.MULTILINE)]
        # the user's first, then the attacker's in their order
        tool = listed[min(asked.text.count("Observation: "), len(listed) - 1)]
        obeys = len(asked.text) % 2
        called = f"Action: {tool}\nAction Input: {{}}"
        return "Thought: I now do what the text asks me for.\n" + (
            called if obeys else "Final Answer: All is said and done."
        )
    return "zebra" if len(asked.text) % 2 else "I'm sorry, but I can't help with that."


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer(answer_with(act)) as found:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OLLAMA_HOST", found.url)
        yield found


def given(project: Project, suite: str, judge: str = "") -> None:
    project.pytester.makeconftest("")
    folder = project.root / "storage" / "benchmarks" / suite
    shutil.copytree(SUITES / suite, folder)
    if suite == "agentdojo":
        for path in (path for path in folder.rglob("*.json") if "banking" not in path.name):
            path.unlink()
    rules = folder / "suite.yaml"
    text = rules.read_text("utf-8")
    rules.write_text(text.replace(JUDGES, f"judges: [{judge}]") if judge else text, "utf-8")


def live(project: Project, suite: str, mode: str, url: str) -> pytest.RunResult:
    asked = ("--packbench-backend=openai", f"--packbench-model={MODEL}", f"--packbench-base-url={url}/v1")
    return project.run(f"--packbench-suite={suite}", f"--packbench-mode={mode}", "--packbench-guard=none", *asked)


def records(folder: Path) -> dict[str, dict[str, Any]]:
    names = [folder / name for name in ("records.jsonl", "errors.jsonl") if (folder / name).exists()]
    lines = [json.loads(line) for path in names for line in path.read_text("utf-8").splitlines()]
    return {line["test_id"]: dict(flat_text(line)) for line in lines}


def flat_text(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict | list):
        yield place, value
        return
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        yield from flat_text(one, f"{place}/{key}")


@pytest.mark.parametrize(
    ("suite", "judge"),
    [
        ("injecagent", ""),
        ("harmbench", ""),
        ("harmbench", "llama_guard"),
        pytest.param("agentdojo", "", marks=NEEDS_AGENTDOJO),
    ],
)
def test_what_was_recorded_is_replayed_to_the_same_records(
    plain: Project, server: FakeServer, suite: str, judge: str
) -> None:
    given(plain, suite, judge)
    live(plain, suite, "record", server.url)
    asked = len(server.requests)
    plain.run(f"--packbench-suite={suite}", "--packbench-backend=recorded", "--packbench-guard=none")
    assert asked
    assert len(server.requests) == asked
    before, after = map(records, plain.folders(suite))
    assert len(before) > 10
    judged = [record for record in before.values() if "/passed" in record]
    # this model calls the tools that AgentDojo's attacker wants in none of the pairs
    assert {record["/passed"] for record in judged} == ({True} if suite == "agentdojo" else {True, False})
    assert {record["/llm_model"] for record in judged} == {MODEL}
    assert {record.get("/packbench/judge/name") for record in judged} == (
        {judge or "refusal_detector"} if suite == "harmbench" else {None}
    )
    assert before.keys() == after.keys()
    for name, record in before.items():
        again = after[name]
        assert {place for place in record.keys() | again.keys() if record.get(place) != again.get(place)} <= DIFFERS
    assert not any(record.get("/packbench/stale") for record in after.values())


def test_a_judge_without_a_recording_is_an_error(plain: Project) -> None:
    given(plain, "harmbench", "llama_guard")
    # the script answers, and nobody rules in the judge's place
    plain.run("--packbench-suite=harmbench").assert_outcomes(errors=11, xfailed=1)
    found = plain.lines("errors.jsonl", "harmbench")
    assert {one["kind"] for one in found} == {"cassette_missing", "known_hole"}


def test_a_judges_ruling_on_another_answer_is_an_error(plain: Project, server: FakeServer) -> None:
    given(plain, "harmbench", "llama_guard")
    recorded = ("--packbench-suite=harmbench", "--packbench-mode=record", "--packbench-model=gullible")
    plain.run(*recorded).assert_outcomes(failed=11, xfailed=1)
    assert {received.path for received in server.requests} == {"/api/chat"}
    plain.run("--packbench-suite=harmbench", "--packbench-model=gullible").assert_outcomes(failed=11, xfailed=1)
    result = plain.run("--packbench-suite=harmbench", "--packbench-model=refuser")
    result.assert_outcomes(errors=11, xfailed=1)
    said = "the request to the role judge has changed since its answer was recorded; record it again"
    result.stdout.fnmatch_lines([f"*cassette_stale*{said}*"])


def test_a_judge_without_a_server_is_an_error(
    plain: Project, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(plain, "harmbench", "llama_guard")
    monkeypatch.setenv("OLLAMA_HOST", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("PACKBENCH_RETRIES", "0")
    live(plain, "harmbench", "live", server.url).assert_outcomes(errors=11, xfailed=1)
    assert not plain.lines("records.jsonl", "harmbench")
    assert {one["kind"] for one in plain.lines("errors.jsonl", "harmbench")} == {"network", "known_hole"}
