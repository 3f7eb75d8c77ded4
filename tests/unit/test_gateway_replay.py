"""Calls of unchanged clients through the gateway: recorded, and replayed without a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from pytest_packbench.cases.load import parse_cassette
from pytest_packbench.engine.gateway.exchanges import transcript_of
from pytest_packbench.model.errors import CassetteError
from tests.cassettes import authored_cassette
from tests.servers.fake import FakeServer, Reply, scripted
from tests.servers.wire import answer_with
from tests.unit.gateways import KEY, recording, replaying, stored

if TYPE_CHECKING:
    from pytest_packbench.engine.gateway import Gateway


def ask(gateway: Gateway, text: str) -> str | None:
    with openai.OpenAI(base_url=gateway.environment()["OPENAI_BASE_URL"], api_key=KEY) as client:
        answer = client.chat.completions.create(model="some-model", messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content


def test_what_was_recorded_is_replayed_in_order_and_a_miss_says_what_differs() -> None:
    count = iter(range(100))
    with FakeServer(answer_with(lambda question: f"{question.text} {next(count)}")) as server:
        with recording(server.url) as gateway:
            traffic = gateway.open_case("one")
            with traffic.active():
                answers = [ask(gateway, text) for text in ("a", "b", "a")]
        assert [request.headers["authorization"] for request in server.requests] == [f"Bearer {KEY}"] * 3
    assert answers == ["a 0", "b 1", "a 2"]
    exchanges = stored(traffic)
    assert KEY not in str(exchanges)
    assert [exchange.usage.tokens_input for exchange in exchanges] == [11, 11, 11]
    with replaying() as gateway:
        replayed = gateway.open_case("one", exchanges)
        with replayed.active():
            # no order across requests, and that of the recording among equal ones
            assert [ask(gateway, text) for text in ("b", "a")] == ["b 1", "a 0"]
            assert ask(gateway, "a") == "a 2"
            with pytest.raises(openai.BadRequestError, match="the nearest is /gateway/0"):
                ask(gateway, "c")
        assert len(replayed.calls) == 4
        assert 'recorded "content": "a", now "content": "c"' in replayed.mismatch
        assert {'-   "content": "a",', '+   "content": "c",'} <= set(replayed.difference)
        with gateway.open_case("one", exchanges).active():
            assert ask(gateway, "b") == "b 1"
            with pytest.raises(
                openai.BadRequestError, match=r"asked more often than the 1 time\(s\) that it was recorded"
            ):
                ask(gateway, "b")


def test_a_request_that_is_no_json_is_the_same_where_its_bytes_are() -> None:
    def statuses(gateway: Gateway, *contents: str) -> list[int]:
        url = f"{gateway.url}/openai/v1/chat/completions"
        return [httpx.post(url, content=content, trust_env=False).status_code for content in contents]

    with (
        FakeServer(scripted(Reply(body={}))) as server,
        recording(server.url) as gateway,
        (traffic := gateway.open_case("one")).active(),
    ):
        assert statuses(gateway, "{model:") == [200]
    with replaying() as gateway, (replayed := gateway.open_case("one", stored(traffic))).active():
        assert statuses(gateway, "{model:", "{model") == [200, 400]
    assert "none of the 1 recorded requests, of which none has a body to compare" in replayed.mismatch


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"text": "a", "stream": "a"}, "an answer has one of the keys stream, text"),
        ({"status": None}, "an answer without a status is not complete"),
        ({"headers": {"retry-after": "1\r\nx: y"}}, "a header has several lines"),
        ({"body_base64": "?"}, "an answer is no base64"),
    ],
)
def test_an_exchange_that_no_client_could_get_is_refused(changes: dict[str, Any], problem: str) -> None:
    exchange = {"provider": "openai", "method": "GET", "path": "/v1/models", "request_sha256": "0" * 64, "status": 200}
    cassette = authored_cassette("a", {}, [], gateway=[exchange | changes])
    with pytest.raises(CassetteError) as caught:
        parse_cassette(json.dumps(cassette).encode(), source="fixtures/a.json")
    assert str(caught.value).startswith("fixtures/a.json: /gateway/0: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("plain", [("user", "plain")]),
        ({"system": "Be short.", "prompt": "Why?"}, [("system", "Be short."), ("user", "Why?")]),
        ({"input": [1, 2]}, [("user", "1"), ("user", "2")]),
        ({"query": "x"}, [("user", '{"query": "x"}')]),
    ],
)
def test_what_a_call_asked_is_shown_by_its_role(asked: object, expected: list[tuple[str, str]]) -> None:
    exchange = {"method": "POST", "path": "/v1", "request": asked, "status": None, "end": "aborted"}
    answer = ("answer (status none), aborted", "")
    assert transcript_of(exchange) == [("POST /v1", *line) for line in [*expected, answer]]
