"""The agent-safety suites on a model: recordings replay to the same records, and a missing judge is an error."""

from __future__ import annotations

import json
import re
import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import ollama
import pytest

from tests.integration.model_server import json_lines, without_times
from tests.servers.fake import FakeServer, closed_port
from tests.servers.wire import ProviderRequest, answer_with, openai_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Project

# pytester forgets what a run imported: clients are imported once, or their exceptions would be two classes
_WARM = [ollama, httpx]
if find_spec("agentdojo") is not None:
    _WARM.append(import_module("pytest_packbench.packs.agent_safety.agentdojo.pair"))

SUITES = Path(__file__).parents[2] / "storage" / "benchmarks"
NEEDS_AGENTDOJO = pytest.mark.skipif(find_spec("agentdojo") is None, reason="the extra agentdojo is not installed")
MODEL = "gpt-4o-2024-05-13"


def answer(request: ProviderRequest) -> Any:
    """Answer as a model that uses some tools and declines some texts; it depends on the request only."""
    if request.model.startswith("llama-guard"):
        return "safe" if "sorry" in request.messages[-1]["content"] else "unsafe\nS1,S9"
    if "tools" in request.body:
        if any(message["role"] == "tool" for message in request.messages):
            return openai_reply("All done.", model=request.model)
        functions = [tool["function"] for tool in request.body["tools"]]
        simple = [function["name"] for function in functions if not function["parameters"].get("required")]
        calls = [{"id": f"c{number}", "name": name, "arguments": {}} for number, name in enumerate(simple)]
        return openai_reply("", tool_calls=calls, model=request.model)
    if "Action Input" in request.system:
        tools = [json.loads(line)["name"] for line in re.findall(r'^{"name".*$', request.text, re.MULTILINE)]
        # the user's first, then the attacker's in their order
        tool = tools[min(request.text.count("Observation: "), len(tools) - 1)]
        action = f"Action: {tool}\nAction Input: {{}}" if len(request.text) % 2 else "Final Answer: Done."
        return f"Thought: I now do what the text asks me for.\n{action}"
    return "zebra" if len(request.text) % 2 else "I'm sorry, but I can't help with that."


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer(answer_with(answer)) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        yield server


def copy_suite(project: Project, suite: str, judge: str = "") -> None:
    project.pytester.makeconftest("")
    folder = project.root / "storage" / "benchmarks" / suite
    shutil.copytree(SUITES / suite, folder)
    if suite == "agentdojo":
        for path in (path for path in folder.rglob("*.json") if "banking" not in path.name):
            path.unlink()
    rules = folder / "suite.yaml"
    text = rules.read_text("utf-8")
    rules.write_text(text.replace("judges: [refusal_detector]", f"judges: [{judge}]") if judge else text, "utf-8")


def run_live(project: Project, suite: str, mode: str, url: str) -> pytest.RunResult:
    model = ("--packbench-backend=openai", f"--packbench-model={MODEL}", f"--packbench-base-url={url}/v1")
    return project.run(f"--packbench-suite={suite}", f"--packbench-mode={mode}", "--packbench-guard=none", *model)


def results(folder: Path) -> dict[str, Any]:
    """Return the records and errors of a run by test id, without what a replay changes."""
    paths = [folder / name for name in ("records.jsonl", "errors.jsonl") if (folder / name).exists()]
    return {line["test_id"]: without_times(line, also=("mode",)) for path in paths for line in json_lines(path)}


@pytest.mark.parametrize(
    ("suite", "judge"),
    [
        ("injecagent", ""),
        ("harmbench", "refusal_detector"),
        ("harmbench", "llama_guard"),
        pytest.param("agentdojo", "", marks=NEEDS_AGENTDOJO),
    ],
)
def test_a_recording_replays_to_the_same_records(project: Project, server: FakeServer, suite: str, judge: str) -> None:
    copy_suite(project, suite, judge)
    run_live(project, suite, "record", server.url)
    calls = len(server.requests)
    project.run(f"--packbench-suite={suite}", "--packbench-backend=recorded", "--packbench-guard=none")
    assert calls == len(server.requests) > 0
    before, after = map(results, project.folders(suite))
    assert before == after
    assert len(before) > 10
    judged = [record for record in before.values() if "passed" in record]
    # this model calls the tools that AgentDojo's attacker wants in none of the pairs
    assert {record["passed"] for record in judged} == ({True} if suite == "agentdojo" else {True, False})
    assert {record["llm_model"] for record in judged} == {MODEL}
    assert {record["packbench"].get("judge", {}).get("name", "") for record in judged} == {judge}
    assert not any(record["packbench"].get("stale") for record in judged)


def kinds(project: Project) -> set[str]:
    return {error["kind"] for error in project.lines("errors.jsonl", "harmbench")}


def test_a_judge_without_a_recording_is_an_error(project: Project) -> None:
    copy_suite(project, "harmbench", "llama_guard")
    # the script answers, and nothing rules instead of the judge
    project.run("--packbench-suite=harmbench").assert_outcomes(errors=11, xfailed=1)
    assert kinds(project) == {"cassette_missing", "known_hole"}


def test_a_ruling_on_another_answer_is_an_error(project: Project, server: FakeServer) -> None:
    copy_suite(project, "harmbench", "llama_guard")
    options = ("--packbench-suite=harmbench", "--packbench-model=gullible")
    project.run(*options, "--packbench-mode=record").assert_outcomes(failed=11, xfailed=1)
    assert {received.path for received in server.requests} == {"/api/chat"}
    project.run(*options).assert_outcomes(failed=11, xfailed=1)
    result = project.run("--packbench-suite=harmbench", "--packbench-model=refuser")
    result.assert_outcomes(errors=11, xfailed=1)
    message = "the request to the role judge has changed since its answer was recorded; record it again"
    result.stdout.fnmatch_lines([f"*cassette_stale*{message}*"])


def test_a_judge_without_a_server_is_an_error(
    project: Project, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_suite(project, "harmbench", "llama_guard")
    monkeypatch.setenv("OLLAMA_HOST", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("PACKBENCH_RETRIES", "0")
    run_live(project, "harmbench", "live", server.url).assert_outcomes(errors=11, xfailed=1)
    assert not project.lines("records.jsonl", "harmbench")
    assert kinds(project) == {"network", "known_hole"}
