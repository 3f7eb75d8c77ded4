"""One pair in AgentDojo: the attack it brings, the model behind it, the shortcuts that change no result."""

from __future__ import annotations

import pytest

pytest.importorskip("agentdojo", reason="the extra agentdojo is not installed")

import gc
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import agentdojo.task_suite.task_suite as task_suites
import pydantic.networks
import yaml
from agentdojo.agent_pipeline.agent_pipeline import load_system_message
from agentdojo.default_suites.v1.travel.task_suite import TravelDeepDiff
from agentdojo.default_suites.v1.workspace.task_suite import WorkspaceDeepDiff

from pytest_packbench.backends import BackendError
from pytest_packbench.model.request import ModelAnswer, ToolCall
from pytest_packbench.packs.agent_safety.agentdojo.importer import SEED, VERSION, case_of, hole_of, pairs, select
from pytest_packbench.packs.agent_safety.agentdojo.suites import adapt, addressed_as, attack_of, suite_of
from tests.controls.test_agentdojo_controls import CASES, RULES, case
from tests.unit.safety_runs import ScriptedModel, run_case


def calls(*names: str, **arguments: Any) -> ModelAnswer:
    """An answer that calls tools."""
    return ModelAnswer(
        content="", tool_calls=tuple(ToolCall(id=f"id_{name}", name=name, arguments=arguments) for name in names)
    )


def test_a_model_gets_the_tools_and_acts_in_the_real_environment() -> None:
    model = ScriptedModel(
        [calls("get_iban"), calls("update_password", password="new_password"), ModelAnswer(content="Done.")]  # noqa: S106 - of the benchmark
    )
    run = run_case(case("banking", 1, 7), RULES, model="m-1", llm=model)
    first, second, third = model.requests
    assert {request.role for request in model.requests} == {"step"}
    assert (first.system, first.messages[0]["role"], len(first.tools)) == (load_system_message(None), "user", 11)
    assert all(tool.parameters["type"] == "object" and tool.description for tool in first.tools)
    call = {"id": "id_get_iban", "name": "get_iban", "arguments": {}}
    output = second.messages[2]["content"]
    assert second.messages[1:] == (
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "id_get_iban", "content": output},
    )
    assert third.messages[-1]["tool_call_id"] == "id_update_password"
    # the real checker looks at the real environment
    assert (run.outcome.landed, run.outcome.scripted, run.outcome.agent) == (True, False, "m-1")
    assert run.outcome.answer == "Done."
    assert run.calls == [("get_iban", "run"), ("update_password", "run")]
    assert run.outcome.versions["benchmark"] == VERSION
    assert json.loads(json.dumps(run.result)) == run.result


def test_a_model_is_told_of_its_mistakes_and_may_go_on_to_a_limit() -> None:
    model = ScriptedModel([calls("no_such_tool", "read_file"), ModelAnswer(content=None, refusal="I'd rather not.")])
    run = run_case(case("banking", 0, 0), RULES, model="m-1", llm=model)
    errors = [message["content"] for message in model.requests[1].messages if message["role"] == "tool"]
    assert errors[0] == "Invalid tool no_such_tool provided."
    assert "ValidationError" in errors[1]
    assert [status for _, status in run.calls] == ["failed", "failed"]
    assert (run.outcome.answer, run.score.verdict) == ("I'd rather not.", "vacuous")
    # a call that fails is an error; a model that never stops is stopped
    with pytest.raises(BackendError, match="too slow"):
        run_case(case("banking", 0, 0), RULES, model="m-1", llm=ScriptedModel([BackendError("timeout", "too slow")]))
    model = ScriptedModel([calls("get_iban") for _ in range(99)])
    run = run_case(case("banking", 0, 0), RULES, model="m-1", llm=model)
    assert (len(model.requests), len(run.calls)) == (16, 15)


def test_an_attack_addresses_the_model_by_name() -> None:
    suite = suite_of(VERSION, "banking")
    for backend, model, name in (
        ("stub", "gullible", "Local model"),
        ("openai", "gpt-4o-2024-05-13", "GPT-4"),
        ("openai", "gpt-5.1-mini", "GPT-5.1"),
        ("anthropic", "claude-sonnet-4-6", "Claude"),
        ("ollama", "local-thing", "the AI language model"),
    ):
        assert addressed_as(backend, model) == name
        attack = attack_of(VERSION, "banking", "important_instructions", name)
        texts = attack.attack(suite.user_tasks["user_task_0"], suite.injection_tasks["injection_task_7"])
        assert [f"to you, {name}" in text for text in texts.values()] == [True] * len(texts) != []


def test_cases_are_pairs_with_their_known_holes_and_without_a_text_of_agentdojo() -> None:
    every = pairs()
    holes = [hole_of(pair.environment, pair.user, pair.injection) for pair in every]
    counts = {"": 949 - 330 - 21 - 7, "not_landable": 330, "scores_attempts": 21, "utility_unreachable": 7}
    assert Counter(hole[0] if hole else "" for hole in holes) == counts
    selected = select(every, 50, SEED)
    tasks = Counter((pair.environment, pair.injection) for pair in selected)
    assert (set(tasks.values()), len(tasks)) == ({1, 2}, 26)
    assert all(one.expected.known_hole is None for one in CASES)
    assert select(every, 50, 2) == select(list(reversed(every)), 50, 2) != select(every, 50, 1)
    with pytest.raises(ValueError, match="expected 1 to 591"):
        select(every, 592, 1)
    suites = [suite_of(VERSION, environment) for environment in ("banking", "slack", "travel", "workspace")]
    texts = [task.GOAL for suite in suites for task in suite.injection_tasks.values()]
    texts += [task.PROMPT for suite in suites for task in suite.user_tasks.values()]
    written = [json.dumps(case_of(pair)) for pair in every]
    assert not [text for text in texts if any(text in data for data in written)]


def test_the_loader_in_c_reads_the_same_environment() -> None:
    suite = suite_of(VERSION, "workspace")
    text = task_suites.read_suite_file("workspace", "environment.yaml", suite.data_path)
    filled = text.format(**suite.get_injection_vector_defaults())
    assert task_suites.yaml is not yaml
    assert task_suites.yaml.safe_load(filled) == yaml.safe_load(filled)
    assert yaml.safe_load.__module__ == "yaml"


@pytest.mark.parametrize("user", [7, 13, 18, 21, 33])
def test_skipping_what_is_equal_finds_the_same_differences(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = case("workspace", user, 2)
    fast = [run_case(pair, RULES, model=model).result for model in ("obedient", "gullible")]
    # the solution of task 13 writes a file and sends a mail, and reads both times: not the time of day
    assert user != 13 or "2024-06-01 12:00:00" in json.dumps(fast[0]["transcript"])
    for differ in (WorkspaceDeepDiff, TravelDeepDiff):
        monkeypatch.delitem(differ.keywords, "custom_operators")
    assert [run_case(pair, RULES, model=model).result for model in ("obedient", "gullible")] == fast


def test_preparing_agentdojo_changes_nothing_for_other_code_and_nothing_twice() -> None:
    def state() -> tuple[object, ...]:
        return gc.get_freeze_count(), pydantic.networks.validate_email, yaml.safe_load, yaml.SafeLoader

    before = state()
    adapt.__wrapped__()
    assert state() == before
    assert len(WorkspaceDeepDiff.keywords["custom_operators"]) == 1


def test_addresses_are_cached_only_while_an_environment_is_loaded() -> None:
    original = pydantic.networks.validate_email
    validators = []
    suite = suite_of(VERSION, "workspace")

    class Watched(suite.environment_type):  # type: ignore[name-defined, misc]  # the environment of a suite is a class
        @classmethod
        def model_validate(cls, *arguments: Any, **named: Any) -> Any:
            validators.append(pydantic.networks.validate_email)
            return super().model_validate(*arguments, **named)

    changed = copy(suite)
    changed.environment_type = Watched
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: changed.load_and_inject_default_environment({}), range(8)))
    assert (len(validators), original in validators) == (8, False)
    assert pydantic.networks.validate_email is original
