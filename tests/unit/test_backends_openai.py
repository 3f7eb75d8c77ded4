"""OpenAI's backend: what only its wire format has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_packbench.backends.answers import fits_strict
from pytest_packbench.model.request import Usage
from tests.servers.fake import FakeServer, Received, Reply, scripted
from tests.servers.wire import error_reply, openai_reply
from tests.unit.backend_calls import SCHEMA, clear_environment, complete_once, failed_call, request, use_backend


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_environment(monkeypatch)


def test_where_and_what_is_asked() -> None:
    _answer, server = complete_once("openai", scripted(openai_reply('{"code": "1"}')), request(output_schema=SCHEMA))
    (received,) = server.requests
    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    body = received.json()
    assert body.pop("messages")[0] == {"role": "system", "content": "Be brief."}
    assert body == {
        "model": "some-model",
        "temperature": 0.0,
        "max_tokens": 4096,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": False},
        },
    }


def test_a_refusal() -> None:
    answer, _server = complete_once("openai", scripted(openai_reply(refusal="I can't help with that.")), request())
    assert (answer.content, answer.refusal) == (None, "I can't help with that.")
    assert answer.usage == Usage(tokens_input=11, tokens_output=7)


@pytest.mark.parametrize(
    ("content", "words"), [(None, "the provider's content filter withheld the answer"), ("I", "I")]
)
def test_a_content_filter_is_a_refusal(content: str | None, words: str) -> None:
    reply = openai_reply(content, finish_reason="content_filter")
    answer, _server = complete_once("openai", scripted(reply), request(output_schema=SCHEMA))
    assert (answer.content, answer.refusal) == (None, words)


@pytest.mark.parametrize("arguments", ["[1]", "{page: 3}", "NaN"])
def test_arguments_of_a_tool_that_are_none(arguments: str) -> None:
    reply = openai_reply(None, tool_calls=[{"id": "1", "name": "look_up", "arguments": {}}])
    reply.body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    error = failed_call("openai", scripted(reply))
    assert (error.kind, error.usage) == ("answer_unreadable", Usage(tokens_input=11, tokens_output=7))


@pytest.mark.parametrize("number", [-1, "7", 1.5, True, None, 2**64, pytest.param(10**4200, id="huge")])
def test_a_count_that_is_none(number: Any) -> None:
    reply = openai_reply("hello", usage=(3, 4))
    reply.body["usage"]["prompt_tokens"] = number
    answer, _server = complete_once("openai", scripted(reply))
    assert answer.usage == Usage(tokens_input=None, tokens_output=4)


def test_a_text_of_no_words_is_an_answer_and_none_is_not() -> None:
    assert complete_once("openai", scripted(openai_reply("")))[0].content == ""
    assert failed_call("openai", scripted(openai_reply(None))).kind == "answer_unreadable"


def strict_server(*refused: str, words: str) -> Any:
    """A server that refuses parameters by name."""

    def handler(received: Received) -> Reply:
        for name in refused:
            if name in received.json():
                return error_reply(400, words.format(name))
        return openai_reply("hello")

    return handler


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported value: '{}' does not support 0 with this model. Only the default (1) value is supported.",
        "Unsupported parameter: '{}' is not supported with this model.",
        "Unrecognized request argument supplied: {}",
        "`{}` is deprecated for this model.",
        "{}: Extra inputs are not permitted",
    ],
)
def test_a_model_that_takes_no_temperature(words: str) -> None:
    async def twice(backend: Any) -> list[Any]:
        before = backend.temperature
        return [before, *[(await backend.complete(request())).content for _ in "ab"], backend.temperature]

    with FakeServer(strict_server("temperature", words=words)) as server:
        assert use_backend("openai", server.url, twice) == [0.0, "hello", "hello", None]
    assert ["temperature" in received.json() for received in server.requests] == [True, False, False]


def test_a_model_that_takes_the_other_limit() -> None:
    words = "Unsupported parameter: '{}' is not supported with this model. Use 'max_completion_tokens' instead."
    _answer, server = complete_once("openai", strict_server("max_tokens", words=words), max_output_tokens=77)
    assert [json.loads(received.body).get("max_completion_tokens") for received in server.requests] == [None, 77]


def test_a_value_that_is_out_of_range_stays_an_error() -> None:
    words = "{} is too large: 99999. This model supports at most 4096 completion tokens."
    error = failed_call("openai", strict_server("max_tokens", words=words))
    assert words.format("max_tokens") in str(error)


def test_a_parameter_is_never_dropped_for_good_by_a_call_that_fails_all_the_same() -> None:
    def handler(received: Received) -> Reply:
        echo = "not allowed: temperature" if "Which" in received.body.decode() else ""
        return error_reply(400, echo) if echo else openai_reply("hello")

    async def use(backend: Any) -> float | None:
        with pytest.raises(RuntimeError, match="not allowed"):
            await backend.complete(request())
        await backend.complete(request("Another"))
        temperature: float | None = backend.temperature
        return temperature

    with FakeServer(handler) as server:
        assert use_backend("openai", server.url, use) == 0.0
    assert server.requests[-1].json()["temperature"] == 0.0


CLOSED = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"A": {"type": "array", "items": {"type": "string", "enum": ["x"]}}},
}


def test_strict_only_where_the_schema_allows_it() -> None:
    assert fits_strict(CLOSED)
    spoils: tuple[dict[str, Any], ...] = (
        {"required": ["a"]},
        {"additionalProperties": True},
        {"$defs": {"A": {"type": "string", "default": "x"}}},
        {"$defs": {"A": {"type": "object", "properties": {}}}},
        {"$defs": {"A": {"type": "array", "items": {"type": "string", "minLength": 1}}}},
        {"allOf": []},
    )
    for spoil in spoils:
        assert not fits_strict(CLOSED | spoil), spoil


def test_strict_is_asked_for() -> None:
    _answer, server = complete_once("openai", scripted(openai_reply("{}")), request(output_schema=CLOSED))
    assert server.requests[0].json()["response_format"]["json_schema"]["strict"] is True


@pytest.mark.parametrize("content", ['{"code": NaN}', "[" * 100_000])
def test_json_that_could_not_be_written_again_is_none(content: str) -> None:
    error = failed_call("openai", scripted(openai_reply(content)), request(output_schema=SCHEMA))
    assert (error.kind, error.usage) == ("answer_unreadable", Usage(tokens_input=11, tokens_output=7))
