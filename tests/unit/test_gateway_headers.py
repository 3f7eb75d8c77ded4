"""Headers of requests: which decide on an answer, what recordings keep of them, and what a changed one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from pydantic import ValidationError

from pytest_packbench.engine.gateway.exchanges import transcript_of
from pytest_packbench.engine.gateway.protocols import IGNORED, deciding
from pytest_packbench.engine.live_models import AnswerCache
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.redaction import REDACTED, Redactor
from pytest_packbench.model.suite import SuiteConfig
from tests.servers.fake import FakeServer, Received, Reply
from tests.unit.gateways import from_file, recording, replaying, stored

if TYPE_CHECKING:
    from pytest_packbench.engine.gateway import CaseTraffic, Gateway
    from pytest_packbench.model.recording import GatewayExchange

ROWS = yaml.safe_load(Path(__file__).parent.joinpath("data/gateway_headers.yaml").read_text("utf-8"))
CREDENTIALS = [name for names in ROWS["credentials"] for name in names]
BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
OWN_KEY = "authorization_or_api-key"
BETA, KEY = {"anthropic-beta": "good-1"}, "0123456789abcdef0123456789abcdef"


def ask(gateway: Gateway, headers: dict[str, str], *, method: str = "POST", path: str = "chat/completions") -> int:
    body = BODY if method == "POST" else None
    url = f"{gateway.url}/openai/v1/{path}"
    return httpx.request(method, url, json=body, headers=headers, trust_env=False).status_code


def recorded(headers: dict[str, str], *, prompts: bool = True, **how: str) -> GatewayExchange:
    """The exchange of a request with these headers."""
    with (
        FakeServer(lambda _: Reply(body={})) as server,
        recording(server.url) as gateway,
        (traffic := gateway.open_case("one")).active(),
    ):
        assert ask(gateway, headers, **how) == 200
    return stored(traffic, prompts=prompts)[0]


def replayed(exchange: GatewayExchange, headers: dict[str, str], *ignored: str, **how: str) -> CaseTraffic:
    """The calls of a replay with one request."""
    with replaying() as gateway, (traffic := gateway.open_case("one", [exchange])).active():
        traffic.ignored_headers = ignored
        ask(gateway, headers, **how)
    return traffic


@pytest.mark.parametrize(("pattern", "name"), ROWS["ignored"].items())
def test_each_row_of_the_table_leaves_out_a_header(pattern: str, name: str) -> None:
    assert pattern in IGNORED
    assert deciding({name: "a", "x-route": "b"}) == {"x-route": "b"}


def test_the_table_and_its_tests_have_the_same_rows() -> None:
    assert sorted(IGNORED) == sorted(ROWS["ignored"])
    for name in (name for names in ROWS["deciding"] for name in names):
        assert deciding({name: "a"}) == {name: "a"}


def test_what_varies_between_machines_and_tries_replays() -> None:
    # their client needs these as they are
    names = [
        name for name in ROWS["ignored"].values() if name not in {"host", "transfer-encoding", "expect", "upgrade"}
    ]
    names = [name for name in names if name not in {"connection", "content-length", "te", "trailer"}]
    first, second = ({name: f"{name}-{number}" for name in names} for number in (1, 2))
    exchange = recorded(first | BETA | {"content-type": "multipart/x; boundary=abc; version=1"})
    assert replayed(exchange, second | BETA | {"content-type": 'multipart/x; boundary="d e"; version=1'}).mismatch == ""
    assert replayed(exchange, BETA | {"content-type": "multipart/x; version=1"}).mismatch == ""


@pytest.mark.parametrize("prompts", [True, False])
@pytest.mark.parametrize("how", [{}, {"method": "GET", "path": "models"}])
@pytest.mark.parametrize(
    ("now", "names"),
    [
        ({"anthropic-beta": "bad-1"}, "anthropic-beta"),
        ({}, "anthropic-beta"),
        ({"antropic-beta": "good-1"}, "anthropic-beta, antropic-beta"),
        (BETA | {"X-Route": "eu"}, "x-route"),
        (BETA | {"Cookie": "a=1"}, "cookie"),
    ],
)
def test_another_header_is_a_mismatch_that_names_it(
    now: dict[str, str], names: str, how: dict[str, str], *, prompts: bool
) -> None:
    exchange = recorded(BETA, prompts=prompts, **how)
    assert replayed(exchange, BETA, **how).mismatch == ""
    assert "/gateway/0, with other headers (" in replayed(exchange, now, **how).mismatch
    assert f"ignore_headers): {names}; if the pipeline" in replayed(exchange, now, **how).mismatch


@pytest.mark.parametrize(
    ("name", "shown"), [*zip(CREDENTIALS, CREDENTIALS, strict=True), *((name, OWN_KEY) for name in ROWS["keys"])]
)
def test_of_a_credential_only_its_presence_counts(name: str, shown: str) -> None:
    exchange = recorded({name: f"{KEY}-1", "x-client": "a"})
    assert KEY not in exchange.model_dump_json()
    assert canonical_sha256(f"{KEY}-1") not in exchange.model_dump_json()
    assert replayed(exchange, {name: f"{KEY}-2", "x-client": "a"}).mismatch == ""
    mismatch = replayed(exchange, {"x-client": "a"}).mismatch
    assert f"ignore_headers): {shown}; if the pipeline has changed" in Redactor().text(mismatch)


def test_which_header_has_the_key_of_a_provider_depends_on_variables() -> None:
    exchange = recorded({"authorization": f"Bearer {KEY}"})
    assert replayed(exchange, {"x-api-key": "no-key-needed"}).mismatch == ""


def test_known_headers_are_kept_in_words_and_others_as_hashes() -> None:
    headers = {**BETA, "OpenAI-Beta": f"a {KEY}", "X-Route": "eu", "Authorization": f"Bearer {KEY}"}
    exchange = recorded(headers)
    kept = {"anthropic-beta": "good-1", "openai-beta": f"a {REDACTED}", OWN_KEY: REDACTED}
    hashes = {"x-route": f"sha256:{canonical_sha256('eu')}"}
    assert exchange.request_headers == {**kept, **hashes, "content-type": "application/json"}
    assert exchange.version == 2
    without = recorded(headers, prompts=False).request_headers or {}
    assert without.keys() == (exchange.request_headers or {}).keys()
    assert {value[:7] for name, value in without.items() if name != OWN_KEY} == {"sha256:"}


def as_older(exchange: GatewayExchange, body: dict[str, Any]) -> dict[str, Any]:
    """An exchange as it was stated before the headers of requests were."""
    data: dict[str, Any] = exchange.model_dump(mode="json", exclude_unset=True)
    rest = {name: value for name, value in data.items() if name not in {"version", "request_headers"}}
    return {**rest, "request": body}


def test_a_recording_without_headers_replays_whatever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {**BODY, "tools": [{"authorization": KEY}]}
    monkeypatch.setitem(globals(), "BODY", body)
    exchange = from_file(as_older(recorded(BETA), body))
    # of recordings that still contain it
    assert KEY not in str(transcript_of(exchange.model_dump()))
    assert replayed(exchange, {}).mismatch == ""
    changed = replayed(exchange, BETA, path="completions")
    assert "recorded POST /v1/chat/completions, now POST /v1/completions" in changed.mismatch
    assert KEY not in f"{changed.mismatch} {changed.difference}"


@pytest.mark.parametrize("lost", ["version", "request_headers"])
def test_a_recording_that_has_lost_its_headers_is_unreadable(lost: str) -> None:
    data = recorded(BETA).model_dump(mode="json", exclude_unset=True)
    del data[lost]
    with pytest.raises(ValidationError, match="version 2 states request_headers"):
        from_file(data)


def test_ignored_headers_also_of_earlier_recordings() -> None:
    exchange = recorded(BETA | {"x-tenant": "a"})
    assert replayed(exchange, BETA, "X-Tenant").mismatch == ""
    assert replayed(exchange, BETA | {"x-tenant": "b"}, "x-ten*").mismatch == ""
    assert "x-tenant" in replayed(exchange, BETA, "x-other").mismatch


@pytest.mark.parametrize("name", ["X-A: b", "", "ä", "a b", 5])
def test_names_of_ignored_headers_are_checked(name: object) -> None:
    SuiteConfig.model_validate({"pack": "generic", "recording": {"ignore_headers": ["X-Tenant", "x-*"]}})
    with pytest.raises(ValidationError):
        SuiteConfig.model_validate({"pack": "generic", "recording": {"ignore_headers": [name]}})


def test_a_cached_answer_is_that_to_the_same_headers(tmp_path: Path) -> None:
    made: list[Received] = []

    def answer(received: Received) -> Reply:
        made.append(received)
        return Reply(body={})

    with FakeServer(answer) as server:
        for case, beta in enumerate(("a", "a", "b", "b")):
            cache = AnswerCache(tmp_path, {}, Redactor())
            with recording(server.url, cache=cache) as gateway, gateway.open_case(f"case_{case}").active():
                ask(gateway, {"anthropic-beta": beta, "x-request-id": str(case)})
    assert [received.headers["anthropic-beta"] for received in made] == ["a", "b"]
    assert json.loads(made[0].body) == BODY
