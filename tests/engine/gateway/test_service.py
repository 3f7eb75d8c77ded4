"""Whose a call is, where it may go, and what it is subject to: limits, caps, the cache. Nothing passes unseen."""

from __future__ import annotations

import json
import os
import socket
from base64 import b64encode
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pytest_packbench.backends import BackendError
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.gateway import Serving, stamps
from pytest_packbench.engine.gateway.exchanges import RecordedCall
from pytest_packbench.engine.gateway.protocols import upstreams_of
from pytest_packbench.engine.gateway.server import MAX_BODY_BYTES, MAX_HEAD_BYTES
from pytest_packbench.engine.live_models import AnswerCache, CallLimit, Ledger
from pytest_packbench.engine.offline import take_late
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.run import Caps
from tests.cassettes import authored_cassette
from tests.engine.attempts import PRICE, context, job
from tests.engine.gateway.gateways import (
    CHAT,
    OPENAI,
    OPENAI_USAGE,
    error_of,
    post,
    recorded,
    recording,
    replayed,
    replaying,
    serving,
    sse,
    stored,
)
from tests.servers.fake import FakeServer, Reply, closed_port, scripted
from tests.servers.raw import RawServer, chunked
from tests.servers.wire import answer_with, error_reply, openai_reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_packbench.engine.gateway import CaseTraffic, Gateway
    from pytest_packbench.model.suite import Prices
    from tests.servers.fake import Received
    from tests.servers.wire import ProviderRequest

each_mode = pytest.mark.parametrize("mode", ["record", "fixture", "live"])


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(answer_with(lambda question: question.text)) as fake:
        yield fake


@pytest.fixture
def other() -> Iterator[FakeServer]:
    with FakeServer(scripted(openai_reply("elsewhere"))) as fake:
        yield fake


def stamp(token: str, place: str = "pipe.py:7") -> dict[str, str]:
    return {stamps.CASE_HEADER: token, stamps.CALLER_HEADER: place}


def texts(traffic: CaseTraffic) -> list[str]:
    return [call.body["messages"][0]["content"] for call in traffic.calls]


def sent(gateway: Gateway, path: str, *, first: str = "", **headers: str) -> str:
    """Send a head as it is, and return what comes back."""
    fields = {"host": "{}:{}".format(*gateway.address), "connection": "close", **headers}
    target = f"/{first or gateway.url.rpartition('/')[2]}{path}"
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    with socket.create_connection(gateway.address, 10) as connection:
        connection.sendall("\r\n".join(lines).encode())
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return received.decode()


def test_a_call_without_a_case_is_forwarded_and_not_recorded_and_offline_refused(server: FakeServer) -> None:
    ledger = Ledger(Caps())
    with recording(server.url, ledger=ledger) as gateway:
        waiting = gateway.open_case("one")
        assert post(gateway).status_code == 200
        assert (len(server.requests), waiting.calls, ledger.calls) == (1, [], 0)
    with replaying() as gateway:
        answer = post(gateway)
        assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
        assert "offline" in answer.json()["error"]["message"]


def test_a_call_belongs_to_its_stamp_its_token_or_the_only_case(server: FakeServer) -> None:
    with recording(server.url) as gateway:
        one, two = gateway.open_case("one"), gateway.open_case("two")
        paths = [f"/case/{case.token}{CHAT}" for case in (one, two)]
        with one.active():
            post(gateway, "alone")
            # opened, and its target does not run yet
            post(gateway, "early", paths[1])
            with two.active():
                post(gateway, "stamp", headers=stamp(two.token))
                # what a child adds itself does not count
                post(gateway, "child", paths[0], headers=stamp(two.token))
        assert (texts(one), texts(two)) == (["alone", "child"], ["early", "stamp"])
        assert [one.unattributed, two.unattributed, take_late(None)] == ["", "", []]
        # what packbench adds is not forwarded
        for request in server.requests:
            assert not [name for name in request.headers if "packbench" in name]
            assert request.headers["host"] == server.url.removeprefix("http://")
            assert gateway.url.rpartition("/")[2] not in str(request)


def test_a_child_works_for_one_case_after_the_other(server: FakeServer) -> None:
    with recording(server.url) as gateway:
        token = gateway.child_token()
        path = f"/case/{token}{CHAT}"
        assert f"/case/{token}/" in gateway.environment(token)["OPENAI_BASE_URL"]
        cases = [gateway.open_case(name) for name in ("one", "two")]
        for case in cases:
            with case.active():
                gateway.assign(token, case)
                assert post(gateway, case.case_id, path).status_code == 200
        assert [texts(case) for case in cases] == [["one"], ["two"]]
        with cases[0].active(), cases[1].active():
            # its case has ended
            assert post(gateway, path=path).status_code == 400
        assert cases[0].unattributed


def test_a_process_serves_once_or_elsewhere_and_tells_at_its_end_what_came_too_late(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    elsewhere, served = Serving("record", here=False), Serving("fixture")
    elsewhere.start()
    assert (elsewhere.gateway, elsewhere.upstreams) == (None, {"openai": "http://127.0.0.1:1/v1"})
    suite = object()
    assert elsewhere.open_case(suite, "a") is None
    served.start()
    gateway = served.gateway
    ended, one = served.open_case(suite, "ended"), served.open_case(suite, "one")
    assert gateway is not None
    assert ended is not None
    assert one is not None
    with ended.active():
        left = copy_context()
    with one.active():
        left.run(post, gateway)
    served.start()
    assert served.gateway is gateway
    for each in (elsewhere, served, served):
        each.stop()
    said = capsys.readouterr().err
    assert said.startswith("packbench: a model call can't be attributed to a case: POST /v1/chat/completions (model m)")
    assert (said.count("\n"), os.environ["OPENAI_BASE_URL"]) == (1, "http://127.0.0.1:1/v1")


def test_a_replayed_call_that_makes_no_model_work_uses_no_tokens(tmp_path: Path) -> None:
    call = RecordedCall.of("openai", "GET", "/v1/models", b"")
    call.status, call.end, call.pieces = 200, "complete", [b'{"points": 1.0}']
    whole = authored_cassette("a", {}, [], gateway=[call.as_exchange()])
    served = Serving("fixture")
    target = lambda _: httpx.get(f"{os.environ['OPENAI_BASE_URL']}/models").json()  # noqa: E731 - passed once
    shared = replace(context(tmp_path, target, mode="fixture"), serving=served)
    (tmp_path / "fixtures").mkdir()
    served.start()
    try:
        for cassette, kind in ((whole, ""), ({**whole, "gateway": []}, "cassette_missing")):
            (tmp_path / "fixtures" / "a.json").write_text(json.dumps(cassette))
            done = attempt(shared, job(shared).loaded)
            assert (done.failure.kind if done.failure else "") == kind
            assert (done.tokens_input, done.tokens_output) == (None, None)
    finally:
        served.stop()


@each_mode
def test_what_cannot_be_attributed_is_of_no_case(mode: str, server: FakeServer) -> None:
    ledger = Ledger(Caps())
    with serving(mode, server.url, ledger=ledger) as gateway:
        ended, one, two = (gateway.open_case(name) for name in ("ended", "one", "two"))
        with ended.active():
            pass
        with one.active():
            late = post(gateway, "late", headers=stamp(ended.token))
            unknown = post(gateway, headers=stamp("unknown", "pipe.py:8"))
            with two.active():
                bare = post(gateway, "bare", headers={stamps.CALLER_HEADER: "pipe.py:9"})
        outside = post(gateway, headers=stamp(ended.token))
        left = post(gateway, path=f"/case/{ended.token}{CHAT}")
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
        assert (case, "pipe.py:7" in message, take_late(None)) == ("ended", True, [])


@each_mode
def test_a_case_that_is_given_up_goes_on_in_vain_and_is_no_other_ones_fault(mode: str, server: FakeServer) -> None:
    with serving(mode, server.url) as gateway:
        given_up, beside, after = (gateway.open_case(name) for name in ("given up", "beside", "after"))
        with beside.active():
            with given_up.active():
                if mode != "fixture":
                    assert post(gateway, headers=stamp(given_up.token)).status_code == 200
                given_up.close()
            asked = [post(gateway, headers=stamp(given_up.token))]
        with after.active():
            asked.append(post(gateway, headers=stamp(given_up.token)))
        for answer in asked:
            assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
            assert "was made by work of case given up, which has ended" in answer.text
        assert [case.unattributed for case in (given_up, beside, after)] == [""] * 3
        assert (len(server.requests), len(beside.calls), len(after.calls)) == (mode != "fixture", 0, 0)


@pytest.mark.parametrize(
    ("kind", "later", "decides"),
    [("network", "b", False), ("network", "a", False), ("server_error", "b", False), ("server_error", "", True)],
)
def test_a_provider_that_answers_by_an_error_may_be_replaced_by_another_model(
    kind: str, later: str, *, decides: bool
) -> None:
    with replaying() as gateway:
        traffic = gateway.open_case("one")
    failed, succeeded = (RecordedCall.of("openai", "POST", CHAT, text.encode()) for text in ('"a"', f'"{later}"'))
    failed.error, failed.end = BackendError(kind, "x"), "complete"
    succeeded.status, succeeded.end = 200, "complete"
    traffic.calls += [failed, succeeded] if later else [failed]
    assert traffic.unrecovered_error() is (failed.error if decides else None)


def test_a_call_that_its_client_gave_up_is_an_error_unless_another_one_succeeded() -> None:
    def answer(received: Received) -> Reply:
        return Reply(hang=True) if "slow" in str(received.json()) else openai_reply("x")

    def asked(gateway: Gateway, *names: str) -> CaseTraffic:
        with (traffic := gateway.open_case("one")).active():
            for name in names:
                if name == "slow":
                    with pytest.raises(httpx.ReadTimeout):
                        post(gateway, {"model": "slow"}, timeout=0.2)
                else:
                    post(gateway, name)
        return traffic

    with FakeServer(answer) as server, recording(server.url) as gateway:
        swallowed = asked(gateway, "a", "slow")
        expected = "timeout: openai: POST /v1/chat/completions (model slow): the client gave up before it had an answer"
        assert error_of(swallowed) == expected
        # the exception is what it returns
        assert swallowed.unrecovered_error(returned=False) is None
        assert error_of(asked(gateway, "slow", "c")) == ""


@pytest.mark.parametrize("record", [True, False])
def test_no_client_follows_a_redirect_past_the_gateway(other: FakeServer, *, record: bool) -> None:
    ledger = Ledger(Caps())
    place = other.url.replace("://", "://bob:pw@") + "/v1/chat/completions?sig=secret"
    answers: list[httpx.Response] = []
    with FakeServer(scripted(Reply(status=307, headers={"location": place}), openai_reply("x"))) as server:
        # swallowed, and asked again
        act = lambda gateway: answers.extend(post(gateway) for _ in range(2))  # noqa: E731 - passed once
        traffic = recorded(server.url, act, ledger=ledger, record=record)
    answers.append(httpx.Response(0))
    again = replayed(stored(traffic), lambda gateway: answers.append(post(gateway)))
    assert [answer.status_code for answer in answers] == [307, 200, 0, 307]
    assert "location" not in answers[0].headers
    assert (other.requests, ledger.calls) == ([], 2)
    start = "unsupported_call: openai: POST /v1/chat/completions (model m): the provider"
    assert (error_of(traffic).startswith(start), "secret" in error_of(traffic)) == (True, False)
    assert "set OPENAI_BASE_URL to the address that it redirects to" in error_of(traffic)
    assert "unsupported_call" in error_of(again)


ELSEWHERE = (
    *("/v1@OTHER/chat/completions", "/v1/@OTHER", "/v1:pw@OTHER/x", "/v1\\@OTHER/x", "/v1/a\\b", "/v1#@OTHER/x"),
    *("/v1/../admin", "/v1/..", "/v1/./x", "/../x?y", "/v1/%2e%2e/admin", "/v1/.%2E/x", "/v1/a%2Fb", "/v1/a%2fb"),
    *("/v1/a%5Cb", "/v1/a%5cb", "/v1/a%0ab", "/v1/a%00", "/v1/a%1f", "/v1/a%7F", "/v1%2f@OTHER/x"),
)


@each_mode
def test_a_path_that_could_lead_elsewhere_is_refused(mode: str, server: FakeServer, other: FakeServer) -> None:
    with serving(mode, server.url) as gateway:
        gateway.upstreams |= {"openai": server.url, "gemini": server.url}
        for path in [f"/{provider}{path}" for provider in ("openai", "gemini") for path in ELSEWHERE]:
            with (traffic := gateway.open_case("one")).active():
                target = path.replace("OTHER", other.url.removeprefix("http://"))
                received = sent(gateway, target, **{"content-length": "0", "authorization": "Bearer mine"})
            assert received.startswith("HTTP/1.1 400"), path
            assert "a path has no @, \\ or #, no step . or .., and none of these encoded" in error_of(traffic)
    assert (server.requests, other.requests) == ([], [])


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1.OTHER/x", "/.OTHER/x"),
        ("/v1OTHER/x", "/OTHER/x"),
        ("/v18080/x", "/8080/x"),
        ("/v1:1/x", "/:1/x"),
        ("/v1//OTHER/x", "/OTHER/x"),
        ("/v1?x=@OTHER/..%2f#y", "/?x=@OTHER/..%2f#y"),
        ("/v1/a..b/.c/d.?e", "/a..b/.c/d.?e"),
        ("/v1/models/gpt-4.1%20a%3Ab%40c", "/models/gpt-4.1%20a%3Ab%40c"),
    ],
)
def test_scheme_host_and_port_are_those_of_the_setting(path: str, asked: str, other: FakeServer) -> None:
    path, asked = (text.replace("OTHER", other.url.removeprefix("http://")) for text in (path, asked))
    with FakeServer(scripted(Reply())) as server, recording(server.url, record=False) as gateway:
        for base in ("", "/own/v1"):
            gateway.upstreams |= {"openai": server.url + base}
            sent(gateway, f"/openai{path}", **{"content-length": "0"})
    assert [each.path for each in server.requests] == [asked, f"/own/v1{path.removeprefix('/v1')}"]
    assert {each.headers["host"] for each in server.requests} == {server.url.removeprefix("http://")}
    assert other.requests == []


@each_mode
@pytest.mark.parametrize("child", [False, True])
def test_a_request_that_is_refused_is_an_error_of_its_case(mode: str, server: FakeServer, *, child: bool) -> None:
    with serving(mode, server.url) as gateway:
        for path, headers, status, reason in (
            ("/mistral/v1/chat/completions?key=sk-1", {}, 404, "packbench's gateway serves openai, anthropic"),
            (
                CHAT,
                {"content-length": str(MAX_BODY_BYTES + 1)},
                413,
                "packbench's gateway takes bodies of 32 MiB at most",
            ),
            (CHAT, {"x-long": "x" * MAX_HEAD_BYTES}, 431, "the head of the request is too long"),
            (f"{CHAT}?{'x' * MAX_HEAD_BYTES}", {}, 431, "the head of the request is too long"),
        ):
            with (traffic := gateway.open_case("one")).active():
                own = {} if child else {stamps.CASE_HEADER: traffic.token}
                received = sent(gateway, (f"/case/{traffic.token}" if child else "") + path, **{**own, **headers})
            assert received.startswith(f"HTTP/1.1 {status}")
            assert error_of(traffic).startswith(f"unsupported_call: POST {path.partition('?')[0]}: {reason}")
            assert bool(traffic.mismatch) == (mode == "fixture")
            assert (traffic.calls, traffic.unattributed) == ([], "")
        # without the secret, it may be anyone's
        with (traffic := gateway.open_case("one")).active():
            sent(gateway, "/x", first="wrong")
        assert error_of(traffic) == ""
    assert server.requests == []


def test_a_login_in_the_address_is_sent_where_the_client_sends_none_and_never_shown(server: FakeServer) -> None:
    host, failed = server.url.removeprefix("http://"), []

    def act(gateway: Gateway) -> None:
        gateway.upstreams |= upstreams_of({"OLLAMA_HOST": f"bob:p%40ss-w0rd@{host}"})
        for headers in ({}, {"authorization": "Bearer mine"}):
            post(gateway, path="/ollama/api/chat", headers=headers)
        gateway.upstreams |= upstreams_of({"OLLAMA_HOST": f"http://bob:p%40ss-w0rd@127.0.0.1:{closed_port()}"})
        failed.append(post(gateway, path="/ollama/api/chat").text)

    traffic = recorded(server.url, act)
    expected = "Basic " + b64encode(b"bob:p@ss-w0rd").decode()
    assert [request.headers["authorization"] for request in server.requests] == [expected, "Bearer mine"]
    assert server.requests[0].headers["host"] == host
    assert "no answer from http://127.0.0.1" in error_of(traffic)
    everything = f"{failed} {error_of(traffic)} {[call.as_exchange() for call in traffic.calls]}"
    assert not [word for word in ("bob", "w0rd", expected) if word in everything]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
def test_clients_of_ollama_may_speak_the_protocol_of_openai(path: str, server: FakeServer) -> None:
    def act(gateway: Gateway) -> None:
        gateway.upstreams |= upstreams_of({"OLLAMA_BASE_URL": f"{server.url}/v1"})
        # where the variable ended in /v1, the client adds none
        assert post(gateway, path=f"/ollama{path}").status_code == 200

    (exchange,) = stored(traffic := recorded(server.url, act))
    assert (server.requests[0].path, exchange.path) == ("/v1/chat/completions",) * 2
    assert (exchange.usage is not None, error_of(traffic)) == (True, "")


def test_a_call_that_cannot_be_recorded_is_an_error_whatever_follows(server: FakeServer) -> None:
    codes: list[int] = []
    ask = lambda gateway: codes.extend(post(gateway, path=path).status_code for path in ("/openai/v1/files", CHAT))  # noqa: E731
    traffic = recorded(server.url, ask)
    assert codes == [404, 200]
    assert "can't record this call of openai" in error_of(traffic)
    recorded(server.url, lambda gateway: post(gateway, path="/openai/v1/other/completions"), record=False)
    assert [request.path for request in server.requests][1:] == ["/v1/other/completions"]


CHATS = (
    *("openai/v1/chat/completions", "openai/v1/responses"),
    *("openai/v1/completions?api-version=2", "anthropic/v1/messages", "ollama/api/chat"),
    *("ollama/api/generate", "ollama/chat/completions", "gemini/v1beta/models/m:generateContent"),
    "gemini/v1beta/models/m:streamGenerateContent?alt=sse",
)
OTHERS = (
    *("openai/v1/embeddings", "ollama/api/embed", "ollama/api/embeddings", "gemini/v1beta/models/m:embedContent"),
    *("gemini/v1beta/models/m:batchEmbedContents", "anthropic/v1/messages/count_tokens", "openai/v1/moderations"),
)


@pytest.mark.parametrize(("path", "limited"), [*((path, True) for path in CHATS), *((path, False) for path in OTHERS)])
def test_an_attempt_asks_a_chat_model_no_more_often_than_its_limit(path: str, *, limited: bool) -> None:
    with FakeServer(lambda _: Reply(body={})) as server, recording(server.url) as gateway:
        one, two = gateway.open_case("one"), gateway.open_case("two")
        one.limit = CallLimit(3)
        for case in (one, two):
            with case.active():
                place = f"/case/{case.token}/{path}"
                codes = [post(gateway, {"model": "m", "input": number > 1}, place).status_code for number in range(5)]
                assert codes == [200] * 3 + [400 if limited and case is one else 200] * 2
        assert len(server.requests) == (8 if limited else 10)
    message = "asked for more than 3 model calls (--packbench-max-calls); end its loop, or raise the limit"
    assert (message in str(one.limit.refused)) is limited
    if limited:
        assert message in str([call.content for call in one.calls])
        assert str(one.unrecovered_error()) == str(one.limit.refused)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("child", [False, True])
def test_caps_bind(*, streamed: bool, child: bool) -> None:
    ledger, prices = Ledger(Caps(tokens=10)), []
    pieces = chunked("text/event-stream", sse(*OPENAI, OPENAI_USAGE, "[DONE]"))
    count = RawServer(lambda _: pieces) if streamed else FakeServer(answer_with(lambda question: question.text))

    def price(provider: str, model: str) -> Prices:
        prices.append((provider, model))
        return PRICE

    with count as server, recording(server.url, ledger=ledger, price=price) as gateway:
        first, second = gateway.open_case("one"), gateway.open_case("two")
        statuses = []
        for case in (first, second):
            with case.active():
                path = f"/case/{case.token}{CHAT}" if child else CHAT
                statuses += [post(gateway, path=path).status_code for _ in range(2)]
    assert statuses == ([200, 200, 400, 400] if streamed else [200, 400, 400, 400])
    assert len(server.requests) == statuses.count(200) == ledger.calls
    assert ledger.tokens == (14 if streamed else 18)
    assert (first.capped is None) is streamed
    assert second.capped is not None
    message = f"the run's cap of 10 tokens is reached ({ledger.tokens} used)"
    assert (second.capped.kind, str(second.capped)) == ("max_tokens", message)
    assert set(prices) == {("openai", "m")}


def test_an_attempt_goes_on_after_unreadable_results_of_others(server: FakeServer) -> None:
    ledger = Ledger(Caps())
    ledger.add_unreadable("no points", 1)
    assert ledger.reached_cap()[0] == "max_unreadable"
    case = recorded(server.url, post, ledger=ledger)
    assert (len(case.calls), case.capped) == (1, None)


@pytest.mark.parametrize(
    ("reply", "path", "method", "spent"),
    [
        (error_reply(500), CHAT, "POST", (1, 1, 0)),
        (Reply(body={"input_tokens": 5}), "/anthropic/v1/messages/count_tokens", "POST", (0, 0, 0)),
        (Reply(body={"data": []}), "/openai/v1/models", "GET", (0, 0, 0)),
    ],
)
def test_an_error_is_counted_without_tokens_and_counting_tokens_uses_none(
    reply: Reply, path: str, method: str, spent: tuple[int, ...]
) -> None:
    ledger = Ledger(Caps(tokens=30))
    with FakeServer(scripted(reply)) as server:
        traffic = recorded(server.url, lambda gateway: post(gateway, path=path, method=method), ledger=ledger)
    assert (ledger.calls, ledger.uncounted, ledger.tokens) == spent
    assert traffic.calls[0].usage is None


def test_the_cache_answers_what_was_answered_under_the_same_conditions(tmp_path: Path) -> None:
    count = iter(range(100))

    def answer(question: ProviderRequest) -> Any:
        number = next(count)
        return error_reply(500) if question.text == "fails" else f"{question.text} {number}"

    def run(url: str, trial: int, cached: int) -> list[str]:
        ledger, cache = Ledger(Caps()), AnswerCache(tmp_path, {}, Redactor())
        with (
            recording(url, ledger=ledger, cache=cache, price=lambda *_: PRICE) as gateway,
            (traffic := gateway.open_case("one", trial=trial)).active(),
        ):
            answers = ["".join(post(gateway, text).text.split()) for text in ("a", "a", "fails")]
        assert [call.cached for call in traffic.calls] == [cached > 0] * 2 + [False]
        assert (ledger.calls, ledger.cached) == (3 - cached, cached)
        costs = [call.cost_usd or 0.0 for call in traffic.calls]
        assert [cost == 0 for cost in costs] == [cached > 0] * 2 + [True]
        assert sum(costs) == pytest.approx(ledger.cost)
        assert traffic.calls[0].usage is not None
        return answers[:2]

    with FakeServer(answer_with(answer)) as server, FakeServer(answer_with(answer)) as elsewhere:
        first = run(server.url, 0, 0)
        assert first[0] != first[1]
        assert run(server.url, 0, 2) == first
        run(server.url, 1, 0)
        run(elsewhere.url, 0, 0)
        # as another version may have left it
        for path in tmp_path.rglob("*.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"answer": {}, "sha256": canonical_sha256({})}))
        run(server.url, 0, 0)
