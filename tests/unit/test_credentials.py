"""Credentials in the bodies of requests: hidden, and no part of what a recorded call is known by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_packbench.engine.gateway.exchanges import RecordedCall
from pytest_packbench.model.redaction import Redactor

ROWS = yaml.safe_load(Path(__file__).parent.joinpath("data/credentials.yaml").read_text("utf-8"))
TOKENS = ("qz7Wm1Tk93LfUv2Hd8Rb", "b5Ns0Xe47PgJy6Ca1Koq")


def call(body: Any, word: str, value: str, redactor: Redactor | None = None) -> RecordedCall:
    text = json.dumps({"model": "m", **body}).replace(word, value)
    return RecordedCall.of("openai", "POST", "/v1/responses", text.encode(), redactor)


@pytest.mark.parametrize("body", ROWS["hidden"], ids=str)
def test_a_credential_is_hidden_and_may_be_another(body: Any) -> None:
    redactor = Redactor()
    first, second = (call(body, "TOKEN", token, redactor) for token in TOKENS)
    assert first.request_sha256 == second.request_sha256
    assert first.request_sha256 != call({}, "", "").request_sha256
    for made, token in zip((first, second), TOKENS, strict=True):
        assert token not in json.dumps(made.as_exchange())
        assert token not in redactor.text(f"the server does not know {token}.")


@pytest.mark.parametrize("body", ROWS["deciding"], ids=str)
def test_what_decides_on_an_answer_stays(body: Any) -> None:
    redactor = Redactor()
    first, second = (call(body, "VALUE", value, redactor) for value in ("region", "country"))
    assert first.request_sha256 != second.request_sha256
    assert redactor.text("region, country") == "region, country"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"auth": "interactive"}, "interactive"),
        ({"headers": {"X-Region": "eu-west-1"}}, "eu-west-1"),
        ({"headers": {"Accept": "application/vnd.acme.v2"}}, "application/vnd.acme.v2"),
        ({"api_key": "no-key-needed"}, "no-key-needed"),
    ],
)
def test_ordinary_words_are_not_hidden_elsewhere(body: dict[str, Any], text: str) -> None:
    redactor = Redactor()
    call(body, "", "", redactor)
    assert redactor.text(text) == text


@pytest.mark.parametrize(("value", "shown"), [(5, 5), (None, None), (True, True), ("", "")])
def test_what_is_no_text_stays(value: object, shown: object) -> None:
    assert call({"token": value}, "~", "~").shown_body() == {"model": "m", "token": shown}


def test_a_passphrase_is_hidden_where_a_provider_repeats_it() -> None:
    redactor = Redactor()
    call({"password": "correct horse battery staple"}, "", "", redactor)
    assert "horse" not in redactor.text("401: the password correct horse battery staple is wrong")


def test_a_member_that_is_there_twice_is_another_request() -> None:
    bodies = (b'{"model": "a", "model": "m"}', b'{"model": "b", "model": "m"}')
    calls = [RecordedCall.of("openai", "POST", "/v1/responses", body, Redactor()) for body in bodies]
    assert len({each.request_sha256 for each in calls}) == 2


@pytest.mark.parametrize(
    ("path", "asks"),
    [
        ("/v1/chat/completions", True),
        ("/v1/chat/completions/", True),
        ("/v1/complete", True),
        ("/v1/responses/compact", True),
        ("/v1beta/models/m:generateContent", True),
        ("/v1/embeddings", False),
        ("/v1/responses/resp_1/input_items", False),
    ],
)
def test_the_calls_that_ask_a_chat_model(path: str, asks: bool) -> None:
    assert RecordedCall.of("openai", "POST", path, b"{}", Redactor()).asks_chat_model is asks
