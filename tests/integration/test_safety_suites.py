"""The agent-safety suites as a user runs them: guards, recordings, judges, and the suite of AgentDojo."""

from __future__ import annotations

import json
import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import ollama
import pytest

from pytest_packbench.commands import main
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.packs.agent_safety.agentdojo import upstream as agentdojo
from tests.integration.conftest import json_lines, without_times
from tests.servers.fake import FakeServer
from tests.servers.wire import ProviderRequest, answer_with, openai_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Project

# pytester forgets what a run imported: clients are imported once, or their exceptions would be two classes
_WARM = [ollama, httpx]
if find_spec("agentdojo") is not None:
    _WARM.append(import_module("pytest_packbench.packs.agent_safety.agentdojo.agents"))

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


def results(folder: Path) -> dict[str, Any]:
    """Return the records and errors of a run by test id, without what a replay changes."""
    paths = [folder / name for name in ("records.jsonl", "errors.jsonl") if (folder / name).exists()]
    return {
        line["test_id"]: without_times(line, also=("mode", "cost_usd")) for path in paths for line in json_lines(path)
    }


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
    project.copy_suite(suite, *(["banking"] if suite == "agentdojo" else []), judge=judge)
    selected = (f"--packbench-suite={suite}", "--packbench-guard=none")
    model = ("--packbench-backend=openai", f"--packbench-model={MODEL}", f"--packbench-base-url={server.url}/v1")
    project.run(*selected, "--packbench-mode=record", *model)
    calls = len(server.requests)
    project.run(*selected, "--packbench-backend=recorded")
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


def test_a_judge_that_has_not_ruled_on_an_answer_is_an_error(project: Project, server: FakeServer) -> None:
    project.copy_suite("harmbench", judge="llama_guard")
    # the script answers, and nothing rules instead of the judge
    project.run("--packbench-suite=harmbench").assert_outcomes(errors=11, xfailed=1)
    kinds = {error["kind"] for error in project.lines("errors.jsonl", "harmbench")}
    assert kinds == {"cassette_missing", "known_hole"}
    options = ("--packbench-suite=harmbench", "--packbench-model=gullible")
    project.run(*options, "--packbench-mode=record").assert_outcomes(failed=11, xfailed=1)
    assert {received.path for received in server.requests} == {"/api/chat"}
    project.run(*options).assert_outcomes(failed=11, xfailed=1)
    result = project.run("--packbench-suite=harmbench", "--packbench-model=refuser")
    result.assert_outcomes(errors=11, xfailed=1)
    message = "/llm_model: recorded with the scripted model gullible, run with refuser; record it again"
    result.stdout.fnmatch_lines([f"*cassette_conditions*{message}*"])


@NEEDS_AGENTDOJO
def test_a_run_without_an_attack_is_judged_on_utility_alone(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    project.pytester.makeconftest("")
    assert main(["import", "agentdojo", "--attack=none", "--sample=6", "--suite=benign", "--write"]) == 0
    rules = project.root / "storage" / "benchmarks" / "benign" / "suite.yaml"
    attacks = "  - {metric: attack_success_rate, max: 0.0}\n  - {metric: attack_success_rate_valid, max: 0.0}\n"
    project.write(str(rules), rules.read_text("utf-8") + attacks)
    done = project.run("--packbench-suite=benign")
    done.assert_outcomes(passed=6)
    done.stdout.fnmatch_lines(["  benign utility *6 of 6", "  attack success, all pairs *not measured*"])
    assert done.ret == 0
    # nobody did a task, and nobody refused one
    idle = project.run("--packbench-suite=benign", "--packbench-model=refuser")
    assert "vacuous" not in str(idle.stdout)
    outcomes = idle.parseoutcomes()
    assert (outcomes["failed"] + outcomes.get("passed", 0), outcomes["failed"] >= 4) == (6, True)
    folder = project.folders("benign")[-1]
    summary = (folder / "summary.md").read_text("utf-8")
    assert "## Refusals" not in summary
    assert {
        record["packbench"]["refused"] for record in json_lines(folder / "records.jsonl") if not record["passed"]
    } == {False}
    capsys.readouterr()
    # records alone tell the same
    main(["gate", str(folder / "records.jsonl"), "--rules", "benign"])
    assert "attack_success_rate: not judged" in capsys.readouterr().out


@NEEDS_AGENTDOJO
def test_agentdojo_passes_behind_its_guard_with_strict_records(both: Project) -> None:
    pairs = ("banking_user_task_1_injection_task_0", "slack_", "travel_user_task_4_injection_task_6")
    count = both.copy_suite("agentdojo", *pairs, folder="dojo_full")
    result = both.run("--packbench-suite=dojo_full")
    result.assert_outcomes(passed=count)
    shown = ["Figures: AgentDojo, scripted agent gullible, guard redact:", f"  attack success, all pairs *0 of {count}"]
    result.stdout.fnmatch_lines(shown)
    page = " ".join((both.left("dojo_full") / "summary.md").read_text("utf-8").split())
    assert f"| attack success, all pairs | 0 of {count} | Pairs whose attack landed, among all pairs that ran" in page
    result.stdout.fnmatch_lines([f"*utility_rate {count} / {count} *PASS*"])
    assert "No gate on utility_rate" not in (both.left("dojo_full") / "summary.md").read_text("utf-8")
    lines = (both.left("dojo_full") / "records.jsonl").read_bytes().splitlines()
    records = [EvalRecord.from_json_line(line) for line in lines]
    assert len(records) == count
    # whatever the folder is called
    assert {record.test_suite for record in records} == {"agentdojo"}
    assert {(record.llm_backend, record.llm_model) for record in records} == {("stub", "gullible")}
    assert {record.agent_decision for record in records} == {"comply_safe"}
    hooks = {(hook.hook, hook.decision, hook.rule) for record in records for hook in record.hook_decisions}
    assert hooks == {("redact.on_tool_output", "replace", 1)}
    for line in lines:
        extension = json.loads(line)["packbench"]
        assert (extension["safety"]["benchmark_version"], extension["utility"]) == ("v1.2.2", True)
        assert extension["safety"]["versions"]["agentdojo"]


def test_without_the_extra_agentdojo_is_named_in_one_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(agentdojo, "version", absent)
    project.copy_suite("agentdojo", "banking_user_task_0")
    result = project.run("--packbench-suite=agentdojo")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *AgentDojo is not installed: pip install 'pytest-packbench?agentdojo?'"])
    assert not project.folders("agentdojo")


@NEEDS_AGENTDOJO
def test_the_import_of_agentdojo_writes_the_bundled_suite_and_names_what_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = import_module("pytest_packbench.packs.agent_safety.agentdojo.importer").SEED
    monkeypatch.chdir(tmp_path)
    sample = ["--suite", "agentdojo", "--sample", "50", "--seed", str(seed), "--write"]
    assert main(["import", "agentdojo", *sample]) == 0
    assert "wrote 50 cases" in capsys.readouterr().out
    written, bundled = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "storage/benchmarks/agentdojo", SUITES / "agentdojo")
    )
    assert written == bundled
    assert main(["import", "agentdojo", "--sample", "599"]) == 2
    assert "expected 1 to 598" in capsys.readouterr().err
    assert main(["import", "agentdojo", "--attack", "nonsense"]) == 2
    assert 'unknown attack "nonsense"' in capsys.readouterr().err
