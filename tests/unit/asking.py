"""Attempts without pytest and without a network: a pack that echoes, a backend in this process, a runner around them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_packbench import testing
from pytest_packbench.cases.load import check_case
from pytest_packbench.engine.contexts import SuiteContext
from pytest_packbench.engine.metering import Asked, Ledger, Live
from pytest_packbench.engine.runner import Runner
from pytest_packbench.engine.scheduler import Done, Job, Key, Throttle
from pytest_packbench.engine.secrets import Secrets
from pytest_packbench.engine.targets import Caller
from pytest_packbench.model.case import Case, LoadedCase
from pytest_packbench.model.outcome import Outcome, ResultError
from pytest_packbench.model.pack import Pack, RecordFacts
from pytest_packbench.model.request import ModelAnswer, ModelRequest, Usage
from pytest_packbench.model.run import Caps, RunOptions
from pytest_packbench.model.score import Score, judged
from pytest_packbench.model.suite import Prices, Suite, SuiteConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

USAGE = Usage(tokens_input=3, tokens_output=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Echoed(Outcome):
    """The points that a target gave."""

    points: float


class Echo(Pack):
    """Scores a result by its own points."""

    name = "echo"
    version = "1"

    def read(self, result: object) -> Echoed:
        if not isinstance(result, dict) or "points" not in result:
            raise ResultError("/points", "is missing")
        return Echoed(answer="yes", points=result["points"])

    def score(self, case: Case, outcome: Echoed, rules: SuiteConfig) -> Score:
        return Score(score=outcome.points, threshold=0.5, verdict=judged(outcome.points, 0.5))

    def facts(self, case: Case, outcome: Echoed, score: Score) -> RecordFacts:
        return RecordFacts(attack_category="plain", expected="comply_safe", agent_decision="comply_safe")


def case(name: str = "a", **given: Any) -> LoadedCase:
    """A case whose input is what is given."""
    plain = testing.case(name, pack_id="echo", input=given, expected=None)
    return check_case(plain, Case, source=name, stem=name, pack="echo")


def question(role: str = "ask", text: str = "?") -> ModelRequest:
    """A request for free text."""
    return ModelRequest(role=role, system="", messages=({"role": "user", "content": text},))


@dataclass
class Answering:
    """A backend that answers in this process, and says how it was asked.

    Attributes:
        answer: gives the answer to a request, or raises.
        busy: calls under way.
        most: the most of them at once.
        asked: how many there were.
        loops: the event loops that they came on: clients belong to one.
    """

    answer: Callable[[ModelRequest], Any] = lambda request: request.messages[0]["content"]
    rounds: int = 0
    name: str = "openai"
    model: str = "fake"
    busy: int = 0
    most: int = 0
    asked: int = 0
    temperature: float | None = 0.0
    hold: asyncio.Event | None = None
    loops: set[asyncio.AbstractEventLoop] = field(default_factory=set)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.asked += 1
        self.loops.add(asyncio.get_running_loop())
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            for _ in range(self.rounds):
                await asyncio.sleep(0)
            if self.hold is not None:
                await self.hold.wait()
            found = self.answer(request)
        finally:
            self.busy -= 1
        return found if isinstance(found, ModelAnswer) else ModelAnswer(content=found, usage=USAGE)

    async def aclose(self) -> None:
        """Nothing is open."""


def context(
    folder: Path,
    target: Callable[..., Any],
    *,
    backend: Answering | None = None,
    mode: Any = "live",
    ledger: Ledger | None = None,
    secrets: Secrets | None = None,
    pack: Pack | None = None,
) -> SuiteContext:
    """What runs cases of a suite in a folder."""
    suite = Suite(name="s", path=folder, config=SuiteConfig(pack="echo"), sha256="0" * 64)
    asked = (
        Asked(backend=backend, price=Prices(input_per_million=1.0, output_per_million=1.0))
        if backend is not None
        else None
    )
    live = Live(asked=asked, ledger=ledger or Ledger(Caps()), secrets=secrets or Secrets({}))
    return SuiteContext(
        suite=suite,
        pack=pack or Echo(),
        caller=Caller(target),
        target_name="t",
        options=RunOptions(mode=mode),
        live=None if mode == "fixture" else live,
        backend=backend.name if backend is not None else "",
        model=backend.model if backend is not None else "",
    )


def job(made: SuiteContext, name: str = "a", trial: int = 0, **given: Any) -> Job:
    """One attempt at a case."""
    return Job(key=Key(name, trial), context=made, loaded=case(name, **given))


class Running:
    """A runner for the length of a block; `over` has what was settled, in order."""

    def __init__(
        self,
        *,
        most: int = 4,
        limit_s: float | None = 60.0,
        ledger: Ledger | None = None,
        settled: Callable[[Done], None] | None = None,
        **how: Any,
    ) -> None:
        self.over: list[Done] = []
        how.setdefault("lookahead", 2 * most)
        self.runner = Runner(
            throttle=Throttle(most),
            limit_s=limit_s,
            ledger=ledger or Ledger(Caps()),
            settled=settled or self.over.append,
            **how,
        )

    def __enter__(self) -> Runner:
        return self.runner

    def __exit__(self, *_raised: object) -> None:
        self.runner.close()


def never() -> None:
    """Do nothing at a tick."""


def forever() -> None:
    """Hang, until the process ends."""
    threading.Event().wait()
