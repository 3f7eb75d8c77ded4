"""Whose a call is, and what it is subject to: caps, the cache, the redactor."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.gateway import Serving, stamps
from pytest_packbench.engine.gateway.exchanges import RecordedCall
from pytest_packbench.engine.live_models import AnswerCache, CallLimit, Ledger
from pytest_packbench.engine.offline import take_late
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.run import Caps
from pytest_packbench.model.suite import Prices
from tests.cassettes import authored_cassette
from tests.servers.fake import FakeServer, Reply
from tests.servers.raw import RawServer, chunked
from tests.servers.wire import answer_with, error_reply
from tests.unit.attempts import PRICE, context, job
from tests.unit.gateways import KEY, recording, replaying, stored
from tests.unit.test_gateway_protocols import OPENAI, OPENAI_USAGE, sse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_packbench.engine.gateway import CaseTraffic, Gateway
    from tests.servers.wire import ProviderRequest


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(answer_with(lambda question: question.text)) as fake:
        yield fake


def post(gateway: Gateway, text: str = "x", *, token: str = "", path: str = "", **headers: str) -> httpx.Response:
    """Ask without a stamp of this context."""
    fields = {stamps.CASE_HEADER: token, stamps.CALLER_HEADER: "pipe.py:7"} if token else {}
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    with httpx.Client(trust_env=False, headers={**fields, **headers}) as client:
        return client.post(f"{gateway.url}{path}/openai/v1/chat/completions", json=body)


def texts(traffic: CaseTraffic) -> list[str]:
    return [call.body["messages"][0]["content"] for call in traffic.calls]


def test_without_a_case_calls_are_forwarded_and_not_recorded_and_offline_refused(server: FakeServer) -> None:
    ledger = Ledger(Caps())
    with recording(server.url, ledger=ledger) as gateway:
        waiting = gateway.open_case("one")
        assert post(gateway).status_code == 200
        assert (len(server.requests), waiting.calls, ledger.calls) == (1, [], 0)
    with replaying() as gateway:
        answer = post(gateway)
        assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
        assert "offline" in answer.json()["error"]["message"]


def test_what_packbench_adds_is_not_forwarded(server: FakeServer) -> None:
    with recording(server.url) as gateway, (traffic := gateway.open_case("one")).active():
        assert post(gateway, token=traffic.token).status_code == 200
    (request,) = server.requests
    assert not [name for name in request.headers if "packbench" in name]
    assert request.headers["host"] == server.url.removeprefix("http://")
    assert gateway.url.rpartition("/")[2] not in str(request)


def test_a_call_belongs_to_its_stamp_its_token_or_the_only_case(server: FakeServer) -> None:
    with recording(server.url) as gateway:
        one, two = gateway.open_case("one"), gateway.open_case("two")
        with one.active():
            post(gateway, "alone")
            # opened, and its target does not run yet
            post(gateway, "early", path=f"/case/{two.token}")
            with two.active():
                post(gateway, "stamp", token=two.token)
                post(gateway, "path", path=f"/case/{one.token}")
                # what a child adds itself does not count
                post(gateway, "child", path=f"/case/{one.token}", token=two.token)
        assert texts(one) == ["alone", "path", "child"]
        assert texts(two) == ["early", "stamp"]
        assert [one.unattributed, two.unattributed, take_late(None)] == ["", "", []]


def test_a_child_that_works_for_one_case_after_the_other(server: FakeServer) -> None:
    with recording(server.url) as gateway:
        token = gateway.child_token()
        assert f"/case/{token}/" in gateway.environment(token)["OPENAI_BASE_URL"]
        cases = [gateway.open_case(name) for name in ("one", "two")]
        for case in cases:
            with case.active():
                gateway.assign(token, case)
                assert post(gateway, case.case_id, path=f"/case/{token}").status_code == 200
        assert [texts(case) for case in cases] == [["one"], ["two"]]
        with cases[0].active(), cases[1].active():
            # its case has ended
            assert post(gateway, path=f"/case/{token}").status_code == 400
        assert cases[0].unattributed


def test_a_process_serves_once_or_elsewhere_and_tells_at_its_end_what_came_too_late(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    elsewhere = Serving("record", here=False)
    elsewhere.start()
    assert (elsewhere.gateway, elsewhere.upstreams) == (None, {"openai": "http://127.0.0.1:1/v1"})
    suite, serving = object(), Serving("fixture")
    assert elsewhere.open_case(suite, "a") is None
    serving.start()
    gateway = serving.gateway
    assert gateway is not None
    ended, one = serving.open_case(suite, "ended"), serving.open_case(suite, "one")
    assert ended is not None
    assert one is not None
    with ended.active():
        left = copy_context()
    with one.active():
        left.run(post, gateway)
    serving.start()
    assert serving.gateway is gateway
    for each in (elsewhere, serving, serving):
        each.stop()
    said = capsys.readouterr().err
    assert said.startswith("packbench: a model call can't be attributed to a case: POST /v1/chat/completions (model m)")
    assert (said.count("\n"), os.environ["OPENAI_BASE_URL"]) == (1, "http://127.0.0.1:1/v1")


def test_a_replayed_call_that_makes_no_model_work_uses_no_tokens(tmp_path: Path) -> None:
    def target(_: object) -> Any:
        return httpx.get(f"{os.environ['OPENAI_BASE_URL']}/models").json()

    call = RecordedCall.of("openai", "GET", "/v1/models", b"")
    call.status, call.end, call.pieces = 200, "complete", [b'{"points": 1.0}']
    recorded = authored_cassette("a", {}, [], gateway=[call.as_exchange()])
    serving = Serving("fixture")
    shared = replace(context(tmp_path, target, mode="fixture"), serving=serving)
    (tmp_path / "fixtures").mkdir()
    serving.start()
    try:
        for cassette, kind in ((recorded, ""), ({**recorded, "gateway": []}, "cassette_missing")):
            (tmp_path / "fixtures" / "a.json").write_text(json.dumps(cassette))
            done = attempt(shared, job(shared).loaded)
            assert (done.failure.kind if done.failure else "") == kind
            assert (done.tokens_input, done.tokens_output) == (None, None)
    finally:
        serving.stop()


@pytest.mark.parametrize("mode", ["record", "fixture", "live"])
def test_what_cannot_be_attributed_is_nobodys(mode: str, server: FakeServer) -> None:
    ledger = Ledger(Caps())
    serving = replaying() if mode == "fixture" else recording(server.url, ledger=ledger, record=mode == "record")
    with serving as gateway:
        ended, one, two = (gateway.open_case(name) for name in ("ended", "one", "two"))
        with ended.active():
            pass
        with one.active():
            late = post(gateway, "late", token=ended.token)
            unknown = post(gateway, **{stamps.CASE_HEADER: "unknown", stamps.CALLER_HEADER: "pipe.py:8"})
            with two.active():
                bare = post(gateway, "bare", **{stamps.CALLER_HEADER: "pipe.py:9"})
        outside = post(gateway, token=ended.token)
        left = post(gateway, path=f"/case/{ended.token}")
        assert [*ended.calls, *one.calls, *two.calls] == []
        # a revoked address is refused in every mode
        assert left.status_code == 400
        assert "has ended" in left.json()["error"]["message"]
        if mode == "live":
            # what an ended case goes on with is refused, and is not counted
            assert [late.status_code, bare.status_code, outside.status_code] == [400, 200, 400]
            assert (ledger.calls, ledger.tokens) == (2, 36)
            assert [one.unattributed, two.unattributed] == ["", ""]
            return
        assert not server.requests
        for answer in (late, bare, outside):
            assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
        assert "at pipe.py:8, made with an unknown stamp" in unknown.text
        assert "at pipe.py:7, made with the stamp of case ended, which has ended" in one.unattributed
        assert "POST /v1/chat/completions (model m) at pipe.py:9, made while 2 cases ran" in two.unattributed
        assert "--packbench-concurrency=1" in two.unattributed
        ((case, message),) = take_late(None)
        assert case == "ended"
        assert "pipe.py:7" in message
        assert take_late(None) == []


@pytest.mark.parametrize("mode", ["record", "fixture", "live"])
def test_a_case_that_is_given_up_goes_on_in_vain_and_is_nobody_elses_fault(mode: str, server: FakeServer) -> None:
    serving = replaying() if mode == "fixture" else recording(server.url, record=mode == "record")
    with serving as gateway:
        given_up, beside, after = (gateway.open_case(name) for name in ("given up", "beside", "after"))
        with beside.active():
            with given_up.active():
                if mode != "fixture":
                    assert post(gateway, token=given_up.token).status_code == 200
                given_up.close()
            asked = [post(gateway, "late", token=given_up.token)]
        with after.active():
            asked.append(post(gateway, "late", token=given_up.token))
        for answer in asked:
            assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
            assert "was made by work of case given up, which has ended" in answer.text
        assert [case.unattributed for case in (given_up, beside, after)] == [""] * 3
        assert (len(server.requests), len(beside.calls), len(after.calls)) == (mode != "fixture", 0, 0)


CHATS = {
    "openai/v1/chat/completions": "openai",
    "openai/v1/responses": "openai",
    "openai/v1/completions?api-version=2": "openai",
    "anthropic/v1/messages": "anthropic",
    "ollama/api/chat": "ollama",
    "ollama/api/generate": "ollama",
    "ollama/chat/completions": "ollama",
    "gemini/v1beta/models/m:generateContent": "gemini",
    "gemini/v1beta/models/m:streamGenerateContent?alt=sse": "gemini",
}
OTHERS = (
    *("openai/v1/embeddings", "ollama/api/embed", "ollama/api/embeddings", "gemini/v1beta/models/m:embedContent"),
    *("gemini/v1beta/models/m:batchEmbedContents", "anthropic/v1/messages/count_tokens", "openai/v1/moderations"),
)


@pytest.mark.parametrize("path", [*CHATS, *OTHERS])
def test_an_attempt_asks_a_chat_model_no_more_often_than_its_limit(path: str, server: FakeServer) -> None:
    serve = FakeServer(lambda _: Reply(body={}))
    with serve, recording(serve.url) as gateway, httpx.Client(trust_env=False) as client:
        one, two = gateway.open_case("one"), gateway.open_case("two")
        one.limit = CallLimit(3)
        for case in (one, two):
            with case.active():
                url = f"{gateway.url}/case/{case.token}/{path}"
                answers = [client.post(url, json={"model": "m", "input": number > 1}) for number in range(5)]
                limited = case is one and path in CHATS
                assert [answer.status_code for answer in answers] == [200] * 3 + [400 if limited else 200] * 2
        assert len(serve.requests) == (8 if path in CHATS else 10)
        refused = one.limit.refused
        if path not in CHATS:
            assert refused is None
            return
        message = "asked for more than 3 model calls (--packbench-max-calls); end its loop, or raise the limit"
        assert refused is not None
        assert message in str(refused)
        assert message in answers_text(one)
        assert str(one.unrecovered_error()) == str(refused)


def answers_text(traffic: CaseTraffic) -> str:
    return " ".join(call.content.decode() for call in traffic.calls)


async def ask(client: openai.AsyncOpenAI, text: str) -> str | None:
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content


def test_eight_cases_at_once_with_one_client_keep_their_calls_apart() -> None:
    count = iter(range(1000))

    def act(gateway: Gateway, cases: list[CaseTraffic]) -> list[list[Any]]:
        async def target(client: openai.AsyncOpenAI, case: CaseTraffic) -> list[Any]:
            with case.active():
                asked = [ask(client, "same"), ask(client, "same"), ask(client, case.case_id)]
                return [sorted(await asyncio.gather(*asked), key=str), await ask(client, "same")]

        async def main() -> list[list[Any]]:
            async with openai.AsyncOpenAI(base_url=gateway.environment()["OPENAI_BASE_URL"], api_key=KEY) as client:
                return await asyncio.gather(*(target(client, case) for case in cases))

        undo = stamps.install(gateway.url)
        try:
            return asyncio.run(main())
        finally:
            undo()

    handler = answer_with(lambda question: f"{question.text} {next(count):03}")
    with FakeServer(handler) as server, recording(server.url) as gateway:
        cases = [gateway.open_case(f"case_{number}") for number in range(8)]
        answers = act(gateway, cases)
    for case in cases:
        assert sorted(texts(case)) == sorted(["same"] * 3 + [case.case_id])
        assert case.unattributed == ""
    with replaying() as gateway:
        again = [gateway.open_case(case.case_id, stored(case)) for case in cases]
        assert act(gateway, again) == answers
        for case in again:
            case.finish()
            assert (case.mismatch, case.unattributed) == ("", "")


def test_a_worker_that_a_case_starts_by_the_way_serves_nobody_for_certain(server: FakeServer) -> None:
    async def main(gateway: Gateway) -> list[CaseTraffic]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        workers: list[asyncio.Task[None]] = []
        both = asyncio.Barrier(2)

        async def work(client: openai.AsyncOpenAI) -> None:
            while True:
                text, future = await queue.get()
                future.set_result(await ask(client, text))

        async def target(client: openai.AsyncOpenAI, case: CaseTraffic) -> None:
            with case.active():
                if not workers:
                    workers.append(asyncio.create_task(work(client)))
                future = asyncio.get_running_loop().create_future()
                queue.put_nowait((case.case_id, future))
                await asyncio.wait_for(future, 10)
                await both.wait()

        cases = [gateway.open_case(name) for name in ("one", "two")]
        async with openai.AsyncOpenAI(base_url=gateway.environment()["OPENAI_BASE_URL"], api_key=KEY) as client:
            await asyncio.gather(*(target(client, case) for case in cases))
            workers[0].cancel()
        return cases

    with recording(server.url) as gateway:
        undo = stamps.install(gateway.url)
        try:
            cases = asyncio.run(main(gateway))
        finally:
            undo()
        for case in cases:
            assert "was started by case one" in case.unattributed


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("child", [False, True])
def test_caps_bind(*, streamed: bool, child: bool) -> None:
    ledger = Ledger(Caps(tokens=10))
    pieces = chunked("text/event-stream", sse(*OPENAI, OPENAI_USAGE, "[DONE]"))
    count = RawServer(lambda _: pieces) if streamed else FakeServer(answer_with(lambda question: question.text))
    prices = []

    def price(provider: str, model: str) -> Prices:
        prices.append((provider, model))
        return Prices(input_per_million=1, output_per_million=1)

    with count as server, recording(server.url, ledger=ledger, price=price) as gateway:
        first, second = gateway.open_case("one"), gateway.open_case("two")
        statuses = []
        for case in (first, second):
            with case.active():
                path = f"/case/{case.token}" if child else ""
                statuses += [post(gateway, path=path).status_code for _ in range(2)]
    assert statuses == ([200, 200, 400, 400] if streamed else [200, 400, 400, 400])
    assert len(server.requests) == statuses.count(200) == ledger.calls
    assert ledger.tokens == (14 if streamed else 18)
    assert (first.capped is None) is streamed
    assert second.capped is not None
    message = f"the run's cap of 10 tokens is reached ({ledger.tokens} used)"
    assert (second.capped.kind, str(second.capped)) == ("max_tokens", message)
    assert set(prices) == {("openai", "m")}


def test_an_attempt_goes_on_after_unreadable_results_of_others() -> None:
    ledger = Ledger(Caps())
    ledger.add_unreadable("no points", 1)
    assert ledger.reached_cap()[0] == "max_unreadable"
    with (
        FakeServer(answer_with(lambda question: question.text)) as server,
        recording(server.url, ledger=ledger) as gateway,
    ):
        case = gateway.open_case("one")
        with case.active():
            assert post(gateway).status_code == 200
        assert case.capped is None


def test_errors_are_counted_and_their_tokens_not_known() -> None:
    ledger = Ledger(Caps(tokens=30))
    failing = FakeServer(lambda _: Reply(status=500, body=error_reply(500).body))
    with failing, recording(failing.url, ledger=ledger) as gateway, gateway.open_case("one").active():
        assert [post(gateway).status_code for _ in range(3)] == [500] * 3
    assert (ledger.calls, ledger.uncounted, ledger.tokens) == (3, 3, 0)


def test_counting_tokens_uses_none() -> None:
    ledger = Ledger(Caps())
    counting = FakeServer(lambda _: Reply(body={"input_tokens": 5, "data": []}))
    with counting, recording(counting.url, ledger=ledger) as gateway:
        traffic = gateway.open_case("one")
        with traffic.active(), httpx.Client(trust_env=False) as client:
            client.post(f"{gateway.url}/anthropic/v1/messages/count_tokens", json={"model": "m"})
            client.get(f"{gateway.url}/openai/v1/models")
    assert [call.usage for call in traffic.calls] == [None, None]
    assert (ledger.calls, ledger.uncounted) == (0, 0)


def test_the_cache_answers_what_was_answered_under_the_same_conditions(tmp_path: Path) -> None:
    count = iter(range(100))

    def answer(question: ProviderRequest) -> Any:
        number = next(count)
        return error_reply(500) if question.text == "fails" else f"{question.text} {number}"

    def run(url: str, trial: int) -> tuple[list[str], Ledger]:
        ledger = Ledger(Caps())
        cache = AnswerCache(tmp_path, {}, Redactor())
        with recording(url, ledger=ledger, cache=cache, price=lambda *_: PRICE) as gateway:
            traffic = gateway.open_case("one", trial=trial)
            with traffic.active():
                answers = [post(gateway, text).text for text in ("a", "a", "fails")]
        assert [call.cached for call in traffic.calls] == [ledger.cached > 0, ledger.cached > 0, False]
        assert not ledger.cached or traffic.calls[0].usage is not None
        costs = [call.cost_usd for call in traffic.calls]
        assert costs[2] is None
        assert sum(filter(None, costs)) == pytest.approx(ledger.cost)
        assert costs[:2] == [0.0, 0.0] if ledger.cached else all(costs[:2])
        return answers, ledger

    with FakeServer(answer_with(answer)) as server, FakeServer(answer_with(answer)) as other:
        first, spent = run(server.url, 0)
        assert first[0] != first[1]
        assert (spent.calls, spent.cached) == (3, 0)
        again, spent = run(server.url, 0)
        assert again[0].replace(" ", "") == first[0].replace(" ", "")
        assert again[1].replace(" ", "") == first[1].replace(" ", "")
        assert (spent.calls, spent.cached) == (1, 2)
        assert run(server.url, 1)[1].cached == run(other.url, 0)[1].cached == 0
        # as another version may have left it
        for path in tmp_path.rglob("*.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"answer": {}, "sha256": canonical_sha256({})}))
        assert run(server.url, 0)[1].cached == 0


def test_requests_are_kept_without_secrets_and_compared_with_them(server: FakeServer) -> None:
    redactor = Redactor({"MY_API_KEY": KEY})
    with recording(server.url, redactor=redactor) as gateway, (traffic := gateway.open_case("one")).active():
        post(gateway, f"my key is {KEY}")
    (exchange,) = stored(traffic)
    assert exchange.request["messages"][0]["content"] == "my key is [redacted]"
    (without,) = stored(traffic, prompts=False)
    assert (without.request, without.request_sha256) == (None, exchange.request_sha256)
    with replaying() as gateway:
        gateway.configure(redactor=redactor)
        with (replayed := gateway.open_case("one", [exchange])).active():
            assert post(gateway, f"my key is {KEY}").status_code == 200
            refused = post(gateway, f"now my key is {KEY}")
    assert KEY not in refused.text + replayed.mismatch + str(replayed.difference)
    assert 'recorded "content": "my key is [redacted]", now "content": "now my key is' in replayed.mismatch


LONG = "The text before is the same; this is a long question:"
ASKED = {"role": "user", "content": f"{LONG} yes"}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/openai/v1/files", {"model": "m"}, "recorded POST /v1/chat/completions, now POST /v1/files"),
        ("/openai/v1/embeddings", {"model": "m"}, "recorded POST /v1/chat/completions, now POST /v1/embeddings"),
        ("/openai/v1/chat/completions", {"model": "n"}, 'recorded "messages": [, now "model": "n"'),
        ("/openai/v1/chat/completions", {"messages": [ASKED], "model": 5}, 'recorded "model": "m", now "model": 5'),
        (
            "/openai/v1/chat/completions",
            {"messages": [ASKED] * 2},
            f'recorded "model": "m", now "content": "{LONG} yes"',
        ),
        (
            "/openai/v1/chat/completions",
            {"messages": [{**ASKED, "content": f"{LONG} no"}]},
            'recorded is a long question: yes", now is a long question: no"',
        ),
        ("/anthropic/v1/messages", {"model": "n"}, "none of the 1 recorded requests, of which none has a body"),
    ],
)
def test_a_call_that_is_not_in_the_recording_says_what_is_nearest(
    path: str, body: dict[str, Any], expected: str, server: FakeServer
) -> None:
    with recording(server.url) as gateway, (traffic := gateway.open_case("one")).active():
        post(gateway, ASKED["content"])
    with replaying() as gateway, ExitStack() as stack:
        replayed = gateway.open_case("one", stored(traffic))
        stack.enter_context(replayed.active())
        answers = [httpx.post(f"{gateway.url}{path}", json=body, trust_env=False) for _ in range(2)]
        assert expected in replayed.mismatch
        for answer in answers:
            assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
            assert "packbench" in answer.text
        assert [post(gateway, ASKED["content"]).status_code for _ in range(2)] == [200, 400]
        assert expected in replayed.mismatch


def test_a_call_that_cannot_be_recorded_is_an_error_whatever_follows(server: FakeServer) -> None:
    with recording(server.url) as gateway, (traffic := gateway.open_case("one")).active():
        refused = httpx.post(f"{gateway.url}/openai/v1/files", json={}, trust_env=False)
        assert (refused.status_code, post(gateway).status_code) == (404, 200)
    error = traffic.unrecovered_error()
    assert error is not None
    assert "can't record this call of openai" in str(error)
    with recording(server.url, record=False) as gateway, gateway.open_case("one").active():
        httpx.post(f"{gateway.url}/openai/v1/other/completions", json={"messages": [], "model": "m"}, trust_env=False)
    assert [request.path for request in server.requests][1:] == ["/v1/other/completions"]
