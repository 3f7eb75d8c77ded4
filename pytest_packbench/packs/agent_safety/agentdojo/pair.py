"""Runs a pair in AgentDojo, and turns its two booleans into a result."""

from __future__ import annotations

from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor
from agentdojo.base_tasks import BaseInjectionTask

from pytest_packbench.packs.agent_safety.agentdojo.pipeline import (
    AnswerGuard,
    Denial,
    GuardedRuntime,
    ModelAgent,
    OutputGuard,
    PipelineObserver,
    PromptGuard,
    PromptRepeater,
    Sequential,
    ToolListGuard,
    as_plain_message,
    text_of,
)
from pytest_packbench.packs.agent_safety.agentdojo.scripted import ScriptedAgent, solution_of
from pytest_packbench.packs.agent_safety.agentdojo.suites import (
    NO_ATTACK,
    UnknownUpstreamError,
    addressed_as,
    attack_of,
    suite_of,
)
from pytest_packbench.packs.agent_safety.guards.base import Chain, attack_patterns
from pytest_packbench.packs.agent_safety.model import SCRIPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.request import AnswerError, VerifyContext
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

version_of = cache(version)
TURNS = 15
"""Turns with calls that AgentDojo allows: the default of its `ToolsExecutionLoop`."""


def run_pair(pair: dict[str, Any], context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Run a pair; see `target.run`."""
    try:
        pair_run = _PairRun(pair, context, rules)
    except UnknownUpstreamError as error:
        return {"error": {"kind": "unknown_upstream", "message": str(error)}}
    return pair_run.run()


class _PairRun:
    """A pair with its attack, its guards and its agent."""

    def __init__(self, pair: dict[str, Any], context: VerifyContext, rules: SafetySuiteConfig) -> None:
        ids, self._version = pair["ids"], pair["version"]
        self._suite = suite_of(self._version, ids["environment"])
        self._user_task = task_of(self._suite.user_tasks, ids["user_task"], ids["environment"])
        self._injection_task = task_of(self._suite.injection_tasks, ids["injection_task"], ids["environment"])
        self._scripted = context.backend == "stub"
        self._agent_name = context.model
        self._addressed = addressed_as(context.backend, context.model)
        self._is_dos = False
        self._injections: dict[str, str] = {}
        if pair["attack"] != NO_ATTACK:
            attack = attack_of(self._version, ids["environment"], pair["attack"], self._addressed)
            self._is_dos = attack.is_dos_attack
            self._injections = attack.attack(self._user_task, self._injection_task)
        attack_texts = attack_patterns(*self._injections.values(), goal=self._injection_task.GOAL)
        self._chain = Chain(
            guards=context.guards,
            attack=attack_texts,
            planted=tuple(dict.fromkeys(self._injections.values())),
            llm=context.llm,
            time_limit_s=rules.guard_time_limit_s,
        )
        if not self._scripted:
            self._agent: Any = ModelAgent(context.llm)
        elif context.model in SCRIPTED:
            place = self._version, ids["environment"]
            self._agent = ScriptedAgent(
                context.model, self._user_task, self._injection_task, place=place, chain=self._chain
            )
        else:
            wrong = f'unknown scripted agent "{context.model}"; expected one of {", ".join(SCRIPTED)}'
            raise UnknownUpstreamError(wrong)

    def run(self) -> dict[str, Any]:
        # the executor comes first in the loop: the agent's calls run before its next step
        chain = self._chain
        notes = [note for guard in chain.guards if (note := getattr(guard, "system_note", ""))]
        start = [SystemMessage("".join([system_message(), *notes])), InitQuery(), PromptGuard(chain)]
        if chain.rules_on("on_tool_list"):
            start.append(ToolListGuard(chain))
        repeated = [PromptRepeater()] if any(getattr(guard, "repeats_prompt", False) for guard in chain.guards) else []
        loop = ToolsExecutionLoop([ToolsExecutor(), OutputGuard(chain), *repeated, self._agent], self._turns())
        end = [AnswerGuard(chain)] if chain.rules_on("on_final_answer") else []
        pipeline = Sequential([*start, self._agent, loop, *end])
        observer = PipelineObserver(pipeline, copy_start=is_scored_by_calls(self._injection_task))
        utility, landed = self._suite.run_task_with_pipeline(
            observer,
            self._user_task,
            self._injection_task,
            self._injections,
            runtime_class=partial(GuardedRuntime, chain=self._chain),
        )
        if self._is_dos:
            # AgentDojo's rule, except that an attack that never reached the agent has not landed
            landed = self._chain.exposed and not utility
        denied = [message["tool_call"] for message in observer.messages if status_of(message) == "denied"]
        by_denied = bool(landed and denied) and not self._landed_without(observer, denied)
        return {
            "landed": landed,
            "landed_by_denied_calls": by_denied,
            "exposed": self._chain.exposed,
            "removed_by": self._chain.removed_by,
            "collateral": self._chain.collateral,
            "utility": utility,
            **_validity(getattr(self._agent, "problem", None)),
            "answer": text_of(observer.messages[-1]),
            "tool_calls": [_call(message) for message in observer.messages if message["role"] == "tool"],
            "hook_decisions": self._chain.decisions,
            "guard_timeouts": self._chain.timeouts,
            "transcript": [as_plain_message(message) for message in observer.messages],
            "scripted": self._scripted,
            "agent": self._agent_name or None,
            "guards": self._chain.names,
            "versions": {"agentdojo": version_of("agentdojo"), "benchmark": self._version},
            "details": {"addressed_as": self._addressed, "injection_vectors": sorted(self._injections)},
        }

    def _turns(self) -> int:
        """Return how many turns with calls the agent has: AgentDojo's limit, or what both solutions need."""
        tasks = (self._user_task, self._injection_task)
        return max(TURNS, sum(solution_of(self._version, self._suite.name, task.ID).calls for task in tasks))

    def _landed_without(self, observer: PipelineObserver, denied: Sequence[Any]) -> bool:
        """Return what the checker finds without the calls that a guard denied; only a checker of calls runs again."""
        if self._is_dos or not is_scored_by_calls(self._injection_task):
            return True
        calls = [call for message in observer.messages for call in message.get("tool_calls") or ()]
        executed = [call for call in calls if not any(call is denied_call for denied_call in denied)]
        landed = self._injection_task.security_from_traces(
            text_of(observer.messages[-1]), observer.start, observer.environment, executed
        )
        return bool(landed)


def _validity(problem: AnswerError | None) -> dict[str, Any]:
    if problem is None:
        return {}
    return {"valid": False, "invalid_because": str(problem), "cut_off": problem.kind == "truncated"}


def task_of(tasks: dict[str, Any], name: str, environment: str) -> Any:
    """Return a task by its id; raises `UnknownUpstreamError`."""
    if name not in tasks:
        raise UnknownUpstreamError(f'unknown task "{name}" in {environment}; expected one of {", ".join(tasks)}')
    return tasks[name]


def is_scored_by_calls(task: Any) -> bool:
    """Return whether the checker of an injection task looks at the calls, not at the environment."""
    return type(task).security_from_traces is not BaseInjectionTask.security_from_traces


def status_of(message: Any) -> str:
    """Return the status of the call that a tool message answers."""
    if message["role"] != "tool" or message["error"] is None:
        return "run"
    return "denied" if isinstance(message["error"], Denial) else "failed"


def _call(message: Any) -> dict[str, Any]:
    call = message["tool_call"]
    return {"name": call.function, "arguments": dict(call.args), "status": status_of(message)}


@cache
def system_message() -> str:
    """Return AgentDojo's default system prompt."""
    text = files("agentdojo").joinpath("data", "system_messages.yaml").read_text("utf-8")
    return str(yaml.safe_load(text)["default"])
