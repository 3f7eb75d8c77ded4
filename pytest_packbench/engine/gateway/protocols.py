"""The protocols of model providers: variables of their clients, addresses, headers, paths, usage, and errors.

What clients read, which headers decide on an answer, and how providers count is data here; nothing in this module has
an effect.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from fnmatch import filter as matching
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from pytest_packbench.backends import full_address
from pytest_packbench.backends.client import counts_in
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.redaction import REDACTED, is_secret_name
from pytest_packbench.model.request import Usage

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from pytest_packbench.model.redaction import Redactor


IGNORED = (
    # programs, libraries and their versions
    "user-agent",
    "*-user-agent",
    "x-stainless-*",
    "x-goog-api-client",
    "*-sdk-version",
    "sec-*",
    # tracing
    "traceparent",
    "tracestate",
    "*-trace",
    "*-trace-*",
    "baggage",
    "sentry-*",
    "b3",
    "x-b3-*",
    "x-datadog-*",
    "elastic-apm-*",
    "newrelic",
    "x-newrelic-*",
    "x-instana-*",
    "x-dynatrace*",
    "uber-*",
    "ot-tracer-*",
    "x-ot-span-context",
    "sw8*",
    "*trace-id",
    "*traceid",
    "*span-id",
    # one request, or one try of it
    "*request-id",
    "*correlation-id",
    "*idempotency-key",
    "*-call-id",
    "*-invocation-id",
    "amz-sdk-request",
    "*retry-count",
    "*retry-attempt",
    "*request-start",
    # what a client can read
    "accept*",
    # the connection and the form of the body
    "host",
    "connection",
    "keep-alive",
    "proxy-*",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
    "via",
    "forwarded",
    "x-forwarded-*",
    "content-length",
    "content-md5",
    "*-content-sha256",
    "*timeout",
    "cache-control",
    "pragma",
    # times
    "date",
    "*-date",
    "*-timestamp",
    # who pays, which differs between machines as keys do
    "openai-organization",
    "openai-project",
    "anthropic-workspace-id",
    "x-goog-user-project",
)
"""The headers of a request that do not decide on its answer, lower case; `*` is any text."""
SHOWN = ("anthropic-beta", "anthropic-version", "content-type", "openai-beta")
"""The headers whose values recordings keep in words."""
_DIGEST = "sha256:"
_BOUNDARY = re.compile(r"(?i);\s*boundary=(\"[^\"]*\"|[^;]*)")
# of the same key: which one is sent depends on the variable that is set
_KEYS = re.compile(r"^(authorization|(x-)?(goog-)?api-key)$")


def deciding(headers: Mapping[str, str], ignored: Iterable[str] = ()) -> dict[str, str]:
    """Return the headers of a request that decide on its answer, sorted.

    Args:
        headers: the headers, names in lower case.
        ignored: names of headers that do not, in addition to those that never do.
    """
    left_out = {name for pattern in (*IGNORED, *ignored) for name in matching(headers, pattern.lower())}
    kept = {
        _KEYS.sub("authorization_or_api-key", name): _BOUNDARY.sub("", headers[name])
        for name in headers.keys() - left_out
    }
    return dict(sorted(kept.items()))


def as_recorded(headers: Mapping[str, str], words: Collection[str] = ()) -> dict[str, str]:
    """Return headers with hashes instead of their values, except for those with these names, and for credentials."""
    return {
        name: value if name in words or value.startswith((_DIGEST, REDACTED)) else _DIGEST + canonical_sha256(value)
        for name, value in headers.items()
    }


# those of the connection do not reach the client
_NOT_KEPT = "proxy-* te *cookie* date *-date expires last-modified"
_NAMING = (
    "*-organi[sz]ation* *-org *-org-* *-project *-project-*id *-account* *-tenant* *-team* *-workspace* *-user* "
    "*-customer* *-key-* *-api-base *-host *-ip *-address *via *server x-served-by x-backend* x-cache* forwarded "
    "x-forwarded-* *report-to *reporting-* nel"
)
_PLACE = r"(?<=//)[^\s/?#,;\"'<>]+|\b\d{1,3}(\.\d{1,3}){3}\b|[\w.+-]+@[\w-]+(\.[\w-]+)+"
_QUERY = "(?<=[?#]).*"
_MOST_HEADERS = 8 * 1024


def kept_headers(headers: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """Return the headers of an answer that a recording keeps, without names of organisations, accounts, keys and hosts.

    Args:
        headers: as the client gets them, names in lower case.
        redactor: removes secrets. Of more than 8 KiB, the longest ones are left out.
    """
    left_out, naming = (
        {name for each in names.split() for name in matching(headers, each)} for names in (_NOT_KEPT, _NAMING)
    )
    kept: dict[str, str] = redactor.json(
        {
            name: REDACTED if name in naming else re.sub(_PLACE, REDACTED, value)
            for name, value in headers.items()
            if name not in left_out and not is_secret_name(name)
        }
    )
    for name in matching(kept, "*location"):
        kept[name] = re.sub(_QUERY, REDACTED, kept[name])
    room = _MOST_HEADERS
    for name in sorted(kept, key=lambda name: len(name) + len(kept[name])):
        room -= len(name) + len(kept[name])
        if room < 0:
            del kept[name]
    return kept


PLACEHOLDER_KEY = "no-key-needed"
"""The value of key variables where nothing is forwarded: clients insist on one."""
CHATS = re.compile(
    r".*(/complet(e|ions)|/responses(/compact)?|/v1/messages|/api/chat|/api/generate|:(streamG|g)enerateContent)/?"
)
"""The paths of calls that ask a chat model."""
_NO_TOKENS = re.compile(r".*(/count_tokens|/input_tokens|:countTokens|/moderations|/api/show)$")
_EMBEDDINGS = re.compile(r".*(/embeddings|/api/embed|:(batchE|e)mbedContents?)$")
_UNVERSIONED = re.compile(r"/(chat/completions|completions|embeddings|models|responses)(?=[/?]|$)")
_LOCALHOST = re.compile(r"(?<=[/@])localhost(?=[:/]|$)")
_EVENT = re.compile(rb"(?:^|\n)data:[ ]?([^\r\n]*)")
# of one event; others of the same names are ordinary text
_INDICES = ("output_index", "content_index", "summary_index", "index")
# alike in all events of a stream, or random
_NO_TEXT = re.compile(
    r"(.+_)?id|responseId|object|model|modelVersion|type|role|status|obfuscation|system_fingerprint|created_at"
)
_ERROR_WORDS = (b"error", b"response.failed")
# most events carry text only, and parsing all of them would cost the most
_COUNT_WORDS = (b"sage", b"_count", b'"done"')
_ERROR_EVENT = re.compile(rb"(?:^|\n)event:[ ]?error\r?\n")
_SERVER_ERROR = 500
_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl")


class Provider(NamedTuple):
    """A provider and the clients that speak its protocol.

    Attributes:
        name: the first step of its paths at the gateway.
        variables: the variables that clients read, and what follows the provider's name in their value; the first one
            that is set gives the upstream address.
        address: the provider's own address.
        stripped: the beginning of a path that the upstream address contains already.
        keys: the variables with its key.
        paths: the calls that can be recorded: method, a space, and path, as a regular expression.
    """

    name: str
    variables: dict[str, str]
    address: str
    stripped: str
    keys: tuple[str, ...]
    paths: re.Pattern[str]


_OPENAI_PATHS = (
    r"POST /v1/(chat/completions|completions|embeddings|moderations|images/generations|audio/speech"
    r"|responses(/input_tokens|/compact)?)|(GET|HEAD) /v1/(models(/[^?]+)?|responses/[\w-]+)"
)
PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider(
            name="openai",
            variables={"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1"},
            address="https://api.openai.com/v1",
            stripped="/v1",
            keys=("OPENAI_API_KEY",),
            paths=re.compile(_OPENAI_PATHS),
        ),
        Provider(
            name="anthropic",
            variables={"ANTHROPIC_BASE_URL": "", "ANTHROPIC_API_URL": "", "ANTHROPIC_API_BASE": ""},
            address="https://api.anthropic.com",
            stripped="",
            keys=("ANTHROPIC_API_KEY",),
            paths=re.compile(r"POST /v1/(messages(/count_tokens)?|complete)|(GET|HEAD) /v1/models(/[^?]+)?"),
        ),
        Provider(
            name="ollama",
            variables={"OLLAMA_HOST": "", "OLLAMA_API_BASE": "", "OLLAMA_BASE_URL": ""},
            address="http://127.0.0.1:11434",
            stripped="",
            keys=(),
            paths=re.compile(
                r"POST /api/(chat|generate|embed|embeddings|show)|(GET|HEAD) /(api/(tags|ps|version))?|" + _OPENAI_PATHS
            ),
        ),
        Provider(
            name="gemini",
            variables={"GOOGLE_GEMINI_BASE_URL": ""},
            address="https://generativelanguage.googleapis.com",
            stripped="",
            keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            paths=re.compile(
                r"POST /v1\w*/(models|tunedModels)/[^/:]+:(generateContent|streamGenerateContent|countTokens"
                r"|embedContent|batchEmbedContents)|(GET|HEAD) /v1\w*/models(/[^?]+)?"
            ),
        ),
    )
}
VARIABLES = tuple(name for provider in PROVIDERS.values() for name in (*provider.variables, *provider.keys))
"""The variables that a run sets, in this process or for a child."""


def upstreams_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the address to which each provider's calls are forwarded: that of its variables, else its own."""
    return {
        provider.name: next(iter(_stated(provider, environment).values()), provider.address)
        for provider in PROVIDERS.values()
    }


def conflict_in(environment: Mapping[str, str]) -> str:
    """Return which two variables of one provider lead to different addresses; empty where none do."""
    for provider in PROVIDERS.values():
        found = _stated(provider, environment)
        for first, second in zip(found, list(found)[1:], strict=False):
            one, other = (_LOCALHOST.sub("127.0.0.1", found[name]) for name in (first, second))
            if one != other:
                # never a login, or a key
                values = [f"{name}={without_login(found[name]).partition('?')[0]}" for name in (first, second)]
                return f"{' and '.join(values)} lead to different addresses of {provider.name}; set one of them"
    return ""


def _stated(provider: Provider, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses in a provider's variables."""
    stated = {name: environment[name] for name in provider.variables if environment.get(name)}
    found = {name: full_address(value, provider.name) for name, value in stated.items()}
    if (name := "OLLAMA_BASE_URL") in found:
        # of its OpenAI-compatible calls
        found[name] = found[name].removesuffix("/v1")
    return found


def served_path(provider: str, path: str) -> str:
    """Return the path of a call as the provider knows it: of Ollama's clients, some leave out the version."""
    return f"/v1{path}" if provider == "ollama" and _UNVERSIONED.match(path) else path


def without_login(address: str) -> str:
    """Return an address as it may be shown."""
    return re.sub(r"(?<=://)[^/?#]*@", "", address)


def named_upstreams(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of the providers of which a variable is set: a key, or an address."""
    found = upstreams_of(environment)
    return {
        provider.name: without_login(found[provider.name])
        for provider in PROVIDERS.values()
        if any(environment.get(name) for name in (*provider.variables, *provider.keys))
    }


def variables_for(url: str, *, placeholders: bool, environment: Container[str] = ()) -> dict[str, str]:
    """Return the variables by which clients find the gateway at an address.

    Args:
        url: the gateway's, with its secret and where needed a token.
        placeholders: whether keys are replaced too.
        environment: the variables that are set.
    """
    values: dict[str, str] = {}
    for provider in PROVIDERS.values():
        values |= {name: f"{url}/{provider.name}{ending}" for name, ending in provider.variables.items()}
        if placeholders:
            # a client warns where its provider has two
            keys = [name for name in provider.keys if name in environment] or provider.keys[:1]
            values |= dict.fromkeys(keys, PLACEHOLDER_KEY)
    return values


def without_keys(target: str) -> str:
    """Return a path with its query, without parameters that contain keys; the others sorted."""
    path, question, query = target.partition("?")
    if not question:
        return path
    kept = sorted(pair for pair in parse_qsl(query, keep_blank_values=True) if not is_secret_name(pair[0]))
    return f"{path}?{urlencode(kept)}" if kept else path


def is_allowed(provider: Provider, method: str, path: str) -> bool:
    """Whether a call can be recorded."""
    return provider.paths.fullmatch(f"{method} {path.partition('?')[0]}") is not None


def uses_tokens(method: str, path: str) -> bool:
    """Whether a call makes a model work, unlike a list of models or a count of tokens."""
    return method == "POST" and _NO_TOKENS.fullmatch(path.partition("?")[0]) is None


def model_of(path: str, body: Any) -> str:
    """Return the name of the model that a call asks for; empty where it names none."""
    named = body.get("model") if isinstance(body, dict) else None
    if isinstance(named, str):
        return named
    match = re.search(r"/(?:models|tunedModels)/([^/:?]+)", path)
    return match[1] if match else ""


def is_stream(content_type: str) -> bool:
    """Whether an answer of this type is a stream of events or lines."""
    return content_type.partition(";")[0].strip().lower() in _STREAM_TYPES


def joined_texts(content: bytes) -> dict[str, str]:
    """Return the texts that the events of a stream spell piece by piece, by their place in the events.

    Whatever a provider calls them: text, thoughts, arguments of tools. What is no JSON is joined too.
    """
    pieces: defaultdict[str, list[str]] = defaultdict(list)
    for event in _all_events(content):
        value, start = event, ""
        if isinstance(event, dict):
            # where a provider begins a text that it continues by deltas
            value = {"delta" if name == "content_block" else name: member for name, member in event.items()}
            kind = str(event.get("type", ""))
            indices = [str(event[name]) for name in _INDICES if name in event]
            start = ".".join([*([kind] if "." in kind else []), *indices])
        stack: list[tuple[str, Any]] = [(start, value)]
        while stack:
            place, item = stack.pop()
            if isinstance(item, str):
                pieces[place].append(item)
            elif isinstance(item, dict):
                members = [(f"{place}.{name}", each) for name, each in item.items() if not _NO_TEXT.fullmatch(name)]
                stack += reversed(members)
            elif isinstance(item, list):
                stack += reversed([(f"{place}.{_index_of(each, at)}", each) for at, each in enumerate(item)])
    return {place.lstrip("."): "".join(texts) for place, texts in pieces.items() if len(texts) > 1}


def _index_of(item: Any, position: int) -> int:
    index = item.get("index") if isinstance(item, dict) else None
    return index if isinstance(index, int) else position


def _all_events(content: bytes, words: tuple[bytes, ...] = ()) -> Iterator[Any]:
    """Return the JSON values of a stream, or of a list that was streamed; what is none as text.

    Args:
        content: the answer.
        words: events without any of these may be left out.
    """
    if isinstance(values := _value(content), list | dict):
        yield from values if isinstance(values, list) else [values]
        return
    for line in _EVENT.findall(content) or content.splitlines():
        if words and not any(word in line for word in words):
            continue
        value = _value(line)
        yield line.decode("utf-8", "replace") if value is None else value


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def error_in(content: bytes) -> tuple[int, Any] | None:
    """Return the error by which a provider ended a stream that it had begun, after the status that says the same.

    None where there is none: an answer whose text speaks of errors is no error.
    """
    if not any(word in content for word in _ERROR_WORDS):
        return None
    for event in _all_events(content, _ERROR_WORDS):
        if not isinstance(event, dict):
            continue
        error, kind = event.get("error"), event.get("type")
        if kind == "response.failed":
            inner = event.get("response")
            error = (inner.get("error") if isinstance(inner, dict) else None) or "response.failed"
        elif kind == "error":
            error = error or event
        if error:
            return _status_of(error), error
    return (_SERVER_ERROR, "") if _ERROR_EVENT.search(content) else None


def _status_of(error: Any) -> int:
    code = str(error.get("code")) if isinstance(error, dict) else ""
    return int(code) if re.fullmatch("[45][0-9][0-9]", code) else _SERVER_ERROR


def is_final(stream: bytes) -> bool:
    """Whether a stream contains the event after which clients expect nothing."""
    end = stream[-4000:]
    return b"data: [DONE]" in end or b"message_stop" in end or b'"done":true' in end or b"response.completed" in end


def usage_of(path: str, body: bytes) -> Usage | None:
    """Return the tokens that the provider counted; None where the answer states none.

    Args:
        path: of the request.
        body: the whole answer.
    """
    counts: dict[str, int | None] = {}
    for value in _all_events(body, _COUNT_WORDS):
        found = counts_in(value)
        counts |= {name: number for name, number in found.items() if number is not None}
    if counts and _EMBEDDINGS.fullmatch(path.partition("?")[0]):
        # an embedding has no text
        counts.setdefault("tokens_output", 0)
    return Usage(**counts) if counts else None


def error_body(provider: str, kind: str, message: str) -> bytes:
    """Return the body of an error in which each provider's client finds its own."""
    error = {"message": message, "type": kind, "code": kind, "status": kind, "param": None}
    body = {"error": message} if provider == "ollama" else {"type": "error", "error": error}
    return json.dumps(body).encode()
