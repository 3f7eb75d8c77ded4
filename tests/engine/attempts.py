"""Attempts without pytest or network: a pack that echoes points, a backend in this process, a runner."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pytest_packbench import testing
from pytest_packbench.cases.load import check_case
from pytest_packbench.engine.contexts import SuiteContext
from pytest_packbench.engine.live_models import Ledger, LiveModels, PricedBackend
from pytest_packbench.engine.scheduler import AttemptKey, Flight, Job, Runner, Throttle, WaitTimes
from pytest_packbench.engine.targets import TargetCaller
from pytest_packbench.model.answer import Agreement, Answer
from pytest_packbench.model.case import Case, LoadedCase
from pytest_packbench.model.pack import Pack
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import ModelAnswer, ModelRequest, Usage
from pytest_packbench.model.result import Term
from pytest_packbench.model.run import Caps, RunOptions
from pytest_packbench.model.suite import Prices, Suite, SuiteConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_packbench.engine.attempt import AttemptState


PRICE = Prices(input_per_million=1.0, output_per_million=1.0)


class Echo(Answer):
    points: Any
    said: Any = "yes"

    @property
    def shown(self) -> Any:
        return self.said


class EchoPack(Pack):
    name = "echo"
    version = "1"
    answer_model = Echo

    def terms(self, case: Case, answer: Echo, rules: SuiteConfig) -> Iterator[Term | Agreement]:
        yield Term(name="points", value=answer.points)


def case(name: str = "a", notes: dict[str, Any] | None = None, **inputs: Any) -> LoadedCase:
    plain = testing.case(name, pack_id="echo", input=inputs, expected=None, notes=notes or {})
    return check_case(plain, Case, source=name, stem=name, pack="echo")


def model_request(role: str = "ask", text: str = "?") -> ModelRequest:
    return ModelRequest(role=role, system="", messages=({"role": "user", "content": text},))


@dataclass
class FakeBackend:
    """A backend that answers in this process, after some turns of the loop and not before `hold` is set."""

    answer: Callable[[ModelRequest], Any] = lambda request: request.messages[0]["content"]
    rounds: int = 0
    hold: asyncio.Event | None = None
    name: str = "openai"
    model: str = "fake"
    temperature: float | None = 0.0
    busy: int = 0
    most: int = 0
    calls: int = 0
    loops: set[asyncio.AbstractEventLoop] = field(default_factory=set)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.calls += 1
        self.loops.add(asyncio.get_running_loop())
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            for _ in range(self.rounds):
                await asyncio.sleep(0)
            if self.hold is not None:
                await self.hold.wait()
            answer = self.answer(request)
        finally:
            self.busy -= 1
        usage = Usage(tokens_input=3, tokens_output=2)
        return answer if isinstance(answer, ModelAnswer) else ModelAnswer(content=answer, usage=usage)

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


def suite(folder: Path, **rules: Any) -> Suite:
    config = SuiteConfig(pack="echo", **{"thresholds": {"accept": 0.5}, **rules})
    return Suite(name="s", path=folder, config=config, sha256="0" * 64)


def context(
    folder: Path,
    target: Callable[..., Any],
    *,
    backend: FakeBackend | None = None,
    mode: Any = "live",
    ledger: Ledger | None = None,
    redactor: Redactor | None = None,
    pack: Pack | None = None,
) -> SuiteContext:
    primary = None if backend is None else PricedBackend(backend=backend, price=PRICE)
    live = LiveModels(primary=primary, ledger=ledger or Ledger(Caps()), redactor=redactor or Redactor({}))
    named: dict[str, Any] = {} if backend is None else {"backend": backend.name, "model": backend.model}
    return SuiteContext(
        suite=suite(folder),
        pack=pack or EchoPack(),
        caller=TargetCaller(target),
        target_name="t",
        options=RunOptions(mode=mode),
        live=None if mode == "fixture" else live,
        redactor=live.redactor,
        **named,
    )


def job(context: SuiteContext, name: str = "a", **inputs: Any) -> Job:
    return Job(key=AttemptKey(name, 0), context=context, loaded=case(name, **inputs))


class RunnerContext(Runner):
    """A runner for the duration of a block; `settled` are the attempts that ended, in order."""

    def __init__(
        self,
        *,
        most: int = 4,
        waits: dict[str, float] | None = None,
        on_settled: Callable[[Flight], None] | None = None,
        **options: Any,
    ) -> None:
        self.settled: list[Flight] = []
        fields: dict[str, Any] = {"limit_s": 60.0, "lookahead": 2 * most, "ledger": Ledger(Caps())} | options
        # a target that ignores its cancellation is left behind soon
        fields["waits"] = WaitTimes(**{"cancel_s": 0.05, **(waits or {})})
        super().__init__(throttle=Throttle(most), on_settled=on_settled or self.settled.append, **fields)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def attempt(self, job: Job, tick: Callable[[], None] = lambda: None) -> AttemptState:
        finished = self.wait_for(job, tick)
        assert finished.job.key == job.key
        assert not finished.kind, f"{finished.kind}: {finished.message}"
        return finished.attempt

    def failures(self, *jobs: Job) -> list[str]:
        """Wait for attempts; the kind of each failure, empty for a success."""
        return [attempt.failure.kind if attempt.failure else "" for attempt in map(self.attempt, jobs)]


def ignore_tick() -> None: ...


def hang() -> None:
    threading.Event().wait()


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait for what another process, thread or loop does."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - there is no event to set
            await asyncio.sleep(0.001)
