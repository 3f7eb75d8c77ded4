"""A pipeline reads the same headers of an answer from the recording; names of accounts and hosts stay at home."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import openai
import pytest

from pytest_packbench.engine.gateway.protocols import kept_headers
from pytest_packbench.model.redaction import REDACTED, Redactor
from tests.engine.gateway.gateways import KEY, from_file, post, recorded, replayed, stored
from tests.engine.gateway.test_upstream import client
from tests.servers.fake import FakeServer, Reply, scripted
from tests.servers.wire import error_reply, openai_reply

if TYPE_CHECKING:
    import httpx

    from pytest_packbench.engine.gateway import Gateway
    from pytest_packbench.model.recording import GatewayExchange

READ = {
    "x-ratelimit-remaining-requests": "3499",
    "x-ratelimit-limit-project-tokens": "250000",
    "x-ratelimit-reset-tokens": "6m0s",
    "anthropic-ratelimit-tokens-reset": "2026-11-28T10:00:00Z",
    "x-request-id": "req_011CSHoEeqs5C35K2UUqR7Fy",
    "x-litellm-response-cost": "0.002",
    "openai-processing-ms": "312",
    "openai-version": "2020-10-01",
    "retry-after": "20",
    "cf-ray": "8c1f2e3d4a5b6c7d-FRA",
}
NAMING = {
    "openai-organization": "acme-corp-x1",
    "openai-project": "proj_acme",
    "anthropic-organization-id": "5f0c-acme",
    "x-ms-account-name": "acme",
    "x-litellm-key-alias": "acme-nightly",
    "x-litellm-model-api-base": "https://llm.acme.internal/v1",
    "via": "1.1 proxy7.acme",
    "server": "acme-edge-9",
    "x-served-by": "cache-fra-acme",
    "x-real-ip": "10.20.30.40",
    "report-to": '{"url":"https://acme.report"}',
    "nel": '{"report_to":"acme"}',
}
LEFT_OUT = {
    "set-cookie": f"session={KEY}",
    "date": "Sat, 28 Nov 2026 10:00:00 GMT",
    "last-modified": "Sat, 28 Nov 2026 10:00:00 GMT",
    "x-api-key": "plain",
    "x-amz-security-token": "plain",
    "alt-svc": 'h3=":443"',
    "keep-alive": "timeout=5",
}


def read(headers: dict[str, str], status: int = 200) -> tuple[httpx.Response, GatewayExchange, httpx.Response]:
    """The answer of a provider, its exchange, and the answer of a replay."""
    found: list[Any] = []
    reply = Reply(status=status, body={"a": 1}, headers=headers)
    with FakeServer(scripted(reply)) as server:
        traffic = recorded(server.url, lambda gateway: found.append(post(gateway)))
    (exchange,) = stored(traffic)
    replayed([exchange], lambda gateway: found.append(post(gateway)))
    return found[0], exchange, found[1]


def test_headers_are_there_again_but_those_of_the_connection_dates_and_secrets() -> None:
    live, exchange, again = read(READ | NAMING | LEFT_OUT)
    assert READ.items() <= dict(live.headers).items()
    assert READ.items() <= dict(again.headers).items()
    assert {name: again.headers[name] for name in NAMING} == dict.fromkeys(NAMING, REDACTED)
    assert exchange.headers.keys() == {*READ, *NAMING, "content-type"}
    assert not [word for word in ("acme", "10.20", KEY, "plain") if word in exchange.model_dump_json()]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("location", "/v1/files/f1?sig=abc#x", f"/v1/files/f1?{REDACTED}"),
        ("location", "https://bob:pw@store.acme:8443/f1", f"https://{REDACTED}/f1"),
        ("operation-location", "https://acme.azure.com/op/7?api-version=2", f"https://{REDACTED}/op/7?{REDACTED}"),
        ("link", "<https://api.acme/v1/models?after=m>; rel=next", f"<https://{REDACTED}/v1/models?after=m>; rel=next"),
        ("x-upstream", "10.0.0.7:8080", f"{REDACTED}:8080"),
        ("x-owner", "ops@acme.example", REDACTED),
        ("x-debug", f"called with {KEY}", f"called with {REDACTED}"),
    ],
)
def test_what_a_value_names_is_replaced(name: str, value: str, kept: str) -> None:
    live, exchange, again = read({name: value}, 201)
    assert (live.headers[name], exchange.headers[name], again.headers[name]) == (value, kept, kept)


def test_of_more_than_8_kib_the_longest_are_left_out() -> None:
    headers = {f"x-{number}": str(number) * 3000 for number in range(1, 5)} | READ
    _, exchange, again = read(headers)
    assert READ.items() <= dict(again.headers).items()
    assert sum(len(name) + len(value) for name, value in exchange.headers.items()) <= 8192
    assert [name for name in headers if name not in exchange.headers] == ["x-3", "x-4"]
    assert kept_headers({"x-one": "x" * 9000}, Redactor()) == {}


def limited(gateway: Gateway, most: int) -> list[str | None]:
    """What a pipeline reads that looks at the header itself, and what it gets where its client waits."""
    with client(gateway, max_retries=most) as asking:
        try:
            answer = asking.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        except openai.RateLimitError as error:
            return [error.response.headers.get(name) for name in ("retry-after", "retry-after-ms")]
        return [answer.choices[0].message.content]


@pytest.mark.parametrize(
    "wait", [{"retry-after": "2"}, {"retry-after-ms": "2000"}, {"retry-after": "9", "retry-after-ms": "2000"}]
)
def test_the_wait_is_as_it_was_for_who_reads_it_and_spared_for_who_does_not(wait: dict[str, str]) -> None:
    with FakeServer(scripted(error_reply(429, headers=wait), openai_reply("there"))) as server:
        exchanges = stored(recorded(server.url, lambda gateway: limited(gateway, 0)))
    found: list[Any] = []
    replayed(exchanges, lambda gateway: found.append(limited(gateway, 0)))
    assert found == [[wait.get(name) for name in ("retry-after", "retry-after-ms")]]
    with FakeServer(scripted(error_reply(429, headers=wait), openai_reply("there"))) as server:
        exchanges = stored(recorded(server.url, lambda gateway: limited(gateway, 1)))
    begun = time.monotonic()
    replayed(exchanges, lambda gateway: found.append(limited(gateway, 1)))
    assert (found[1:], time.monotonic() - begun < 1.5) == ([["there"]], True)


def test_a_recording_of_the_form_before_is_replayed_without_its_wait() -> None:
    with FakeServer(scripted(error_reply(503, headers={"retry-after": "20"}))) as server:
        (exchange,) = stored(recorded(server.url, post))
    older = from_file(json.loads(exchange.model_dump_json(exclude_unset=True)) | {"version": 2})
    found: list[Any] = []
    replayed([older], lambda gateway: found.append(post(gateway).headers))
    assert [found[0][name] for name in ("retry-after", "retry-after-ms")] == ["0", "1"]
