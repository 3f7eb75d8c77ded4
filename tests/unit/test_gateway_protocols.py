"""The protocols of providers through the gateway, by their own clients: recorded, then replayed byte for byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import anthropic
import httpx
import ollama
import openai
import pytest
from google import genai

from pytest_packbench.engine.gateway.protocols import upstreams_of, usage_of, without_keys
from tests.servers.raw import RawServer, chunked, head
from tests.unit.gateways import KEY, recording, replaying, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TEXT: Any = [{"role": "user", "content": "Zwölf?"}]


def sse(*values: Any, ending: str = "\n\n") -> list[bytes]:
    """Server-sent events; those with a type state it, as Anthropic and OpenAI do."""
    names = [f"event: {value['type']}\n" if isinstance(value, dict) and "type" in value else "" for value in values]
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    return [f"{name}data: {text}{ending}".encode() for name, text in zip(names, texts, strict=True)]


def openai_chunk(text: str, **fields: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices} | fields


OPENAI = [openai_chunk("Zwölf "), openai_chunk("pounds")]
OPENAI_USAGE = openai_chunk("", choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7})
RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "output": [],
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 1},
}
ANTHROPIC = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Zwölf "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "pounds"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
]
OLLAMA = [
    json.dumps(line).encode() + b"\n"
    for line in (
        {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", "content": "Zwölf "}},
        {
            "model": "m",
            "created_at": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", "content": "pounds"},
            "done": True,
            "prompt_eval_count": 5,
            "eval_count": 2,
        },
    )
]


def gemini_part(text: str, **counts: int) -> dict[str, Any]:
    candidates = [{"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}]
    return {"candidates": candidates, "modelVersion": "m", "usageMetadata": counts}


GEMINI = [
    gemini_part("Zwölf ", promptTokenCount=5),
    gemini_part("pounds", promptTokenCount=5, candidatesTokenCount=1, totalTokenCount=7),
]


def stream_openai(**options: Any) -> str:
    with openai.OpenAI() as client:
        stream: Any = client.chat.completions.create(model="m", messages=TEXT, stream=True, **options)
        return "".join(part.choices[0].delta.content for part in stream if part.choices)


def stream_response() -> str:
    with openai.OpenAI() as client:
        return " ".join(event.type for event in client.responses.create(model="m", input="Zwölf?", stream=True))


def stream_anthropic() -> str:
    with (
        anthropic.Anthropic() as client,
        client.messages.stream(model="m", max_tokens=9, messages=TEXT) as stream,
    ):
        return "".join(stream.text_stream)


def stream_ollama() -> str:
    with ollama.Client() as client:
        return "".join(str(part.message.content) for part in client.chat("m", TEXT, stream=True))


def generate_ollama() -> str:
    with ollama.Client() as client:
        return str(client.generate("m", "?").response)


def embed_ollama() -> str:
    with ollama.Client() as client:
        return str(client.embed("m", "a").embeddings)


def stream_gemini() -> str:
    with genai.Client() as client:
        return "".join(str(part.text) for part in client.models.generate_content_stream(model="m", contents="?"))


def ask_gemini() -> str:
    with genai.Client() as client:
        return str(client.models.generate_content(model="m", contents="?").text)


def count_anthropic() -> str:
    with anthropic.Anthropic() as client:
        return str(client.messages.count_tokens(model="m", messages=TEXT).input_tokens)


def embed_openai() -> str:
    with openai.OpenAI() as client:
        return str(client.embeddings.create(model="m", input="a", encoding_format="float").data[0].embedding)


def list_openai() -> str:
    with openai.OpenAI() as client:
        return client.models.list().data[0].id


class Case(NamedTuple):
    """What a client does, the answer of the provider, what the client makes of it, and the tokens that it states."""

    client: Callable[[], str]
    wire: list[bytes]
    expected: str
    usage: tuple[int | None, int | None] | None
    path: str


def whole(value: Any) -> list[bytes]:
    body = json.dumps(value, indent=1).encode()
    return [head("content-type: application/json", f"content-length: {len(body)}"), body]


EVENTS, LINES, ANSWER = "text/event-stream; charset=utf-8", "application/x-ndjson", "Zwölf pounds"
CASES = {
    "openai": Case(stream_openai, chunked(EVENTS, sse(*OPENAI, "[DONE]")), ANSWER, None, "/v1/chat/completions"),
    "openai usage": Case(
        lambda: stream_openai(stream_options={"include_usage": True}),
        chunked(EVENTS, sse(*OPENAI, OPENAI_USAGE, "[DONE]")),
        ANSWER,
        (5, 2),
        "/v1/chat/completions",
    ),
    "openai responses": Case(
        stream_response,
        chunked(EVENTS, sse({"type": "response.completed", "sequence_number": 1, "response": RESPONSE})),
        "response.completed",
        (5, 2),
        "/v1/responses",
    ),
    "openai embeddings": Case(
        embed_openai,
        whole(
            {
                "object": "list",
                "model": "m",
                "data": [{"object": "embedding", "index": 0, "embedding": [0.1, 1e-7]}],
                "usage": {"prompt_tokens": 4, "total_tokens": 4},
            }
        ),
        "[0.1, 1e-07]",
        (4, 0),
        "/v1/embeddings",
    ),
    "openai models": Case(
        list_openai,
        whole({"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x"}]}),
        "m",
        None,
        "/v1/models",
    ),
    "anthropic": Case(stream_anthropic, chunked(EVENTS, sse(*ANTHROPIC)), ANSWER, (5, 2), "/v1/messages"),
    "anthropic count": Case(count_anthropic, whole({"input_tokens": 5}), "5", None, "/v1/messages/count_tokens"),
    "ollama": Case(stream_ollama, chunked(LINES, OLLAMA), ANSWER, (5, 2), "/api/chat"),
    "ollama generate": Case(
        generate_ollama,
        whole({"model": "m", "response": ANSWER, "done": True, "prompt_eval_count": 5, "eval_count": 2}),
        ANSWER,
        (5, 2),
        "/api/generate",
    ),
    "ollama embed": Case(
        embed_ollama,
        whole({"model": "m", "embeddings": [[0.5]], "prompt_eval_count": 1}),
        "[[0.5]]",
        (1, 0),
        "/api/embed",
    ),
    "gemini": Case(
        stream_gemini,
        chunked("text/event-stream", sse(*GEMINI, ending="\r\n\r\n")),
        ANSWER,
        (5, 2),
        "/v1/models/m:streamGenerateContent?alt=sse",
    ),
    "gemini whole": Case(
        ask_gemini,
        whole(GEMINI[1]),
        "pounds",
        (5, 2),
        "/v1/models/m:generateContent",
    ),
}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


def set_variables(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    for name, value in {**dict.fromkeys(KEYS, KEY), **variables}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", CASES)
def test_clients_get_the_same_from_the_provider_and_from_the_recording(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, wire, expected, usage, path = CASES[name]
    provider = name.partition(" ")[0]
    with RawServer(lambda _: wire) as server, recording(server.url) as gateway:
        set_variables(monkeypatch, gateway.environment())
        traffic = gateway.open_case("one")
        with traffic.active():
            assert client() == expected
    assert server.requests[0].split(b" ")[1].decode() == path
    (exchange,) = stored(traffic)
    assert (exchange.provider, exchange.path, exchange.end) == (provider, path, "complete")
    assert KEY not in exchange.model_dump_json()
    counted = (exchange.usage.tokens_input, exchange.usage.tokens_output)
    assert counted == (usage or (None, None))
    assert exchange.is_stream == (b"chunked" in wire[0])
    if exchange.is_stream:
        pieces = b"".join(piece.partition(b"\r\n")[2][:-2] for piece in wire[1:-1])
        assert exchange.content() == pieces
    with replaying() as gateway:
        set_variables(monkeypatch, gateway.environment())
        replayed = gateway.open_case("one", [exchange])
        with replayed.active():
            assert client() == expected
        replayed.finish()
    assert replayed.mismatch == ""
    again = replayed.calls[0].as_exchange()
    assert {**again, "headers": {}} == {**traffic.calls[0].as_exchange(), "headers": {}}


def test_a_key_in_the_query_is_forwarded_and_never_kept() -> None:
    with RawServer(lambda _: whole(GEMINI[1])) as server, recording(server.url) as gateway:
        traffic = gateway.open_case("one")
        with traffic.active():
            path = f"{gateway.url}/gemini/v1beta/models/m:generateContent?key={KEY}&alt=json"
            assert httpx.post(path, json={}, trust_env=False).status_code == 200
    assert f"?key={KEY}&alt=json".encode() in server.requests[0]
    (call,) = traffic.calls
    assert call.path == "/v1beta/models/m:generateContent?alt=json"
    assert KEY not in f"{call} {call.as_exchange()}"
    assert call.model == "m"
    assert without_keys("/x?api-key=1&b=&a=2&access_token=3&max_tokens=4") == "/x?a=2&b=&max_tokens=4"


def test_addresses_before_the_run_are_those_to_which_calls_go() -> None:
    found = upstreams_of(
        {"OPENAI_API_BASE": "https://proxy.test/v1/", "OLLAMA_HOST": "0.0.0.0:11434", "ANTHROPIC_BASE_URL": ""}
    )
    assert found == {
        "openai": "https://proxy.test/v1",
        "anthropic": "https://api.anthropic.com",
        "ollama": "http://127.0.0.1:11434",
        "gemini": "https://generativelanguage.googleapis.com",
    }
    assert upstreams_of({"OLLAMA_HOST": "gpu:80"})["ollama"] == "http://gpu:80"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[",
        b'{"usage": 5}',
        b'{"usage": {"prompt_tokens": true}}',
        b'{"usage": {}}',
        b'{"usage":',
        b"[" * 99999,
    ],
)
def test_tokens_that_an_answer_does_not_state_are_not_known(body: bytes) -> None:
    usage = usage_of("/v1/chat/completions", body)
    assert usage is None or (usage.tokens_input, usage.tokens_output) == (None, None)
