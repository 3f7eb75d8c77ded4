"""Each provider's own client gets the same from the provider and from the recording, which states what it must know."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import ollama
import openai
import pytest
import yaml
from google import genai

from pytest_packbench.engine.gateway.protocols import conflict_in, joined_texts, upstreams_of, usage_of, without_keys
from pytest_packbench.engine.live_models import AnswerCache
from pytest_packbench.model.redaction import Redactor
from tests.engine.gateway.gateways import (
    CHAT,
    KEY,
    error_of,
    openai_chunk,
    post,
    question,
    recorded,
    recording,
    replayed,
    sse,
    stored,
)
from tests.servers.raw import CLOSE, RawServer, chunk, chunked, head

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.engine.gateway import Gateway

TEXT: Any = question("Zwölf?")["messages"]
STREAM = "text/event-stream"
DATA = yaml.safe_load(Path(__file__).with_name("data").joinpath("providers.yaml").read_text("utf-8"))


def body_of(row: dict[str, Any], values: list[Any]) -> list[bytes]:
    """The pieces of a body, in the form that a row has."""
    if "events" in row:
        return sse(*values)
    return [json.dumps(values).encode()] if "list" in row else [json.dumps(value).encode() + b"\n" for value in values]


def whole(value: Any, *more: str) -> list[bytes]:
    body = value if isinstance(value, bytes) else json.dumps(value, indent=1).encode()
    return [head("content-type: application/json", f"content-length: {len(body)}", *more), body]


def chat(client: Any, **options: Any) -> str:
    stream = client.chat.completions.create(model="m", messages=TEXT, stream=True, **options)
    return "".join(part.choices[0].delta.content for part in stream if part.choices)


ASK: dict[str, Callable[[Any], Any]] = {
    "openai": chat,
    "openai usage": lambda client: chat(client, stream_options={"include_usage": True}),
    "openai responses": lambda client: next(iter(client.responses.create(model="m", input="?", stream=True))).type,
    "openai embeddings": lambda client: (
        client.embeddings.create(model="m", input="a", encoding_format="float").data[0].embedding
    ),
    "openai models": lambda client: client.models.list().data[0].id,
    "anthropic": lambda client: "".join(
        event.delta.text
        for event in client.messages.create(model="m", max_tokens=9, messages=TEXT, stream=True)
        if event.type == "content_block_delta"
    ),
    "anthropic count": lambda client: client.messages.count_tokens(model="m", messages=TEXT).input_tokens,
    "ollama": lambda client: "".join(part.message.content for part in client.chat("m", TEXT, stream=True)),
    "ollama generate": lambda client: client.generate("m", "?").response,
    "ollama embed": lambda client: client.embed("m", "a").embeddings,
    "gemini": lambda client: "".join(
        part.text for part in client.models.generate_content_stream(model="m", contents="?")
    ),
    "gemini whole": lambda client: client.models.generate_content(model="m", contents="?").text,
}
CLIENTS: dict[str, Any] = {
    "openai": openai.OpenAI,
    "anthropic": anthropic.Anthropic,
    "ollama": ollama.Client,
    "gemini": genai.Client,
}


@pytest.mark.parametrize("name", ASK)
def test_clients_get_the_same_from_the_provider_and_from_the_recording(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, (provider, *_) = DATA["answers"][name], name.split()
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)

    def ask(gateway: Gateway) -> None:
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), KEY)
        for variable, value in (keys | gateway.environment()).items():
            monkeypatch.setenv(variable, value)
        with CLIENTS[provider]() as client:
            assert str(ASK[name](client)) == row["expected"]

    pieces = body_of(row, row.get("events") or row.get("lines") or [])
    kind = f"{STREAM}; charset=utf-8" if "events" in row else "application/x-ndjson"
    with RawServer(lambda _: chunked(kind, pieces) if pieces else whole(row["whole"])) as server:
        traffic = recorded(server.url, ask)
    assert server.requests[0].split(b" ")[1].decode() == row["path"]
    (exchange,) = stored(traffic)
    assert (exchange.provider, exchange.path, exchange.end) == (provider, row["path"], "complete")
    assert KEY not in exchange.model_dump_json()
    assert [exchange.usage.tokens_input, exchange.usage.tokens_output] == row.get("usage", [None, None])
    assert exchange.is_stream == bool(pieces)
    assert not pieces or exchange.content() == b"".join(pieces)
    again = replayed([exchange], ask)
    again.finish()
    assert again.mismatch == ""
    assert {**again.calls[0].as_exchange(), "headers": {}} == {**traffic.calls[0].as_exchange(), "headers": {}}


@pytest.mark.parametrize("row", DATA["pieces"], ids=lambda row: row["place"] or "text")
def test_the_pieces_of_a_text_are_joined(row: dict[str, Any]) -> None:
    event = json.dumps(next(iter(row.values())))
    pieces = [json.loads(event.replace("TEXT", text)) for text in (KEY[:5], KEY[5:])]
    assert KEY in joined_texts(b"".join(body_of(row, pieces)))[row["place"]]


def test_texts_of_several_choices_are_joined_each_for_itself() -> None:
    parts = [(0, "a"), (1, "x"), (0, "b"), (1, "y")]
    chunks = [openai_chunk("", choices=[{"index": index, "delta": {"content": text}}]) for index, text in parts]
    assert joined_texts(b"".join(sse(*chunks))) == {"choices.0.delta.content": "ab", "choices.1.delta.content": "xy"}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}}
    begun = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}}
    assert joined_texts(b"".join(sse(begun, delta))) == {"0.delta.text": "ab"}


DELTAS = sse(openai_chunk("Zwölf ", error=None), openai_chunk('"error": {'), '"error"')
KINDS = {"events": STREAM, "raw": STREAM, "lines": "application/x-ndjson", "list": "application/json"}


@pytest.mark.parametrize("row", DATA["errors"], ids=str)
def test_an_error_in_a_stream_is_that_of_the_call_also_replayed(row: dict[str, Any]) -> None:
    (form, values), texts = next(iter(row.items())), []
    pieces = [values.encode()] if form == "raw" else body_of(row, values)
    pieces = [*DELTAS, *pieces] if KINDS[form] == STREAM else pieces

    def ask(gateway: Gateway) -> None:
        texts.append("".join(post(gateway, {}).text.split()))

    with RawServer(lambda _: chunked(KINDS[form], pieces)) as server:
        traffic = recorded(server.url, ask)
    again = replayed(stored(traffic), ask)
    assert texts[0] == texts[1]
    for each in (traffic, again):
        assert error_of(each).partition(":")[0] == row["kind"]
        assert each.calls[0].succeeded is (not row["kind"])


def test_a_key_in_the_query_is_forwarded_and_never_kept() -> None:
    path = f"/gemini/v1beta/models/m:generateContent?key={KEY}&alt=json"
    with RawServer(lambda _: whole({})) as server:
        (call,) = recorded(server.url, lambda gateway: post(gateway, {}, path)).calls
    assert f"?key={KEY}&alt=json".encode() in server.requests[0]
    assert (call.path, call.model) == ("/v1beta/models/m:generateContent?alt=json", "m")
    assert KEY not in f"{call} {call.as_exchange()}"
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
    for same in (
        {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "http://a/v1/"},
        {"OLLAMA_HOST": "127.0.0.1", "OLLAMA_BASE_URL": "http://localhost:11434/v1"},
        {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "", "ANTHROPIC_BASE_URL": "http://b"},
    ):
        assert conflict_in(same) == ""
    assert conflict_in({"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "http://bob:pw@b/v1?key=1"}) == (
        "OPENAI_BASE_URL=http://a/v1 and OPENAI_API_BASE=http://b/v1 lead to different addresses of openai; "
        "set one of them"
    )


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[", b'{"usage": 5}', b'{"usage": {"prompt_tokens": true}}', b'{"usage": {}}', b'{"usage":'),
        b"[" * 99999,
    ],
)
def test_tokens_that_an_answer_does_not_state_are_not_known(body: bytes) -> None:
    usage = usage_of("/v1/chat/completions", body)
    assert usage is None or (usage.tokens_input, usage.tokens_output) == (None, None)


@pytest.mark.parametrize(("ending", "files"), [("x", 1), (KEY[5:], 0)])
def test_a_stream_that_spells_a_key_is_not_cached(tmp_path: Path, ending: str, files: int) -> None:
    wire = chunked(STREAM, sse(openai_chunk(KEY[:5]), openai_chunk(ending), "[DONE]"))
    cache = AnswerCache(tmp_path, {}, Redactor())
    with RawServer(lambda _: wire) as server:
        for _ in range(2):
            recorded(server.url, lambda gateway: post(gateway, {}), cache=cache)
    assert (len([*tmp_path.rglob("*.json")]), len(server.requests)) == (files, 2 - files)


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
@pytest.mark.parametrize("cut", [False, True])
def test_an_answer_that_is_compressed_unasked_is_searched_counted_and_kept_as_it_reads(
    coding: str, compress: Callable[[bytes], bytes], *, cut: bool
) -> None:
    body = compress(json.dumps(openai_chunk(f"Zwölf {KEY}", usage={"prompt_tokens": 5})).encode())
    header = f"content-encoding: {coding}"
    # by its length, or in pieces of which the first one says nothing
    wire = [head(header, "transfer-encoding: chunked"), *[chunk(body[at : at + 1]) for at in range(len(body) - cut)]]
    found: list[Any] = []
    with RawServer(lambda _: [*wire, CLOSE] if cut else [*wire, b"0\r\n\r\n"]) as server:
        traffic = recorded(server.url, lambda gateway: found.append(post(gateway, {})))
    assert error_of(traffic)[:7] == ("network" if cut else "")
    if not cut:
        with RawServer(lambda _: whole(body, header)) as server:
            recorded(server.url, lambda gateway: found.append(post(gateway, {})))
        assert [answer.json()["choices"][0]["delta"]["content"] for answer in found] == [f"Zwölf {KEY}"] * 2
        assert "content-encoding" not in found[0].headers
        assert traffic.calls[0].usage is not None
        assert Redactor().find(traffic.as_exchanges()[0]["body"])


@pytest.mark.parametrize("coding", ["compress", "gzip, br"])
def test_an_answer_that_nobody_can_search_is_an_error(coding: str) -> None:
    with RawServer(lambda _: whole(b"x", f"content-encoding: {coding}")) as server:
        error = error_of(recorded(server.url, lambda gateway: post(gateway, {})))
    assert error.startswith("network: ")
    assert f"the answer is compressed ({coding}), although this was not asked for" in error


def test_what_can_not_be_decompressed_is_cut() -> None:
    with RawServer(lambda _: whole(b"no gzip", "content-encoding: gzip")) as server:
        assert "the provider broke off its answer" in error_of(recorded(server.url, post))


@pytest.mark.parametrize(
    ("names", "is_secret"),
    [
        (("key", "api_key", "api-key", "apikey", "apiKey", "x-apiKey", "accessToken", "token", "access_token"), True),
        (("id_token", "refreshToken", "clientSecret", "X-Goog-Signature"), True),
        (("page_token", "pageToken", "nextPageToken", "next_page_token", "monkey", "max_tokens"), False),
        (("prompt_cache_key", "keyword", "top_k", "design", "tokenizer"), False),
    ],
)
def test_which_parameters_are_keys(names: tuple[str, ...], *, is_secret: bool) -> None:
    # a value that only its name betrays
    value = "plain-words"
    with RawServer(lambda _: chunked(STREAM, sse("[DONE]"))) as server, recording(server.url) as gateway:
        for name in names:
            body = {"tools": [{name: value}], "schema": {name: {"type": "string"}}, "max": {name: 5}}
            other = {**body, "tools": [{name: "other"}]}
            with (traffic := gateway.open_case("one")).active():
                for asked, text in ((body, value), (body, "other"), (other, value)):
                    post(gateway, asked, f"{CHAT}?{name}={text}")
            assert f'"{name}":"{value}"'.encode() in server.requests[-3]
            assert f"?{name}={value}".encode() in server.requests[-3]
            first, second, third = stored(traffic)
            assert (first.request_sha256 == second.request_sha256) is is_secret
            # what is only called a key may be that of a filter
            is_hidden = is_secret and name != "key"
            assert (first.request_sha256 == third.request_sha256) is is_hidden
            assert first.request == {**body, "tools": [{name: "[redacted]" if is_hidden else value}]}
            assert first.path == f"/v1/chat/completions{'' if is_secret else f'?{name}={value}'}"


def test_a_difference_in_a_redacted_value_is_named_as_such() -> None:
    with RawServer(lambda _: chunked(STREAM, sse("[DONE]"))) as server:
        traffic = recorded(server.url, lambda gateway: post(gateway, f"{KEY}-one"))
    again = replayed(stored(traffic), lambda gateway: post(gateway, f"{KEY}-two"))
    assert "/gateway/0, which differs in what is not shown" in again.mismatch
    assert KEY not in f"{again.mismatch} {again.difference}"
