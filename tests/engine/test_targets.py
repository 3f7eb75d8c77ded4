"""A target is any function or object; what it uses and is not seen is not known, and what can't work is refused at once."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pytest_packbench import VerifyRequest, without_model
from pytest_packbench.backends import BackendError
from pytest_packbench.engine.contexts import SuiteContexts
from pytest_packbench.engine.gateway import Serving
from pytest_packbench.engine.live_models import AnswerCache, Ledger, PricedBackend
from pytest_packbench.engine.targets import as_target, import_target
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import ModelAnswer, TargetError, Usage
from pytest_packbench.model.run import Caps, RunOptions, SetupError, sum_spending
from pytest_packbench.model.suite import Prices, Suite
from pytest_packbench.reports.terminal import spent_text
from tests.engine.attempts import PRICE, EchoPack, FakeBackend, RunnerContext, context, job, model_request, suite
from tests.servers.fake import FakeServer, Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench import VerifyContext


def alone(_: VerifyRequest) -> dict[str, Any]:
    return {"points": 1.0}


def optional(request: VerifyRequest, context: VerifyContext | None = None) -> dict[str, Any]:
    if request.input.get("asks") and context is not None:
        context.llm.complete_sync(model_request())
    return {"points": 1.0}


@without_model
def silent(_: VerifyRequest) -> dict[str, Any]:
    return {"points": 1.0}


def reporting(_: VerifyRequest) -> dict[str, Any]:
    return {"points": 1.0, "llm_backend": "openai", "llm_model": "m", "usage": {"tokens_input": 3, "tokens_output": 4}}


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        (alone, {"mode": "record"}, "--packbench-mode=record: .* takes no context, .* or mark it with without_model"),
        (optional, {"mode": "record"}, "the target calls a model, and no backend is set"),
        (lambda request, context: None, {"mode": "live"}, "the target calls a model, and no backend is set"),
        (alone, {"caps": Caps(tokens=10)}, "--packbench-max-tokens: .* calls are not counted; let it"),
        (alone, {"caps": Caps(cost=0.1)}, "--packbench-max-cost: .* calls are not counted; let it"),
        (alone, {"mode": "live"}, ""),
        (alone, {"caps": Caps(seconds=10)}, ""),
        (optional, {"mode": "live"}, ""),
        (silent, {"mode": "record"}, ""),
        (silent, {"caps": Caps(tokens=10)}, ""),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, target: Callable[..., Any], options: dict[str, Any], expected: str
) -> None:
    class Hooked(SuiteContexts):
        def hooked_target(self, suite: Suite) -> object:
            return target

    contexts = Hooked(RunOptions(**{"mode": "live", **options}), {"echo": EchoPack()})
    with pytest.raises(SetupError, match=expected) if expected else nullcontext():
        contexts.prepare(suite(tmp_path))


def test_a_backend_is_asked_for_when_the_target_uses_it(tmp_path: Path) -> None:
    with RunnerContext() as runner:
        jobs = [job(context(tmp_path, optional), name, asks=asks) for name, asks in (("a", False), ("b", True))]
        assert runner.failures(*jobs) == ["", "no_backend"]


@pytest.mark.parametrize(
    ("target", "asks", "spent", "text"),
    [
        (alone, False, (None, None, None), "used: not known; 2 attempts without a call through packbench"),
        (optional, False, (None, None, None), "used: not known; 2 attempts without a call through packbench"),
        (optional, True, (1, 5, None), "used: 1 model call, 5 tokens, cost not known; not known for 1 attempt *"),
        (silent, False, (0, 0, 0.0), "used: 0 model calls, 0 tokens, 0.0000 USD"),
        (reporting, False, (None, 14, None), "used: model calls not known, 14 tokens reported by results"),
    ],
)
def test_what_is_not_seen_is_not_known(
    tmp_path: Path, target: Callable[..., Any], asks: bool, spent: tuple[Any, ...], text: str
) -> None:
    ledger = Ledger(Caps())
    with RunnerContext(ledger=ledger) as runner:
        made = context(tmp_path, target, backend=FakeBackend(), ledger=ledger)
        assert runner.failures(job(made, "a", asks=asks), job(made, "b")) == ["", ""]
    json = ledger.as_json()
    assert (json["calls"], json["tokens"], json["cost"]) == spent
    assert spent_text(json).startswith(text.rstrip("*"))
    # two processes of a run: what one does not know, the sum does not know either
    both = sum_spending([json, Ledger(Caps()).as_json()])
    assert (both["calls"], both["tokens"], both["cost"]) == spent


def judged(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    for role in request.input["roles"]:
        try:
            context.llm.complete_sync(model_request(role))
        except RuntimeError:
            context.llm.complete_sync(model_request(role))
    return {"points": 1.0, **request.input["reports"]}


USAGE = {"usage": {"tokens_input": 3, "tokens_output": 4}}
OURS = {"llm_backend": "openai", "llm_model": "priced", **USAGE}
EUROS = Prices(input_per_million=1.0, output_per_million=1.0, currency="EUR")
# the roles that are asked, what the result reports, what else differs, and the cost
COSTS: dict[str, tuple[list[str], dict[str, Any], dict[str, Any], float | None]] = {
    "calls and a judge's": (["ask", "ask", "judge"], {}, {}, 15e-6),
    "a judge of a result that reports": (["judge"], OURS, {}, 12e-6),
    "a judge of a result that reports a model without a price": (["judge"], {**OURS, "llm_model": "m"}, {}, None),
    "a result that reports tokens and no model": ([], USAGE, {}, 7e-6),
    "a judge of a result that does not report": (["judge"], {}, {}, None),
    "a judge without a price": (["ask", "judge"], {}, {"judge": None}, None),
    "a judge with another currency": (["ask", "judge"], {}, {"judge": EUROS}, None),
    "no calls": ([], {}, {}, None),
    "an error with usage": (["ask"], {}, {"error": Usage(tokens_input=1, tokens_output=1)}, 7e-6),
    "an error without usage": (["ask"], {}, {"error": None}, None),
    "nothing counted": (["ask"], {}, {"usage": Usage()}, None),
}


@pytest.mark.parametrize("name", COSTS)
def test_the_cost_of_an_attempt_is_known_if_that_of_each_call_is(tmp_path: Path, name: str) -> None:
    roles, reports, changes, expected = COSTS[name]
    errors = iter([BackendError("overloaded", "not now", usage=changes["error"])] if "error" in changes else [])

    def answer(_: object) -> ModelAnswer:
        if (error := next(errors, None)) is not None:
            raise error
        return ModelAnswer(content="yes", usage=changes.get("usage", Usage(tokens_input=3, tokens_output=2)))

    ledger, backend = Ledger(Caps()), FakeBackend(answer=answer)
    shared = context(tmp_path, judged, backend=backend, ledger=ledger)
    assert shared.live is not None
    judge = PricedBackend(backend=backend, price=changes.get("judge", PRICE))
    shared = replace(
        shared,
        live=replace(shared.live, by_role={"judge": judge}),
        suite=suite(tmp_path, prices={"priced": PRICE, "fake": PRICE}),
    )
    with RunnerContext(ledger=ledger) as runner:
        attempt = runner.attempt(job(shared, "a", roles=roles, reports=reports))
    assert attempt.failure is None
    assert attempt.cost_usd == expected
    assert expected is None or ledger.cost == pytest.approx(expected)


def test_what_the_cache_answers_and_a_target_without_a_model_cost_nothing(tmp_path: Path) -> None:
    costs = []
    for target in (optional, optional, silent):
        with RunnerContext() as runner:
            shared = context(tmp_path, target, backend=FakeBackend())
            assert shared.live is not None
            cache = AnswerCache(tmp_path / "cache", {}, Redactor())
            shared = replace(shared, live=replace(shared.live, cache=cache))
            costs.append(runner.attempt(job(shared, asks=True)).cost_usd)
    assert costs == [5e-6, 0.0, 0.0]


def test_a_cap_that_cannot_bind_ends_the_run(tmp_path: Path) -> None:
    ledger = Ledger(Caps(tokens=100))
    with RunnerContext(ledger=ledger, most=1, lookahead=0) as runner:
        made = context(tmp_path, optional, backend=FakeBackend(), ledger=ledger)
        runner.attempt(job(made, "a"))
        stopped = runner.wait_for(job(made, "b"), lambda: None)
    assert (stopped.attempt.request, stopped.kind) == (None, "max_tokens")
    assert "can't be enforced: the target did not call a model through packbench" in stopped.message


def strays(request: VerifyRequest) -> dict[str, Any]:
    with httpx.Client(trust_env=False) as client:
        client.get(request.input["url"])
    return {"points": 1.0}


def strays_in_a_pool(request: VerifyRequest) -> dict[str, Any]:
    with ThreadPoolExecutor() as pool:
        return pool.submit(strays, request).result()


@pytest.mark.parametrize(
    ("target", "is_seen"),
    [
        (optional, True),
        (alone, True),
        (strays, False),
        (strays_in_a_pool, False),
    ],
)
def test_a_cap_ends_a_run_only_where_a_call_may_be_uncounted(tmp_path: Path, target: Any, is_seen: bool) -> None:
    ledger, serving = Ledger(Caps(tokens=100)), Serving("live")
    serving.start()
    try:
        with (
            FakeServer(lambda _: Reply(body={})) as server,
            RunnerContext(ledger=ledger, most=1, lookahead=0) as runner,
        ):
            made = replace(context(tmp_path, target, backend=FakeBackend(), ledger=ledger), serving=serving)
            first = runner.attempt(job(made, "a", url=server.url))
            second = runner.wait_for(job(made, "b", url=server.url), lambda: None)
    finally:
        serving.stop()
    assert (first.failure, first.cost_usd) == (None, 0.0 if is_seen else None)
    assert second.kind == ("" if is_seen else "max_tokens")
    assert ledger.as_json()["cost"] == (0.0 if is_seen else None)


class Chain:
    """An object as chains of other libraries are."""

    def invoke(self, question: Any) -> Any:
        return {"points": question["points"]}


class Message:
    """A message as those of other libraries."""

    content: Any = '{"points": 1}'

    def model_dump(self, mode: str) -> dict[str, Any]:
        return {"mode": mode}


class Graph:
    """One that can only be awaited, and returns a message."""

    async def ainvoke(self, _: Any) -> Any:
        return Message()


class Target:
    """A target with a method, as a class."""

    def verify(self, request: VerifyRequest) -> Any:
        return request.input


class Later:
    """What can be awaited, and not closed."""

    def __await__(self) -> Any:
        yield


def broken() -> Chain:
    raise OSError("no such model")


async def async_factory() -> Chain:
    return Chain()


def test_objects_and_factories_are_targets() -> None:
    request = VerifyRequest(input={"points": 0.5})
    for candidate in (Chain(), Chain, lambda: Chain(), Target, Target()):  # noqa: PLW0108 - a factory
        assert as_target(candidate, "t")(request) == {"points": 0.5}

    async def ask() -> Any:
        return await as_target(Graph, "t")(request)

    assert asyncio.run(ask()) == '{"points": 1}'
    message = Message()
    # as of a message that only calls tools
    message.content = None
    assert as_target(SimpleNamespace(invoke=lambda _: message), "t")(request) == {"mode": "json"}
    for wrong, problem in (
        (broken, "calling it for the target raised OSError: no such model"),
        (async_factory, "an async function without parameters; expected target(request)"),
        (lambda: Later(), "an async function without parameters; expected target(request)"),  # noqa: PLW0108 - likewise
        (3, "expected a function, or an object with verify(), invoke() or ainvoke(), got int"),
    ):
        with pytest.raises(TargetError) as error:
            as_target(wrong, "t")
        assert str(error.value) == f'target "t": {problem}'


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("json", "expected package.module:attr"),
        ("json:", "expected package.module:attr"),
        ("json:no.such", 'json has no "no.such"'),
        ("json:__doc__", "expected a function, or an object with verify(), invoke() or ainvoke(), got str"),
    ],
)
def test_a_target_that_does_not_exist_is_an_error(spec: str, problem: str) -> None:
    with pytest.raises(TargetError, match=re.escape(problem)):
        import_target(spec)
