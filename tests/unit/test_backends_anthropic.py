"""Anthropic's backend: what only its wire format has."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_packbench.model.request import Usage
from tests.servers.fake import FakeServer, Received, Reply, scripted
from tests.servers.wire import anthropic_reply, error_reply
from tests.unit.backend_calls import (
    LOOK_UP,
    SCHEMA,
    clear_environment,
    complete_once,
    failed_call,
    request,
    use_backend,
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_environment(monkeypatch)


ANSWERED = anthropic_reply(tool_uses=[{"id": "toolu_1", "name": "answer", "arguments": {"code": "1"}}])


def test_where_and_what_is_asked() -> None:
    _answer, server = complete_once("anthropic", scripted(ANSWERED), request(output_schema=SCHEMA), model="")
    (received,) = server.requests
    assert (received.method, received.path) == ("POST", "/v1/messages")
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert received.json() == {
        "model": "claude-sonnet-4-6",
        "max_tokens": 4096,
        "temperature": 0.0,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Which code?"}],
        "tools": [{"name": "answer", "description": "Give the answer.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "answer", "disable_parallel_tool_use": True},
    }


@pytest.mark.parametrize(
    ("text", "details", "words"),
    [
        ("I won't do that.", None, "I won't do that."),
        (None, {"type": "refusal", "category": "bio", "explanation": "Not this."}, "Not this."),
        (None, {"type": "refusal", "category": None, "explanation": None}, "the model declined to answer"),
        (None, None, "the model declined to answer"),
    ],
)
def test_a_refusal(text: str | None, details: dict[str, Any] | None, words: str) -> None:
    reply = anthropic_reply(text, stop_reason="refusal", stop_details=details)
    answer, _server = complete_once("anthropic", scripted(reply), request(output_schema=SCHEMA))
    assert answer.content is None
    assert (answer.refusal or "").startswith(words)
    assert answer.usage == Usage(tokens_input=11, tokens_output=7)


def test_a_full_context_window_is_a_truncated_answer() -> None:
    error = failed_call("anthropic", scripted(anthropic_reply("so", stop_reason="model_context_window_exceeded")))
    assert error.kind == "truncated"


def test_input_counts_with_the_cache() -> None:
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 40,
        "cache_read_input_tokens": 500,
        "output_tokens": 6,
    }
    answer, _server = complete_once("anthropic", scripted(anthropic_reply("hello", usage=usage)))
    assert answer.usage == Usage(tokens_input=543, tokens_output=6)


def test_an_input_that_nobody_can_have_counted_is_none() -> None:
    usage = {"input_tokens": 2**63, "cache_read_input_tokens": 2**63, "output_tokens": 6}
    answer, _server = complete_once("anthropic", scripted(anthropic_reply("hello", usage=usage)))
    assert answer.usage == Usage(tokens_input=None, tokens_output=6)


def test_json_in_words_is_read_too() -> None:
    answer, _server = complete_once(
        "anthropic", scripted(anthropic_reply('{"code": "2"}')), request(output_schema=SCHEMA)
    )
    assert answer.content == {"code": "2"}


def test_thinking_is_no_answer() -> None:
    reply = anthropic_reply("hello")
    reply.body["content"].insert(0, {"type": "thinking", "thinking": "hm", "signature": "x"})
    assert complete_once("anthropic", scripted(reply))[0].content == "hello"


def test_answers_of_several_tools_stand_in_one_message() -> None:
    calls = [{"id": f"t{number}", "name": "look_up", "arguments": {"page": number}} for number in (1, 2)]
    messages = (
        {"role": "user", "content": "Find both"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": "two"},
        {"role": "assistant", "content": "Found."},
        {"role": "user", "content": "Thanks"},
    )
    _answer, server = complete_once(
        "anthropic", scripted(anthropic_reply("bye")), request(messages=messages, tools=(LOOK_UP,))
    )
    assert server.requests[0].json()["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"page": 1}},
                {"type": "tool_use", "id": "t2", "name": "look_up", "input": {"page": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
            ],
        },
        {"role": "assistant", "content": "Found."},
        {"role": "user", "content": "Thanks"},
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("temperature", "`temperature` is deprecated for this model."),
        ("temperature", "temperature: Extra inputs are not permitted"),
        ("tool_choice", "Thinking may not be enabled when tool_choice forces tool use."),
    ],
)
def test_a_model_that_takes_less(name: str, words: str) -> None:
    def handler(received: Received) -> Reply:
        return error_reply(400, words) if name in received.json() else ANSWERED

    async def twice(backend: Any) -> list[Any]:
        answers = [(await backend.complete(request(output_schema=SCHEMA))).content for _ in "ab"]
        return [*answers, backend.temperature]

    with FakeServer(handler) as server:
        *answers, temperature = use_backend("anthropic", server.url, twice)
    assert answers == [{"code": "1"}] * 2
    assert temperature == (None if name == "temperature" else 0.0)
    assert [name in received.json() for received in server.requests] == [True, False, False]


def test_a_temperature_out_of_range_stays_an_error() -> None:
    def handler(received: Received) -> Reply:
        if "temperature" in received.json():
            return error_reply(400, "temperature: range: 0..1")
        return anthropic_reply("hello")

    error = failed_call("anthropic", handler, temperature=1.5)
    assert str(error) == "anthropic: HTTP 400: temperature: range: 0..1"
