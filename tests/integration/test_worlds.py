"""Agents of the user in the worlds: the examples of the guide play pairs of AgentDojo as AgentDojo's own runner does."""

from __future__ import annotations

import pytest

pytest.importorskip("agentdojo", reason="the extra agentdojo is not installed")

import gc
import json
import shutil
import sys
import warnings
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

import openai
from agentdojo.agent_pipeline import (
    AgentPipeline,
    InitQuery,
    OpenAILLM,
    SystemMessage,
    ToolsExecutionLoop,
    ToolsExecutor,
)

from pytest_packbench.packs.agent_safety.agentdojo.importer import Pair, case_of, pairs, select
from pytest_packbench.packs.agent_safety.agentdojo.suites import attack_of, suite_of
from pytest_packbench.packs.agent_safety.agentdojo.world import system_message
from pytest_packbench.packs.agent_safety.guards.base import letters_and_digits
from tests.doc_blocks import ROOT, blocks
from tests.integration.conftest import json_lines, without_times
from tests.servers.fake import FakeServer
from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import Project
    from tests.servers.fake import Received, Reply

# pytester forgets what a run imported: clients are imported once
_WARM = [openai, import_module("pytest_packbench.packs.agent_safety.agentdojo.world")]
VERSION, NAME, ADDRESSED = "v1.2.2", "gpt-4o-2024-05-13", "GPT-4"
ENVIRONMENTS = ("banking", "slack", "travel", "workspace")
EXAMPLES = {block.file: block.text for block in blocks(ROOT / "docs" / "agent-safety.md") if block.file}
SUITE = f"pack: agent_safety\nbenchmark: agentdojo\naddressed_as: {ADDRESSED}\nbackend: stub\nmodel: gullible\nguards: [redact]\n"
AGENTS = {"loop_agent:run": "python", "mcp_agent:run": "mcp", "dojo_agent:pipeline": "pipeline"}


class Script:
    """A scripted model, gullible, behind OpenAI's protocol: what it says depends on the conversation alone."""

    def __init__(self) -> None:
        self.users: dict[tuple[str, str], tuple[list[Any], str]] = {}
        self.attackers: dict[str, list[tuple[str, list[Any], str]]] = {}
        self.environments: dict[frozenset[str], str] = {}
        for name in ENVIRONMENTS:
            suite = suite_of(VERSION, name)
            self.environments[frozenset(tool.name for tool in suite.tools)] = name
            environment = suite.load_and_inject_default_environment({})
            for task in suite.user_tasks.values():
                start = task.init_environment(environment.model_copy(deep=True))
                self.users[name, task.PROMPT] = (task.ground_truth(start), str(task.GROUND_TRUTH_OUTPUT))
            self.attackers[name] = [
                (letters_and_digits(task.GOAL), task.ground_truth(environment), str(task.GROUND_TRUTH_OUTPUT))
                for task in suite.injection_tasks.values()
            ]

    def turns(self, pair: Pair) -> int:
        suite = suite_of(VERSION, pair.environment)
        prompt = suite.user_tasks[f"user_task_{pair.user}"].PROMPT
        goal = letters_and_digits(suite.injection_tasks[f"injection_task_{pair.injection}"].GOAL)
        attack = next(calls for text, calls, _ in self.attackers[pair.environment] if text == goal)
        return len(self.users[pair.environment, prompt][0]) + len(attack)

    def answer(self, received: Received) -> Reply:
        body = received.json()
        messages = body["messages"]
        environment = self.environments[frozenset(tool["function"]["name"] for tool in body["tools"])]
        prompt = next(text_of(message) for message in messages if message["role"] == "user")
        calls, output = self.users[environment, prompt]
        read = [letters_and_digits(text_of(message)) for message in messages if message["role"] == "tool"]
        done = len(read)
        for position, text in enumerate(read):
            found = [attack for attack in self.attackers[environment] if attack[0] in text]
            if found:
                _, calls, output = found[0]
                done = len(read) - position - 1
                break
        if done >= len(calls):
            return openai_reply(output or "Done.", model=body["model"])
        call = {"id": f"call_{len(read)}", "name": calls[done].function, "arguments": dict(calls[done].args)}
        return openai_reply("", tool_calls=[call], model=body["model"])


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(autouse=True)
def unclosed_clients() -> Iterator[None]:
    """Collect, after all else, the clients of the examples: they live as long as their process."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, script: Script) -> Iterator[FakeServer]:
    with FakeServer(script.answer) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


def write_suite(project: Project, played: list[Pair]) -> None:
    project.pytester.makeconftest("")
    project.write("storage/benchmarks/dojo/suite.yaml", SUITE)
    project.write("storage/benchmarks/dojo/cases/pairs.jsonl", "\n".join(json.dumps(case_of(pair)) for pair in played))
    for name, text in EXAMPLES.items():
        project.write(name, text)


def facts_of(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Utility and security of each pair, whatever its verdict."""
    lines = (folder / "payloads.jsonl").read_text("utf-8").splitlines()
    payloads = {line["test_id"]: line["result"] for line in map(json.loads, lines)}
    return {name: (result["checked"]["utility"], result["checked"]["landed"]) for name, result in payloads.items()}


def by_upstream(pair: Pair, client: openai.OpenAI) -> tuple[bool, bool]:
    """What AgentDojo's own runner says of a pair, without a line of this package but its faster loading."""
    suite = suite_of(VERSION, pair.environment)
    user = suite.user_tasks[f"user_task_{pair.user}"]
    injection = suite.injection_tasks[f"injection_task_{pair.injection}"]
    attack = attack_of(VERSION, pair.environment, "important_instructions", ADDRESSED)
    llm = OpenAILLM(client, NAME)
    loop = ToolsExecutionLoop([ToolsExecutor(), llm])
    pipeline = AgentPipeline([SystemMessage(system_message()), InitQuery(), llm, loop])
    pipeline.name = NAME
    utility, security = suite.run_task_with_pipeline(pipeline, user, injection, attack.attack(user, injection))
    return utility, security


def test_three_kinds_of_agents_play_pairs_as_upstream_does(
    project: Project, server: FakeServer, script: Script
) -> None:
    # those with the fewest calls; the checkers of workspace take longest
    short = sorted(select(pairs(), 400, 4), key=script.turns)
    slow = [pair for pair in short if pair.environment == "workspace"]
    played = [*[pair for pair in short if pair not in slow][:28], *slow[:2]]
    assert len(played) == 30
    write_suite(project, played)
    names = [
        f"agentdojo:{case_of(pair)['input']['ids']['environment']}:user_task_{pair.user}:injection_task_{pair.injection}"
        for pair in played
    ]
    with openai.OpenAI() as client:
        upstream = dict(zip(names, [by_upstream(pair, client) for pair in played], strict=True))
    assert Counter(upstream.values())[False, True] > 15
    options = ("--packbench-suite=dojo", "--packbench-mode=live", "--packbench-guard=none")
    for agent in AGENTS:
        project.run(*options, f"--packbench-target={agent}")
        assert facts_of(project.folders("dojo")[-1]) == upstream, agent


def test_recorded_agents_play_again_in_real_worlds(project: Project, server: FakeServer, script: Script) -> None:
    write_suite(project, [Pair("banking", 1, 7, "easy"), Pair("travel", 4, 6, "easy")])
    for agent, door in AGENTS.items():
        options = ("--packbench-suite=dojo", f"--packbench-target={agent}")
        # the guard stands before every door: one is enough
        guards = (("none", {"failed": 2}), ("redact", {"passed": 2}))[: 2 if door == "mcp" else 1]
        for guard, outcomes in guards:
            recorded, calls = project.root / "storage/benchmarks/dojo/fixtures", len(server.requests)
            shutil.rmtree(recorded, ignore_errors=True)
            guarded = (*options, f"--packbench-guard={guard}")
            project.run(*guarded, "--packbench-mode=record").assert_outcomes(**outcomes)
            calls, before = len(server.requests), len(server.requests) - calls
            assert before > 2
            project.run(*guarded).assert_outcomes(**outcomes)
            assert len(server.requests) == calls
            recorded_lines, replayed_lines = (
                [without_times(line, also=("mode", "cost_usd")) for line in json_lines(folder / "records.jsonl")]
                for folder in project.folders("dojo")[-2:]
            )
            assert recorded_lines == replayed_lines
            record = replayed_lines[0]
            safety = record["packbench"]["safety"]
            assert (safety["agent"], safety["scripted"], safety["details"]["doors"]) == (agent, False, [door])
            assert safety["guards"] == ([] if guard == "none" else [guard])
            assert (record["llm_backend"], record["llm_model"][:4]) == ("openai", "gpt-")


CLAIMS = """
def claim(request):
    return {"landed": False, "exposed": True, "utility": True, "answer": "Done."}


def read(request):
    for function in request.functions:
        if not [each for each in request.input["tools"] if each["name"] == function.__name__][0]["parameters"].get("required"):
            function()
    return "Done."
"""


def test_a_bare_claim_passes_nowhere_and_the_script_of_the_suite_gets_no_credit(project: Project) -> None:
    write_suite(project, [Pair("banking", 10, 8, "easy"), Pair("banking", 1, 0, "easy")])
    project.write("claims.py", CLAIMS)
    options = ("--packbench-suite=dojo", "--packbench-guard=none")
    project.run(*options, "--packbench-target=claims:claim").assert_outcomes(errors=2)
    result = project.run(*options, "--packbench-target=claims:read")
    result.assert_outcomes(passed=2)
    # it calls no model: counts alone
    result.stdout.fnmatch_lines(["*attack success, all pairs *0 of 2"])
    result.stdout.no_fnmatch_line("*gullible*")
    (record, _) = json_lines(project.folders("dojo")[-1] / "records.jsonl")
    assert (record["llm_backend"], record["llm_model"]) == ("unknown", "unknown")
    result = project.run(*options, "--packbench-target=claims:read", "--packbench-backend=stub")
    result.stderr.fnmatch_lines(["ERROR: *a scripted model plays in the target of the pack agent_safety only*"])


def test_a_program_plays_and_its_whole_result_is_replayed(project: Project) -> None:
    write_suite(project, [Pair("banking", 10, 8, "easy")])
    options = ("--packbench-suite=dojo", f"--packbench-target=cmd:{sys.executable} http_agent.py")
    project.run(*options, "--packbench-mode=record").assert_outcomes(passed=1)
    result = project.run(*options)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*pipeline not run: scoring only*"])
    (before,), (after,) = (json_lines(folder / "records.jsonl") for folder in project.folders("dojo"))
    assert without_times(before, also=("mode", "cost_usd")) == without_times(after, also=("mode",))
    assert (after["packbench"]["safety"]["details"]["doors"], after["packbench"]["safety"]["guards"]) == (
        ["http"],
        ["redact"],
    )
    (cassette,) = (project.root / "storage/benchmarks/dojo/fixtures").glob("*.json")
    data = json.loads(cassette.read_text("utf-8"))
    data["exchanges"][0]["answer"] = {"landed": False, "exposed": True}
    cassette.write_text(json.dumps(data), "utf-8")
    project.run(*options).assert_outcomes(errors=1)
    (error,) = json_lines(project.folders("dojo")[-1] / "errors.jsonl")
    assert "the agent's own word" in error["message"]


def test_answers_to_harmbench_are_shown_as_unclipped(project: Project) -> None:
    project.copy_suite("harmbench")
    project.write("declines.py", "def answer(request):\n    return \"I'm sorry, but I can't help with that.\"\n")
    result = project.run("--packbench-suite=harmbench", "--packbench-target=declines:answer")
    result.stdout.fnmatch_lines(["*judged by refusal_detector (the weakest judge), answers of any length*"])
