"""What model calls use is counted and capped; the cache answers only where nothing differs that could change an answer."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.live_models import CACHE_VERSION, AnswerCache, Ledger, LiveModels, PricedBackend, price_of
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import AnswerProblem, ModelAnswer, ToolCall, Usage
from pytest_packbench.model.run import Caps
from pytest_packbench.model.suite import Prices
from tests.engine.attempts import FakeBackend, RunnerContext, context, job, model_request, suite

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.request import VerifyContext, VerifyRequest

token_counts = st.none() | st.integers(0, 10**9)
usages = st.lists(st.none() | st.builds(Usage, tokens_input=token_counts, tokens_output=token_counts))
amounts = st.none() | st.floats(0, 1000, allow_nan=False)
PRICE = Prices(input_per_million=3.0, output_per_million=15.0)


@given(calls=usages, reports=usages)
def test_the_sums_are_those_of_all_calls_and_reports(calls: list[Usage | None], reports: list[Usage | None]) -> None:
    ledger = Ledger(Caps())
    for usage in calls:
        ledger.add_call(usage, PRICE)
    for usage in reports:
        own = ledger.add_usage(usage, PRICE)
        assert (own is None) is (usage is None or None in (usage.tokens_input, usage.tokens_output))
    known = [usage for usage in (*calls, *reports) if usage is not None and usage != Usage()]
    inputs, outputs = (sum(getattr(usage, name) or 0 for usage in known) for name in ("tokens_input", "tokens_output"))
    assert (ledger.calls, ledger.tokens) == (len(calls), inputs + outputs)
    assert ledger.uncounted == len(calls) + len(reports) - len(known)
    assert ledger.cost == pytest.approx((inputs * 3 + outputs * 15) / 1_000_000)
    names = "calls", "tokens", "uncounted", "cost"
    plain = {name: getattr(ledger, name) for name in names} | {"currency": "USD"}
    if ledger.uncounted and not ledger.tokens:
        # not known is not 0
        plain |= {"tokens": None, "cost": None}
    if ledger.tokens and not ledger.calls:
        # results report tokens of calls that nobody counted
        assert ledger.as_json() == plain | {"calls": None}
    else:
        assert ledger.as_json() == plain
    ledger.add_cached_call()
    assert ledger.as_json() == plain | {"cached": 1}


@given(tokens=st.none() | st.integers(1, 10**9), cost=amounts, parts=st.integers(1, 64))
def test_the_shares_of_workers_never_add_up_to_more_than_the_cap(
    tokens: int | None, cost: float | None, parts: int
) -> None:
    share = Caps(tokens=tokens, cost=cost, seconds=7.0).split(parts)
    assert (share.tokens is None, share.cost is None, share.seconds) == (tokens is None, cost is None, 7.0)
    assert tokens is None or share.tokens is None or tokens - parts < share.tokens * parts <= tokens
    assert cost is None or share.cost is None or share.cost * parts == pytest.approx(cost)


SHARE = "this worker's share (1/2) of the run's cap of"
CAPS: list[tuple[dict[str, float], int, str, str]] = [
    ({}, 1, "", ""),
    ({"tokens": 101, "cost": 0.00091, "seconds": 5.1}, 1, "", ""),
    ({"tokens": 202, "cost": 0.002, "seconds": 6.0}, 2, "", ""),
    ({"tokens": 100}, 1, "max_tokens", "the run's cap of 100 tokens is reached (100 used)"),
    ({"cost": 0.0009}, 1, "max_cost", "the run's cap of 0.0009 USD is reached (0.0009 USD spent)"),
    ({"seconds": 5.0}, 1, "max_seconds", "the run's cap of 5 s is reached"),
    ({"tokens": 200}, 2, "max_tokens", f"{SHARE} 200 tokens is reached (100 used)"),
    ({"cost": 0.0018}, 2, "max_cost", f"{SHARE} 0.0018 USD is reached (0.0009 USD spent)"),
]


@pytest.mark.parametrize(("caps", "parts", "kind", "message"), CAPS)
def test_a_cap_is_reached_exactly_at_its_value(caps: dict[str, Any], parts: int, kind: str, message: str) -> None:
    now = 100.0
    ledger = Ledger(Caps(**caps), parts=parts, clock=lambda: now)
    # the time counts from the first attempt
    assert ledger.reached_cap() == ("", "")
    now = 105.0
    ledger.add_call(Usage(tokens_input=50, tokens_output=50), PRICE)
    assert ledger.reached_cap() == (kind, message)


def test_a_price_is_that_of_the_suite_else_of_the_list_and_without_the_list_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = suite(tmp_path, prices={"own": {"input_per_million": 1.0, "output_per_million": 2.0}}).config
    own = Prices(input_per_million=1.0, output_per_million=2.0)
    assert price_of(config, "openai", "own") == own
    assert price_of(config, "openai", "no-such-model") is None
    if importlib.util.find_spec("genai_prices") is not None:
        assert price_of(config, "openai", "gpt-4o") is not None
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert [price_of(config, "openai", model) for model in ("own", "gpt-4o")] == [own, None]


@pytest.mark.parametrize(
    ("role", "kind", "message"),
    [
        ("ask", "no_backend", "no backend is set for the role ask"),
        ("judge", "truncated", "cut off"),
    ],
)
def test_a_role_without_a_model_and_a_judge_that_cannot_be_read_are_errors(
    role: str, kind: str, message: str, tmp_path: Path
) -> None:
    async def target(_: VerifyRequest, context: VerifyContext) -> dict[str, float]:
        with suppress(BackendError):
            await context.llm.complete(model_request(role))
        return {"points": 1.0}

    judge = FakeBackend(answer=lambda _: ModelAnswer(content="half", problem=AnswerProblem("truncated", "cut off")))
    by_role = {"judge": PricedBackend(backend=judge, price=PRICE)}
    live = LiveModels(primary=None, by_role=by_role, ledger=Ledger(Caps()), redactor=Redactor({}))
    with RunnerContext() as runner:
        failure = runner.attempt(job(replace(context(tmp_path, target), live=live))).failure
    assert failure is not None
    assert (failure.kind, message in failure.message) == (kind, True), failure.message


def test_no_call_of_any_thread_is_lost_and_one_without_a_price_reaches_the_cap() -> None:
    ledger = Ledger(Caps(cost=100.0))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2000):
            pool.submit(ledger.add_call, Usage(tokens_input=2, tokens_output=1), PRICE)
    assert (ledger.calls, ledger.tokens, ledger.reached_cap()) == (2000, 6000, ("", ""))
    ledger.add_call(Usage(tokens_input=1, tokens_output=1), None)
    kind, message = ledger.reached_cap()
    assert (kind, ledger.as_json()["cost"]) == ("max_cost", None)
    assert "the price of a model is unknown" in message


SETTINGS = {"base_url": "", "temperature": 0.0, "max_output_tokens": 100}
ANSWER = ModelAnswer(
    content="hi \ud800",
    usage=Usage(tokens_input=3, tokens_output=None),
    tool_calls=(ToolCall(id="1", name="look", arguments={"at": [1, None]}),),
)
# what could change the answer: the backend, or the call
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "system": ({}, {"request": replace(model_request(), system="be long")}),
    "role": ({}, {"request": model_request("critique")}),
    "backend": ({"name": "ollama"}, {}),
    "model": ({"model": "large"}, {}),
    "temperature of the backend": ({"temperature": None}, {}),
    "address": ({}, {"settings": {"base_url": "http://other"}}),
    "temperature": ({}, {"settings": {"temperature": 0.5}}),
    "tokens": ({}, {"settings": {"max_output_tokens": 7}}),
    "trial": ({}, {"trial": 1}),
    "repetition": ({}, {"repetition": 1}),
}


def backend_with(answer: ModelAnswer | BackendError = ANSWER, **fields: Any) -> FakeBackend:
    def give(_: object) -> ModelAnswer:
        if isinstance(answer, BackendError):
            raise answer
        return answer

    return FakeBackend(answer=give, rounds=1, **fields)


def complete(
    folder: Path, backend: FakeBackend, *, calls: int = 1, settings: dict[str, Any] | None = None, **changes: Any
) -> list[Any]:
    """Make calls at once, as another process would: with a cache of its own."""
    cache = AnswerCache(folder, SETTINGS | (settings or {}), Redactor({"SOME_API_KEY": "planted-0123456789"}))
    fields: dict[str, Any] = {"request": model_request(), "trial": 0, "repetition": 0} | changes

    async def gather() -> list[Any]:
        return await asyncio.gather(*(cache.complete(backend, **fields) for _ in range(calls)), return_exceptions=True)

    return asyncio.run(gather())


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("fields", "changes"), CHANGES.values(), ids=CHANGES)
def test_an_answer_serves_any_process_until_something_changes(
    tmp_path: Path, fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    backend = backend_with()
    assert [*complete(tmp_path, backend), *complete(tmp_path, backend)] == [(ANSWER, False), (ANSWER, True)]
    assert backend.calls == 1
    assert complete(tmp_path, backend_with(**fields), **changes) == [(ANSWER, False)]
    assert len(files_of(tmp_path)) == 2


def test_refusals_are_stored_and_neither_errors_nor_answers_with_secrets_are(tmp_path: Path) -> None:
    error = BackendError("rate_limit", "too much")
    assert complete(tmp_path, backend_with(error)) == [error]
    assert files_of(tmp_path) == []
    for content in ({"key": "planted-0123456789"}, "AKIA" + "Q7" * 8):
        answer = ModelAnswer(content=content)
        assert complete(tmp_path, backend_with(answer)) == [(answer, False)]
    assert files_of(tmp_path) == []
    refusal = backend_with(ModelAnswer(content="", refusal="I can't"))
    complete(tmp_path, refusal)
    assert complete(tmp_path, refusal) == [(ModelAnswer(content="", refusal="I can't"), True)]


OTHER_FORM = {"cache_version": CACHE_VERSION, "sha256": canonical_sha256({}), "answer": {}}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b"\xff", b'{"cache_version": 1}', b"[" * 100_000, None),
        json.dumps(OTHER_FORM).encode(),
    ],
    ids=repr,
)
def test_a_damaged_file_is_written_again(tmp_path: Path, content: bytes | None) -> None:
    complete(tmp_path, backend_with())
    (path,) = files_of(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"look", b"kill") if content is None else content)
    assert complete(tmp_path, backend_with()) == [(ANSWER, False)]
    assert path.read_bytes() == whole


def test_equal_calls_at_the_same_time_are_one_unless_it_fails(tmp_path: Path) -> None:
    error, backend = BackendError("timeout", "late"), backend_with()
    failing = backend_with(error)
    assert (complete(tmp_path, failing, calls=3), failing.calls) == ([error] * 3, 3)
    assert complete(tmp_path, backend, calls=20) == [(ANSWER, False)] + [(ANSWER, True)] * 19
    assert backend.calls == 1


def test_a_folder_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert complete(tmp_path / "file" / "below", backend_with()) == [(ANSWER, False)]
