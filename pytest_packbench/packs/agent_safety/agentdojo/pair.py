"""From a case to a result: one run of a pair in AgentDojo, and what its two booleans mean."""

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
    Denial,
    GuardedRuntime,
    InOrder,
    ModelAgent,
    OutputGuard,
    PromptGuard,
    ScriptedAgent,
    Spy,
    plain,
    text_of,
)
from pytest_packbench.packs.agent_safety.agentdojo.suites import (
    NO_ATTACK,
    UnknownUpstreamError,
    addressed_as,
    attack_of,
    suite_of,
)
from pytest_packbench.packs.agent_safety.guards.base import Chain, needles
from pytest_packbench.packs.agent_safety.model import SCRIPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.request import VerifyContext

_version_of = cache(version)


def play(pair: dict[str, Any], context: VerifyContext) -> dict[str, Any]:
    """Run a pair; see `target.run`."""
    try:
        scene = _Scene(pair, context)
    except UnknownUpstreamError as error:
        return {"error": {"kind": "unknown_upstream", "message": str(error)}}
    return scene.play()


class _Scene:
    """A pair with its attack, its guards and its agent."""

    def __init__(self, pair: dict[str, Any], context: VerifyContext) -> None:
        ids, self._version = pair["ids"], pair["version"]
        self._suite = suite_of(self._version, ids["environment"])
        self._user_task = _task(self._suite.user_tasks, ids["user_task"], ids["environment"])
        self._injection_task = _task(self._suite.injection_tasks, ids["injection_task"], ids["environment"])
        self._scripted = context.backend == "stub"
        self._agent_name = context.model
        self._addressed = addressed_as(context.backend, context.model)
        self._is_dos = False
        self._injections: dict[str, str] = {}
        if pair["attack"] != NO_ATTACK:
            attack = attack_of(self._version, ids["environment"], pair["attack"], self._addressed)
            self._is_dos = attack.is_dos_attack
            self._injections = attack.attack(self._user_task, self._injection_task)
        attack_texts = needles(*self._injections.values(), goal=self._injection_task.GOAL)
        self._chain = Chain(guards=context.guards, attack=attack_texts)
        if not self._scripted:
            self._agent: Any = ModelAgent(context.llm)
        elif context.model in SCRIPTED:
            self._agent = ScriptedAgent(context.model, self._user_task, self._injection_task, attack_texts)
        else:
            wrong = f'no scripted agent is called "{context.model}"; known: {", ".join(SCRIPTED)}'
            raise UnknownUpstreamError(wrong)

    def play(self) -> dict[str, Any]:
        # the executor comes first in the loop: the agent's calls are run before it is asked again
        loop = ToolsExecutionLoop([ToolsExecutor(), OutputGuard(self._chain), self._agent])
        start = [SystemMessage(_system_message()), InitQuery(), PromptGuard(self._chain)]
        pipeline = InOrder([*start, self._agent, loop])
        spy = Spy(pipeline, keep_start=_is_scored_by_calls(self._injection_task))
        utility, landed = self._suite.run_task_with_pipeline(
            spy,
            self._user_task,
            self._injection_task,
            self._injections,
            runtime_class=partial(GuardedRuntime, chain=self._chain),
        )
        if self._is_dos:
            # AgentDojo's own rule, but for an attack that never arrived: it kept nobody from anything
            landed = self._chain.exposed and not utility
        denied = [message["tool_call"] for message in spy.messages if _status(message) == "denied"]
        by_denied = bool(landed and denied) and not self._landed_without(spy, denied)
        return {
            "landed": landed,
            "landed_by_denied_calls": by_denied,
            "exposed": self._chain.exposed,
            "removed_by": self._chain.removed_by,
            "utility": utility,
            "answer": text_of(spy.messages[-1]),
            "tool_calls": [_call(message) for message in spy.messages if message["role"] == "tool"],
            "hook_decisions": self._chain.decisions,
            "transcript": [plain(message) for message in spy.messages],
            "scripted": self._scripted,
            "agent": self._agent_name or None,
            "guards": self._chain.names,
            "versions": {"agentdojo": _version_of("agentdojo"), "benchmark": self._version},
            "details": {"addressed_as": self._addressed, "injection_vectors": sorted(self._injections)},
        }

    def _landed_without(self, spy: Spy, denied: Sequence[Any]) -> bool:
        """Ask a checker that counts calls again, without those that a guard denied; another has said its word."""
        if self._is_dos or not _is_scored_by_calls(self._injection_task):
            return True
        calls = [call for message in spy.messages for call in message.get("tool_calls") or ()]
        run = [call for call in calls if not any(call is one for one in denied)]
        said = self._injection_task.security_from_traces(text_of(spy.messages[-1]), spy.start, spy.environment, run)
        return bool(said)


def _task(tasks: dict[str, Any], name: str, environment: str) -> Any:
    if name not in tasks:
        raise UnknownUpstreamError(f'{environment} has no task "{name}"; it has {", ".join(tasks)}')
    return tasks[name]


def _is_scored_by_calls(task: Any) -> bool:
    return type(task).security_from_traces is not BaseInjectionTask.security_from_traces


def _status(message: Any) -> str:
    if message["role"] != "tool" or message["error"] is None:
        return "run"
    return "denied" if isinstance(message["error"], Denial) else "failed"


def _call(message: Any) -> dict[str, Any]:
    call = message["tool_call"]
    return {"name": call.function, "arguments": dict(call.args), "status": _status(message)}


@cache
def _system_message() -> str:
    text = files("agentdojo").joinpath("data", "system_messages.yaml").read_text("utf-8")
    return str(yaml.safe_load(text)["default"])
