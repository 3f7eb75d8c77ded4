"""A call is known by what decides on its answer: it replays whatever else changes, and contains no credential."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest
import yaml
from pydantic import ValidationError

from pytest_packbench.cases.load import parse_cassette
from pytest_packbench.engine.gateway.exchanges import RecordedCall, transcript_of
from pytest_packbench.engine.gateway.protocols import IGNORED, deciding
from pytest_packbench.engine.live_models import AnswerCache
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.errors import CassetteError
from pytest_packbench.model.redaction import REDACTED, Redactor
from pytest_packbench.model.suite import SuiteConfig
from tests.cassettes import authored_cassette
from tests.engine.gateway.gateways import (
    CHAT,
    KEY,
    from_file,
    post,
    question,
    recorded,
    replayed,
    replaying,
    stored,
)
from tests.servers.fake import FakeServer, Reply, scripted
from tests.servers.wire import answer_with

if TYPE_CHECKING:
    from pytest_packbench.engine.gateway import CaseTraffic, Gateway
    from pytest_packbench.model.recording import GatewayExchange

DATA = Path(__file__).with_name("data")
ROWS = yaml.safe_load((DATA / "headers.yaml").read_text("utf-8"))
BODIES = yaml.safe_load((DATA / "credentials.yaml").read_text("utf-8"))
CREDENTIALS = [name for names in ROWS["credentials"] for name in names]
OWN_KEY, BETA = "authorization_or_api-key", {"anthropic-beta": "good-1"}
LISTING = {"method": "GET", "path": "/openai/v1/models", "body": None}


def kept(headers: dict[str, str], *, prompts: bool = True, **how: Any) -> GatewayExchange:
    """The exchange of a request with these headers."""
    with FakeServer(lambda _: Reply(body={})) as server:
        traffic = recorded(server.url, lambda gateway: post(gateway, headers=headers, **how))
    return stored(traffic, prompts=prompts)[0]


def again(exchange: GatewayExchange, headers: dict[str, str], *ignored: str, **how: Any) -> str:
    """What differs in a replay with other headers."""
    return replayed([exchange], lambda gateway: post(gateway, headers=headers, **how), ignored).mismatch


def test_headers_of_the_table_do_not_decide() -> None:
    assert sorted(IGNORED) == sorted(ROWS["ignored"])
    assert deciding(dict.fromkeys([*ROWS["ignored"].values(), "x-route"], "a")) == {"x-route": "a"}
    names = dict.fromkeys((name for names in ROWS["deciding"] for name in names), "a")
    assert deciding(names) == names
    # their client needs these as they are
    own = {"host", "transfer-encoding", "expect", "upgrade", "connection", "content-length", "te", "trailer"}
    first, second = ({name: f"{name}-{number}" for name in {*ROWS["ignored"].values()} - own} for number in (1, 2))
    exchange = kept(first | BETA | {"content-type": "multipart/x; boundary=abc; version=1"})
    assert again(exchange, second | BETA | {"content-type": 'multipart/x; boundary="d e"; version=1'}) == ""
    assert again(exchange, BETA | {"content-type": "multipart/x; version=1"}) == ""


@pytest.mark.parametrize("how", [{}, LISTING], ids=["chat", "list"])
@pytest.mark.parametrize("prompts", [True, False])
def test_another_header_is_a_mismatch_that_names_it(how: dict[str, Any], *, prompts: bool) -> None:
    exchange = kept(BETA, prompts=prompts, **how)
    assert again(exchange, BETA, **how) == ""
    for now, names in (
        ({"anthropic-beta": "bad-1"}, "anthropic-beta"),
        ({}, "anthropic-beta"),
        ({"antropic-beta": "good-1"}, "anthropic-beta, antropic-beta"),
        (BETA | {"X-Route": "eu", "Cookie": "a=1"}, "cookie, x-route"),
    ):
        mismatch = again(exchange, now, **how)
        assert "/gateway/0, with other headers (" in mismatch
        assert f"ignore_headers): {names}; if the pipeline" in mismatch


@pytest.mark.parametrize(
    ("name", "shown"), [*zip(CREDENTIALS, CREDENTIALS, strict=True), *((name, OWN_KEY) for name in ROWS["keys"])]
)
def test_of_a_credential_only_its_presence_counts(name: str, shown: str) -> None:
    exchange = kept({name: f"{KEY}-1", "x-client": "a"})
    assert not [each for each in (KEY, canonical_sha256(f"{KEY}-1")) if each in exchange.model_dump_json()]
    assert again(exchange, {name: f"{KEY}-2", "x-client": "a"}) == ""
    assert f"ignore_headers): {shown}; if the pipeline has changed" in Redactor().text(
        again(exchange, {"x-client": "a"})
    )


def test_known_headers_are_kept_in_words_and_others_as_hashes() -> None:
    headers = {**BETA, "OpenAI-Beta": f"a {KEY}", "X-Route": "eu", "Authorization": f"Bearer {KEY}"}
    exchange = kept(headers)
    words = {"anthropic-beta": "good-1", "openai-beta": f"a {REDACTED}", OWN_KEY: REDACTED}
    hashes = {"x-route": f"sha256:{canonical_sha256('eu')}"}
    assert exchange.request_headers == {**words, **hashes, "content-type": "application/json"}
    without = kept(headers, prompts=False).request_headers or {}
    assert without.keys() == exchange.request_headers.keys()
    assert {value[:7] for name, value in without.items() if name != OWN_KEY} == {"sha256:"}
    # which header has the key depends on the provider's variables
    assert again(kept({"authorization": f"Bearer {KEY}"}), {"x-api-key": "no-key-needed"}) == ""


def test_a_recording_of_the_form_without_headers_replays_whatever_they_are() -> None:
    body = question("x", tools=[{"authorization": KEY}])
    now = kept(BETA, body=body).model_dump(mode="json", exclude_unset=True)
    for lost in ("version", "request_headers"):
        with pytest.raises(ValidationError, match="a version states request_headers"):
            from_file({name: value for name, value in now.items() if name != lost})
    # one that still contains a key
    rest = {name: value for name, value in now.items() if name not in {"version", "request_headers"}}
    exchange = from_file({**rest, "request": body})
    assert KEY not in str(transcript_of(exchange.model_dump()))
    assert again(exchange, {}, body=body) == ""
    changed = replayed([exchange], lambda gateway: post(gateway, body, "/openai/v1/completions"))
    assert "recorded POST /v1/chat/completions, now POST /v1/completions" in changed.mismatch
    assert KEY not in f"{changed.mismatch} {changed.difference}"


def test_a_suite_may_ignore_headers() -> None:
    exchange = kept(BETA | {"x-tenant": "a"})
    assert again(exchange, BETA, "X-Tenant") == ""
    assert again(exchange, BETA | {"x-tenant": "b"}, "x-ten*") == ""
    assert "x-tenant" in again(exchange, BETA, "x-other")
    SuiteConfig.model_validate({"pack": "generic", "recording": {"ignore_headers": ["X-Tenant", "x-*"]}})
    for name in ("X-A: b", "", "ä", "a b", 5):
        with pytest.raises(ValidationError):
            SuiteConfig.model_validate({"pack": "generic", "recording": {"ignore_headers": [name]}})


def test_a_cached_answer_is_that_to_the_same_headers(tmp_path: Path) -> None:
    with FakeServer(lambda _: Reply(body={})) as server:
        for case, beta in enumerate("aabb"):
            cache, headers = AnswerCache(tmp_path, {}, Redactor()), {"anthropic-beta": beta, "x-request-id": str(case)}
            recorded(server.url, partial(post, headers=headers), cache=cache)
    assert [received.headers["anthropic-beta"] for received in server.requests] == ["a", "b"]
    assert server.requests[0].json() == question("x")


TOKENS = ("qz7Wm1Tk93LfUv2Hd8Rb", "b5Ns0Xe47PgJy6Ca1Koq")


def call(body: Any, word: str = "", value: str = "", redactor: Redactor | None = None) -> RecordedCall:
    text = json.dumps({"model": "m", **body}).replace(word or "~", value)
    return RecordedCall.of("openai", "POST", "/v1/responses", text.encode(), redactor)


@pytest.mark.parametrize("body", BODIES["hidden"], ids=str)
def test_a_credential_in_a_body_is_hidden_and_may_be_another(body: Any) -> None:
    redactor = Redactor()
    first, second = (call(body, "TOKEN", token, redactor) for token in TOKENS)
    assert first.request_sha256 == second.request_sha256 != call({}).request_sha256
    for made, token in zip((first, second), TOKENS, strict=True):
        assert token not in json.dumps(made.as_exchange()) + redactor.text(f"the server does not know {token}.")


@pytest.mark.parametrize("body", BODIES["deciding"], ids=str)
def test_what_decides_on_an_answer_stays(body: Any) -> None:
    redactor = Redactor()
    first, second = (call(body, "VALUE", value, redactor) for value in ("region", "country"))
    assert first.request_sha256 != second.request_sha256
    assert redactor.text("region, country") == "region, country"


def test_ordinary_words_are_not_hidden_elsewhere_and_a_passphrase_is() -> None:
    redactor = Redactor()
    for body, text in (
        ({"auth": "interactive"}, "interactive"),
        ({"headers": {"X-Region": "eu-west-1"}}, "eu-west-1"),
        ({"headers": {"Accept": "application/vnd.acme.v2"}}, "application/vnd.acme.v2"),
        ({"api_key": "no-key-needed"}, "no-key-needed"),
    ):
        call(body, redactor=redactor)
        assert redactor.text(text) == text
    for value in (5, None, True, ""):
        assert call({"token": value}).shown_body() == {"model": "m", "token": value}
    call({"password": "correct horse battery staple"}, redactor=redactor)
    assert "horse" not in redactor.text("401: the password correct horse battery staple is wrong")


def test_a_member_that_is_there_twice_is_another_request() -> None:
    bodies = (b'{"model": "a", "model": "m"}', b'{"model": "b", "model": "m"}')
    calls = [RecordedCall.of("openai", "POST", "/v1/responses", body, Redactor()) for body in bodies]
    assert len({each.request_sha256 for each in calls}) == 2


@pytest.mark.parametrize(
    ("path", "asks"),
    [
        ("/v1/chat/completions/", True),
        ("/v1/complete", True),
        ("/v1/responses/compact", True),
        ("/v1/responses/resp_1/input_items", False),
    ],
)
def test_the_calls_that_ask_a_chat_model(path: str, *, asks: bool) -> None:
    assert RecordedCall.of("openai", "POST", path, b"{}", Redactor()).asks_chat_model is asks


def ask(gateway: Gateway, text: str) -> str | None:
    with openai.OpenAI(base_url=gateway.environment()["OPENAI_BASE_URL"], api_key=KEY) as client:
        answer = client.chat.completions.create(model="some-model", messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content


def test_what_was_recorded_is_replayed_in_order_and_a_miss_says_what_differs() -> None:
    count = iter(range(100))
    with FakeServer(answer_with(lambda question: f"{question.text} {next(count)}")) as server:
        traffic = recorded(server.url, lambda gateway: [ask(gateway, text) for text in ("a", "b", "a")])
    assert [request.headers["authorization"] for request in server.requests] == [f"Bearer {KEY}"] * 3
    exchanges = stored(traffic)
    assert [exchange.usage.tokens_input for exchange in exchanges] == [11, 11, 11]

    def act(gateway: Gateway) -> None:
        # no order across requests, and that of the recording among equal ones
        assert [ask(gateway, text) for text in ("b", "a", "a")] == ["b 1", "a 0", "a 2"]
        with pytest.raises(openai.BadRequestError, match="the nearest is /gateway/0"):
            ask(gateway, "c")

    traffic = replayed(exchanges, act)
    assert len(traffic.calls) == 4
    assert 'recorded "content": "a", now "content": "c"' in traffic.mismatch
    assert {'-   "content": "a",', '+   "content": "c",'} <= set(traffic.difference)

    def repeat(gateway: Gateway) -> None:
        assert ask(gateway, "b") == "b 1"
        with pytest.raises(openai.BadRequestError, match=r"more often than the 1 time\(s\) that it was recorded"):
            ask(gateway, "b")

    replayed(exchanges, repeat)


LONG = "The text before is the same; this is a long question:"
ASKED = question(f"{LONG} yes")["messages"][0]
NEAREST: list[tuple[str, dict[str, Any], str]] = [
    ("/openai/v1/files", {"model": "m"}, "recorded POST /v1/chat/completions, now POST /v1/files"),
    (CHAT, {"model": "n"}, 'recorded "messages": [, now "model": "n"'),
    (CHAT, {"messages": [ASKED], "model": 5}, 'recorded "model": "m", now "model": 5'),
    (CHAT, {"messages": [ASKED] * 2}, f'recorded "model": "m", now "content": "{LONG} yes"'),
    (CHAT, question(f"{LONG} no"), 'recorded is a long question: yes", now is a long question: no"'),
    ("/anthropic/v1/messages", {"model": "n"}, "none of the 1 recorded requests, of which none has a body"),
]


def test_a_call_that_is_not_in_the_recording_says_what_is_nearest() -> None:
    with FakeServer(answer_with(lambda question: question.text)) as server:
        exchanges = stored(recorded(server.url, lambda gateway: post(gateway, f"{LONG} yes")))
    for path, body, expected in NEAREST:
        with replaying() as gateway, (traffic := gateway.open_case("one", exchanges)).active():
            for answer in [post(gateway, body, path) for _ in range(2)]:
                assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
                assert "packbench" in answer.text
            assert [post(gateway, f"{LONG} yes").status_code for _ in range(2)] == [200, 400]
        # the first one is told
        assert expected in traffic.mismatch


def statuses(gateway: Gateway, *contents: str) -> list[int]:
    return [httpx.post(f"{gateway.url}{CHAT}", content=each, trust_env=False).status_code for each in contents]


def test_a_request_that_is_no_json_is_the_same_where_its_bytes_are() -> None:
    with FakeServer(scripted(Reply(body={}))) as server:
        traffic = recorded(server.url, lambda gateway: statuses(gateway, "{model:"))
    found: list[int] = []
    again = replayed(stored(traffic), lambda gateway: found.extend(statuses(gateway, "{model:", "{model")))
    assert found == [200, 400]
    assert "none of the 1 recorded requests, of which none has a body to compare" in again.mismatch


def test_requests_are_kept_without_secrets_and_compared_with_them() -> None:
    secret = Redactor({"MY_API_KEY": KEY})
    with FakeServer(answer_with(lambda question: question.text)) as server:
        traffic: CaseTraffic = recorded(server.url, lambda gateway: post(gateway, f"my key is {KEY}"), redactor=secret)
    (exchange,), (without,) = (stored(traffic, prompts=prompts) for prompts in (True, False))
    assert exchange.request["messages"][0]["content"] == "my key is [redacted]"
    assert (without.request, without.request_sha256) == (None, exchange.request_sha256)

    def act(gateway: Gateway) -> None:
        gateway.configure(redactor=secret)
        answers = [post(gateway, f"{text} key is {KEY}") for text in ("my", "now my")]
        assert [answer.status_code for answer in answers] == [200, 400]
        assert KEY not in answers[1].text

    again = replayed([exchange], act)
    assert KEY not in f"{again.mismatch} {again.difference}"
    assert 'recorded "content": "my key is [redacted]", now "content": "now my key is' in again.mismatch


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
    with pytest.raises(CassetteError, match=rf"^fixtures/a.json: /gateway/0: .*{problem}"):
        parse_cassette(json.dumps(cassette).encode(), source="fixtures/a.json")


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
