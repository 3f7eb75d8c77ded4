"""Cases of agent safety run without pytest: target, outcome, score."""

from __future__ import annotations

import asyncio
import inspect
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.load import parse_case, read_config
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.request import ModelAnswer, VerifyContext
from pytest_packbench.packs.agent_safety.model import SafetyCase, SafetySuiteConfig
from pytest_packbench.packs.agent_safety.pack import AgentSafetyPack

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    import pytest

    from pytest_packbench.model.request import ModelRequest
    from pytest_packbench.model.score import Score
    from pytest_packbench.packs.agent_safety.outcome import SafetyOutcome

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "storage" / "benchmarks"
PACK = AgentSafetyPack()


@dataclass
class ScriptedModel:
    """A model with scripted answers."""

    answers: list[ModelAnswer | Exception]
    asked: list[ModelRequest] = field(default_factory=list)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        return asyncio.run(self.complete(request))


def scripted_model(*texts: str) -> ScriptedModel:
    return ScriptedModel([ModelAnswer(content=text) for text in texts])


@dataclass(frozen=True, kw_only=True)
class SafetyRun:
    case: SafetyCase
    result: dict[str, Any]
    outcome: SafetyOutcome
    score: Score


def rules_of(suite: str, **changed: Any) -> SafetySuiteConfig:
    models = {PACK.name: PACK.suite_model}
    rules = read_config(SUITES / suite, models, source="suite.yaml")
    assert isinstance(rules, SafetySuiteConfig)
    return rules.model_copy(update=changed)


def cases_of(suite: str) -> list[SafetyCase]:
    found = []
    for path in sorted((SUITES / suite / "cases").rglob("*.json")):
        case = parse_case(path.read_bytes(), SafetyCase, source=path.name, stem=path.stem, pack=PACK.name).case
        assert isinstance(case, SafetyCase)
        found.append(case)
    return found


def run_case(
    case: SafetyCase,
    rules: SafetySuiteConfig,
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
        guards=tuple(PACK.guards()[one]() if isinstance(one, str) else one for one in guards),
        judges=judges or {},
    )
    given: Any = PACK.target(rules)(PACK.request(case), context)
    result = run_coroutine(given) if inspect.iscoroutine(given) else given
    outcome = PACK.read(result)
    return SafetyRun(case=case, result=result, outcome=outcome, score=PACK.score(case, outcome, rules))


def records_of(pytester: pytest.Pytester, suite: str, *options: str) -> list[EvalRecord]:
    """Run pytest on a copy of a suite of ours and read its records as Rust's reader does."""
    shutil.copytree(SUITES / suite, pytester.path / "storage" / "benchmarks" / suite)
    pytester.makeconftest(_REGISTERS)
    pytester.makeini("[pytest]")
    pytester.runpytest_inprocess(f"--packbench-suite={suite}", "-p", "no:cacheprovider", *options)
    (path,) = pytester.path.glob(f"reports/benchmarks/{suite}/*/records.jsonl")
    return [EvalRecord.from_json_line(line) for line in path.read_bytes().splitlines()]


_REGISTERS = """
from pytest_packbench.packs.agent_safety.pack import AgentSafetyPack


def pytest_packbench_packs():
    return [AgentSafetyPack()]
"""


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits; an event loop for each case would take most of the time."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("it waits for something")
