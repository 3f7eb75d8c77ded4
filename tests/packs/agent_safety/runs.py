"""Cases of agent safety run without pytest: target, outcome, score."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.api import load_suite
from pytest_packbench.cases.load import check_case
from pytest_packbench.model.authoring import SourceFlaw
from pytest_packbench.model.request import AnswerError, ModelAnswer, ToolCall, VerifyContext
from pytest_packbench.model.result import Outcome, Score
from pytest_packbench.packs.agent_safety.guards.base import GuardRuling
from pytest_packbench.packs.agent_safety.model import SafetyCase, SafetySuiteConfig
from pytest_packbench.packs.agent_safety.pack import AgentSafetyPack

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from pytest_packbench.model.authoring import CaseDraft
    from pytest_packbench.model.request import ModelRequest
    from pytest_packbench.packs.agent_safety.episode import Episode

SUITES = Path(__file__).parents[3] / "storage" / "benchmarks"
RULES = SafetySuiteConfig(pack="agent_safety")
PACK = AgentSafetyPack().for_suite(RULES)
STRICT = SafetySuiteConfig(pack="agent_safety", strict=True)
IDS = {"environment": "banking", "user_task": "user_task_0", "injection_task": "injection_task_6"}


@dataclass
class ScriptedModel:
    """A model with scripted answers, and the requests that it got."""

    answers: list[ModelAnswer | Exception]
    requests: list[ModelRequest] = field(default_factory=list)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        return asyncio.run(self.complete(request))


def scripted_model(*texts: str) -> ScriptedModel:
    return ScriptedModel([ModelAnswer(content=text) for text in texts])


class RulingGuard:
    """A guard with a ruling for each phase: a ruling, an exception to raise, or a function of the event."""

    instant = True

    def __init__(self, name: str, **rulings: Any) -> None:
        self.name = name
        self.events: list[Any] = []
        for phase, ruling in rulings.items():
            setattr(self, phase, lambda event, ruling=ruling: self._rule(event, ruling))

    def _rule(self, event: Any, ruling: Any) -> Any:
        self.events.append(event)
        if isinstance(ruling, Exception):
            raise ruling
        return ruling(event) if callable(ruling) else ruling


@dataclass(frozen=True, kw_only=True)
class SafetyRun:
    case: SafetyCase
    result: dict[str, Any]
    outcome: Outcome
    score: Score

    @property
    def episode(self) -> Episode:
        episode: Episode = self.outcome.document
        return episode

    @property
    def firings(self) -> list[tuple[str, str, int | None]]:
        return [(firing.hook, firing.decision, firing.rule) for firing in self.outcome.firings]

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(call.name, call.status) for call in self.episode.calls]


def checked(data: dict[str, Any]) -> SafetyCase:
    case = check_case(data, SafetyCase, source="a.json", stem=None, pack=PACK.name).case
    assert isinstance(case, SafetyCase)
    return case


def case(**changes: dict[str, Any]) -> SafetyCase:
    """A case of AgentDojo with changed keys of its input, expected or notes; None removes a key."""
    data: dict[str, Any] = {
        "id": "a",
        "pack_id": "agent_safety",
        "case_type": "banking",
        "difficulty": "easy",
        "input": {"suite": "agentdojo", "version": "v1.2.2", "ids": IDS, "attack": "important_instructions"},
        "expected": {"decision": "comply_safe"},
        "notes": {"attack_category": "unauthorized_payment", "groups": {"vendor": "ours"}},
    }
    for part, values in changes.items():
        data[part] = {key: value for key, value in {**data[part], **values}.items() if value is not None}
    return checked(data)


def read(result: object) -> Outcome:
    outcome = PACK.read(result)
    assert isinstance(outcome, Outcome)
    return outcome


def scored(case: SafetyCase, outcome: Outcome, rules: SafetySuiteConfig) -> Score:
    """The score; of a failure that the target reports, the error, as the engine has it."""
    if (failure := outcome.breakdown) is not None:
        message = f"the target reports a failure: {failure.kind}: {failure.message}"
        return Score(verdict="error", kind=failure.kind, message=message)
    return PACK.score(case, outcome, rules)


def rules_of(suite: str) -> SafetySuiteConfig:
    rules = load_suite(SUITES / suite).config
    assert isinstance(rules, SafetySuiteConfig)
    return rules


def cases_of(suite: str) -> list[SafetyCase]:
    return [checked(json.loads(path.read_bytes())) for path in sorted((SUITES / suite / "cases").rglob("*.json"))]


def run_case(
    case: SafetyCase,
    rules: SafetySuiteConfig = RULES,
    *,
    model: str = "",
    llm: ScriptedModel | None = None,
    guards: Sequence[Any] = (),
    judges: Mapping[str, Any] | None = None,
    files: Mapping[str, Path] | None = None,
) -> SafetyRun:
    """Run a case with a scripted agent (`model`) or on a model."""
    context = VerifyContext(
        llm=llm or ScriptedModel([]),
        suite="suite",
        case_id=case.id,
        mode="fixture",
        files=files or {},
        backend="stub" if llm is None else "ollama",
        model=model,
        guards=tuple(PACK.guards()[guard]() if isinstance(guard, str) else guard for guard in guards),
        judges=judges or {},
    )
    target = PACK.target(rules)
    assert target is not None
    result: Any = target(PACK.request(case), context)
    if inspect.iscoroutine(result):
        result = run_coroutine(result)
    outcome = read(result)
    return SafetyRun(case=case, result=result, outcome=outcome, score=scored(case, outcome, rules))


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits; an event loop for each case would take most of the time."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("it waits for something")


def split(drafts: Any) -> tuple[list[CaseDraft], list[SourceFlaw]]:
    """The cases and the flaws that an importer finds."""
    drafts = list(drafts)
    flaws = [draft for draft in drafts if isinstance(draft, SourceFlaw)]
    return [draft for draft in drafts if draft not in flaws], flaws


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def guard_of(guard: Any) -> Any:
    """A guard of the pack by its name, or one that rules `deny`, `after` (another call), `first` (tool of a list) or `text: …`, perhaps on one tool."""
    if not isinstance(guard, dict):
        return PACK.guards()[guard]() if isinstance(guard, str) else guard
    (phase, does), *limit = [item for item in guard.items() if item[0] != "name"]

    def rule(event: Any) -> GuardRuling | None:
        if does == "after":
            return GuardRuling(decision="deny") if event.outputs else None
        if does == "first":
            return GuardRuling(decision="replace", tools=event.tools[:1])
        if does != "deny":
            return GuardRuling(decision="replace", text=re.sub(does["cut"], does.get("put", ""), event.text), rule=4)
        return GuardRuling(decision="deny", rule=9) if not limit or event.tool == limit[0][1] else None

    return RulingGuard(guard["name"], **{phase: rule})


def model_of(answers: Sequence[Any]) -> ScriptedModel:
    """A model that answers with texts, calls of tools (lists of a name and arguments), refusals, or one that is cut off."""
    given: list[ModelAnswer | Exception] = []
    for answer in answers:
        if isinstance(answer, list):
            calls = [
                ToolCall(id=f"id_{number}", name=name, arguments=more) for number, (name, more) in enumerate(answer)
            ]
            given.append(ModelAnswer(content="", tool_calls=tuple(calls)))
        elif isinstance(answer, dict) and "cut" in answer:
            given.append(AnswerError("truncated", "cut off at 9 tokens", text=answer["cut"]))
        else:
            given.append(ModelAnswer(**answer) if isinstance(answer, dict) else ModelAnswer(content=answer))
    return ScriptedModel(given)


def expect(run: SafetyRun, path: str, wanted: Any, **more: Any) -> None:
    """Compare a value of the score or the episode with the wanted one; `~` begins a text that it contains."""
    episode, score = run.outcome.document, run.score
    known: Any = {
        **run.result,
        "verdict": score.verdict,
        "message": score.message,
        "kind": score.kind,
        "answer": run.outcome.answer,
        "decision": episode.decision,
        "exposed": episode.exposed,
        "removed_by": list(episode.removed_by),
        "calls": [" ".join(call) for call in run.calls],
        "firings": [" ".join(map(str, firing)) for firing in run.firings],
        "hooks": [ruling.hook for ruling in episode.rulings],
        "unread": episode.said.problem,
        "scripted": episode.agent.scripted,
        **more,
    }
    for key in path.split("."):
        known = known[int(key)] if isinstance(known, list | tuple) else known[key]
    known = list(known) if isinstance(known, tuple) else known
    assert known == wanted or (str(wanted).startswith("~") and wanted[1:] in known), (path, known)
