"""Answers that say in pieces, or in the middle, what a recording must know."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pytest_packbench.engine.gateway.protocols import joined_texts
from pytest_packbench.engine.live_models import AnswerCache
from pytest_packbench.model.redaction import Redactor
from tests.servers.raw import RawServer, chunked, head
from tests.unit.gateways import KEY, recording, replaying, stored
from tests.unit.test_gateway_protocols import gemini_part, openai_chunk, sse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.gateway import Gateway

STREAM = "text/event-stream"


def tool_chunk(text: str) -> dict[str, Any]:
    call = {"index": 1, "function": {"arguments": text}}
    return openai_chunk("", choices=[{"index": 0, "delta": {"tool_calls": [call]}}])


def response_delta(text: str) -> dict[str, Any]:
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    return {"type": "response.output_text.delta", **place, "delta": text, "obfuscation": "x"}


def anthropic_delta(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {"type": "content_block_delta", "index": 0, "delta": {"type": f"{name}_delta", name: text}}


def ollama_lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def events(values: list[Any]) -> bytes:
    return b"".join(sse(*values))


@pytest.mark.parametrize(
    ("event", "write", "place"),
    [
        (openai_chunk, events, "choices.0.delta.content"),
        (tool_chunk, events, "choices.0.delta.tool_calls.1.function.arguments"),
        (response_delta, events, "response.output_text.delta.0.0.delta"),
        (anthropic_delta("text"), events, "0.delta.text"),
        (anthropic_delta("partial_json"), events, "0.delta.partial_json"),
        (lambda text: {"message": {"content": text}}, ollama_lines, "message.content"),
        (lambda text: {"response": text}, ollama_lines, "response"),
        (gemini_part, events, "candidates.0.content.parts.0.text"),
        (gemini_part, lambda values: json.dumps(values).encode(), "candidates.0.content.parts.0.text"),
        (lambda text: text, events, ""),
    ],
)
def test_the_pieces_of_a_text_are_joined(
    event: Callable[[str], Any], write: Callable[[list[Any]], bytes], place: str
) -> None:
    assert KEY in joined_texts(write([event(KEY[:5]), event(KEY[5:])]))[place]


def test_texts_of_several_choices_are_joined_each_for_itself() -> None:
    def choice(index: int, text: str) -> dict[str, Any]:
        return openai_chunk("", choices=[{"index": index, "delta": {"content": text}}])

    found = joined_texts(events([choice(0, "a"), choice(1, "x"), choice(0, "b"), choice(1, "y")]))
    assert found == {"choices.0.delta.content": "ab", "choices.1.delta.content": "xy"}
    begun = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}}
    assert joined_texts(events([begun, anthropic_delta("text")("b")])) == {"0.delta.text": "ab"}


@pytest.mark.parametrize(("ending", "files"), [("x", 1), (KEY[5:], 0)])
def test_a_stream_that_spells_a_key_is_not_cached(tmp_path: Path, ending: str, files: int) -> None:
    wire = chunked(STREAM, sse(openai_chunk(KEY[:5]), openai_chunk(ending), "[DONE]"))
    cache = AnswerCache(tmp_path, {}, Redactor())
    with RawServer(lambda _: wire) as server, recording(server.url, cache=cache) as gateway:
        for case in ("one", "two"):
            with gateway.open_case(case).active():
                ask_streaming(gateway)
    assert (len([*tmp_path.rglob("*.json")]), len(server.requests)) == (files, 2 - files)


BUSY = {"type": "overloaded_error", "message": "busy"}
DELTAS = sse(openai_chunk("Zwölf ", error=None), openai_chunk('"error": {'), '"error"')


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (sse({"error": {"message": "busy", "code": None}}), "server_error"),
        (sse({"error": {"message": "busy", "code": "rate_limit_exceeded"}}), "server_error"),
        (sse({"error": {"message": "busy", "code": 503, "status": "UNAVAILABLE"}}), "overloaded"),
        (sse({"type": "error", "error": BUSY}), "server_error"),
        (sse({"type": "error", "code": "server_error", "message": "busy"}), "server_error"),
        (sse({"type": "response.failed", "response": {"error": {"message": "busy"}}}), "server_error"),
        ([b"event: error\ndata: busy\n\n"], "server_error"),
    ],
)
def test_an_error_in_a_stream_is_that_of_the_call_also_replayed(ending: list[bytes], kind: str) -> None:
    check_error(chunked(STREAM, [*DELTAS, *ending]), kind)


def test_an_error_in_lines_or_in_a_list() -> None:
    check_error(chunked("application/x-ndjson", [ollama_lines([{"response": "a"}, {"error": "busy"}])]), "server_error")
    body = json.dumps([gemini_part("a"), {"error": {"code": 503, "message": "busy"}}]).encode()
    check_error(chunked("application/json", [body]), "overloaded")


def test_a_compressed_answer_is_an_error_as_nobody_can_search_it() -> None:
    data = gzip.compress(json.dumps(openai_chunk("Zwölf")).encode())
    wire = [head("content-type: application/json", "content-encoding: gzip", f"content-length: {len(data)}")]
    with (
        RawServer(lambda _: [*wire, data]) as server,
        recording(server.url) as gateway,
        (traffic := gateway.open_case("one")).active(),
    ):
        ask_streaming(gateway)
    error = traffic.unrecovered_error()
    assert error is not None
    assert error.kind == "network"
    assert "the answer is compressed (gzip), although this was not asked for" in str(error)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *(
            (name, True)
            for name in ("key", "api_key", "api-key", "apikey", "apiKey", "x-apiKey", "accessToken", "token")
        ),
        *((name, True) for name in ("access_token", "id_token", "refreshToken", "clientSecret", "X-Goog-Signature")),
        *((name, False) for name in ("page_token", "pageToken", "nextPageToken", "next_page_token", "monkey")),
        *((name, False) for name in ("max_tokens", "prompt_cache_key", "keyword", "top_k", "design", "tokenizer")),
    ],
)
def test_which_parameters_are_keys(name: str, *, is_secret: bool) -> None:
    # a value that only its name betrays
    value = "plain-words"
    body = {"tools": [{name: value}], "schema": {name: {"type": "string"}}, "max": {name: 5}}
    with RawServer(lambda _: chunked(STREAM, sse("[DONE]"))) as server, recording(server.url) as gateway:
        with (traffic := gateway.open_case("one")).active():
            url = f"{gateway.url}/openai/v1/chat/completions"
            for text in (value, "other"):
                httpx.post(f"{url}?{name}={text}", json=body, trust_env=False)
            httpx.post(f"{url}?{name}={value}", json={**body, "tools": [{name: "other"}]}, trust_env=False)
        assert f'"{name}":"{value}"'.encode() in server.requests[0].replace(b'": "', b'":"')
        assert f"?{name}={value}".encode() in server.requests[0]
    first, second, third = stored(traffic)
    assert (value in first.path) is not is_secret
    assert (first.request_sha256 == second.request_sha256) is is_secret
    # what is only called a key may be that of a filter
    is_hidden = is_secret and name != "key"
    assert (first.request_sha256 == third.request_sha256) is is_hidden
    assert first.request == {**body, "tools": [{name: "[redacted]" if is_hidden else value}]}
    assert first.path == ("/v1/chat/completions" if is_secret else f"/v1/chat/completions?{name}={value}")


def test_a_difference_in_a_redacted_value_is_named_as_such() -> None:
    with (
        RawServer(lambda _: chunked(STREAM, sse("[DONE]"))) as server,
        recording(server.url) as gateway,
        (traffic := gateway.open_case("one")).active(),
    ):
        ask_streaming(gateway, prompt=f"{KEY}-one")
    with replaying() as gateway, (replayed := gateway.open_case("one", stored(traffic))).active():
        ask_streaming(gateway, prompt=f"{KEY}-two")
    assert "/gateway/0, which differs in what is not shown" in replayed.mismatch
    assert KEY not in f"{replayed.mismatch} {replayed.difference}"


def check_error(wire: list[bytes], kind: str) -> None:
    with RawServer(lambda _: wire) as server, recording(server.url) as gateway:
        with (traffic := gateway.open_case("one")).active():
            text = ask_streaming(gateway)
        with (other := gateway.open_case("two")).active():
            wire = chunked(STREAM, [*DELTAS, *sse("[DONE]")])
            ask_streaming(gateway)
        assert other.unrecovered_error() is None
    with replaying() as gateway, (replayed := gateway.open_case("one", stored(traffic))).active():
        assert "".join(ask_streaming(gateway).split()) == "".join(text.split())
    for each in (traffic, replayed):
        error = each.unrecovered_error()
        assert error is not None
        assert error.kind == kind
        assert not each.calls[0].succeeded


def ask_streaming(gateway: Gateway, **body: str) -> str:
    return httpx.post(f"{gateway.url}/openai/v1/chat/completions", json=body, trust_env=False).text
