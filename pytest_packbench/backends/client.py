"""What the built-in backends share: an HTTP client, requests that are repeated, answers, errors without secrets."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pytest_packbench.backends import BackendError, BackendOptions, BackendUnusable, full_address, original
from pytest_packbench.files import NUMBERS
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import AnswerProblem, ModelAnswer, ModelRequest, ToolCall, Usage, count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    import httpx2


T = TypeVar("T")
WRAPPED = "value"
"""The property that contains the answer where the schema does not describe an object."""
_EXCERPT = 80
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas"
_STRICT_KEYWORDS = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items", "properties"),
        *("required", "title", "type", "format", "pattern", "multipleOf", "maximum", "minimum", "maxItems", "minItems"),
        *("exclusiveMaximum", "exclusiveMinimum"),
    }
)


class UnreadableResponse(ValueError):  # noqa: N818 - becomes a BackendError
    """A response that is none of the provider's API, so that it contains no answer; the message says why."""


class UnreadableAnswer(UnreadableResponse):
    """An answer of the model that does not have the requested form; the message says why.

    Attributes:
        text: what the model said.
        calls: the tool calls in it that can be read.
    """

    def __init__(self, message: str, text: str = "", calls: tuple[ToolCall, ...] = ()) -> None:
        self.text = text
        self.calls = calls
        super().__init__(message)


def parse_json_text(text: str) -> Any:
    """Parse what a model wrote as JSON, or the response that contains it.

    Raises:
        UnreadableAnswer: it is no JSON, or JSON that can't be written again (1e400, NaN, nested too deeply).
    """
    try:
        return json.loads(text, **NUMBERS)
    except (ValueError, RecursionError) as error:
        line = " ".join(text.split())
        excerpt = f"{line[:_EXCERPT]}..." if len(line) > _EXCERPT else line
        raise UnreadableAnswer(f"expected JSON ({error}); got {excerpt!r}", text) from None


def is_whole_answer(text: str, request: ModelRequest) -> bool:
    """Whether an answer that was cut off is complete: the JSON object or array that was requested.

    A number or a word may continue, and so may the arguments of tools and any other text.
    """
    if request.output_schema is None or request.tools:
        return False
    try:
        return isinstance(parse_json_text(text), dict | list)
    except UnreadableAnswer:
        return False


def member(value: Any, name: str, kind: type[T]) -> T:
    """Return the member of an object in a response; an empty value of its type where it is null or absent.

    Raises:
        UnreadableResponse: the value is no object, or the member has another type.
    """
    if not isinstance(value, dict):
        raise UnreadableResponse(f"expected an object with {name!r}, got {type(value).__name__}")
    item = value.get(name)
    if item is None:
        return kind()
    if not isinstance(item, kind):
        raise UnreadableResponse(f"expected {name!r} to be {kind.__name__}, got {type(item).__name__}")
    return item


def arguments(value: Any, tool: str) -> dict[str, Any]:
    """Parse the arguments of a tool call: an object, or its JSON text; an empty text or null is no arguments.

    Raises:
        UnreadableAnswer: they are neither, or the tool has no name.
    """
    if not tool:
        raise UnreadableAnswer("expected the name of a tool")
    parsed = parse_json_text(value or "null") if isinstance(value, str) else value
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        wrong = f"expected an object as the arguments of the tool {tool!r}, got {type(parsed).__name__}"
        raise UnreadableAnswer(wrong, value if isinstance(value, str) else json.dumps(value))
    return parsed


def tool_calls(calls: Iterable[Any], read: Callable[[Any], ToolCall]) -> tuple[ToolCall, ...]:
    """Return the tool calls of an answer, each as `read` returns it.

    Raises:
        UnreadableAnswer: one of them can't be read; it has the others.
        UnreadableResponse: none of them is one of the provider's API.
    """
    found: list[ToolCall] = []
    problem: ValueError | None = None
    for call in calls:
        try:
            found.append(read(call))
        except UnreadableResponse as error:
            problem = problem or error
    if problem is None:
        return tuple(found)
    raise UnreadableAnswer(str(problem), getattr(problem, "text", ""), tuple(found)) if found else problem


def counts_in(value: Any) -> dict[str, int | None]:
    """Return the tokens that a provider counted in a response or an event of one, as keywords of `Usage`.

    OpenAI's input tokens include cached ones, and its output tokens include reasoning.
    """
    if not isinstance(value, dict):
        return {}
    inner = value.get("response") or value.get("message")
    if isinstance(inner, dict) and isinstance(inner.get("usage"), dict):
        counts = _counts_of_usage(inner["usage"])
        # a provisional count
        return {**counts, "tokens_output": None} if value.get("type") == "message_start" else counts
    if isinstance(usage := value.get("usage"), dict):
        return _counts_of_usage(usage)
    if isinstance(usage := value.get("usageMetadata"), dict):
        return _counts_of_metadata(usage)
    if "prompt_eval_count" in value or "eval_count" in value:
        given, written = count(value.get("prompt_eval_count")), count(value.get("eval_count"))
        return {"tokens_input": given, "tokens_output": written}
    return {}


def _counts_of_usage(usage: dict[str, Any]) -> dict[str, int | None]:
    """Return the counts of OpenAI, or of Anthropic, whose input count leaves out tokens of its cache."""
    if not usage.keys() & {"prompt_tokens", "completion_tokens"}:
        inputs = [number for name in _INPUTS if (number := count(usage.get(name))) is not None]
        return {
            "tokens_input": count(sum(inputs)) if inputs else None,
            "tokens_output": count(usage.get("output_tokens")),
        }
    given, written = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    total = count(usage.get("total_tokens"))
    if written is None and given is not None and total is not None:
        written = count(total - given)
    return {"tokens_input": given, "tokens_output": written}


def _counts_of_metadata(usage: dict[str, Any]) -> dict[str, int | None]:
    """Return the counts of Gemini, whose total contains reasoning, which its count of the answer leaves out."""
    given, written = count(usage.get("promptTokenCount")), count(usage.get("candidatesTokenCount"))
    if given is not None:
        given += count(usage.get("toolUsePromptTokenCount")) or 0
        if (total := count(usage.get("totalTokenCount"))) is not None:
            written = count(total - given)
    return {"tokens_input": given, "tokens_output": written}


def as_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that describes an object, as tool arguments and strict answers require.

    The schema of anything else becomes that of the property `WRAPPED`.
    """
    if schema.get("type") == "object":
        return schema
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], "additionalProperties": False}
    return outer | {"$defs": schema["$defs"]} if "$defs" in schema else outer


def unwrap(answer: Any, schema: dict[str, Any]) -> Any:
    """Return the answer to `schema` from an answer to `as_object(schema)`."""
    if schema.get("type") == "object" or not isinstance(answer, dict) or answer.keys() != {WRAPPED}:
        return answer
    return answer[WRAPPED]


def fits_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode accepts a schema: every object closed, all its properties required."""
    if not isinstance(schema, dict) or not schema.keys() <= _STRICT_KEYWORDS:
        return False
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or properties:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != properties.keys():
            return False
    children = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    if "items" in schema:
        children.append(schema["items"])
    return all(fits_strict(child) for child in children)


OVERLOADED = frozenset({429, 503, 529})
"""HTTP statuses by which a server reports overload."""
_KINDS = {401: "auth", 403: "auth", 408: "timeout", 429: "rate_limit", 503: "overloaded", 529: "overloaded"}


@dataclass(frozen=True, slots=True)
class ErrorFactory:
    """Creates the errors of one backend.

    Attributes:
        name: the backend.
        redactor: removes secrets from messages.
    """

    name: str
    redactor: Redactor

    def of_status(self, status: int, body: str, label: str = "") -> BackendError:
        """Return the error of an HTTP response that reports a failure, with the message in its body.

        Args:
            status: its status.
            body: its body.
            label: what reports the failure, where it is no response; empty for the status.
        """
        if status < HTTPStatus.BAD_REQUEST and status != HTTPStatus.NOT_MODIFIED:
            body = "a redirect, which is not followed; set the address to which it leads"
        default = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bad_request"
        return self.error(_KINDS.get(status, default), label or f"HTTP {status}", error_message(body))

    def of_stream(self, status: int, error: object) -> BackendError:
        """Return the error in a stream; `status` is that of an HTTP response that would say the same."""
        return self.of_status(status, json.dumps({"error": error}), "an error in the stream")

    def error(self, kind: str, text: str, cause: str = "", usage: Usage | None = None) -> BackendError:
        """Return an error with the cause in the words of a server or a library."""
        cause = self.redactor.excerpt(cause)
        return BackendError(kind, f"{self.name}: {text}{': ' if text and cause else ''}{cause}", usage=usage)


def error_message(body: str) -> str:
    """Return the message in the body of an error response; the whole body where it has another form."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for key in ("error", "message"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    return value if isinstance(value, str) else body


_CONNECT_S = 10.0
_FIRST_NO_SUCCESS = 300
_RETRIED = frozenset({"timeout", "network", "rate_limit", "overloaded", "server_error"})
_FIRST_DELAY_S, _MAX_DELAY_S, _MAX_RETRY_AFTER_S = 0.5, 8.0, 120.0
# the parameter itself is refused, not its value: a value out of range is the user's mistake and stays an error
_REFUSED_PARAMETER = re.compile(
    r"(?i)\b(unsupported|not support(ed)?|n't support|deprecated|not permitted|not allowed|may not|not compatible|"
    r"unknown|unrecognized|unexpected|only the default)\b"
)
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FRAMING = frozenset({"connection", "content-length", "transfer-encoding"})


class Said(NamedTuple):
    """What a model said, as its provider sent it.

    Attributes:
        text: its text; None where the response has none.
        calls: the tool calls that it requested, in the provider's form.
        refusal: its words if it declined to answer.
        is_cut: whether it was cut off at its limit.
    """

    text: str | None
    calls: Sequence[Any] = ()
    refusal: str = ""
    is_cut: bool = False


class HttpBackend(ABC):
    """A backend that sends requests over HTTP, again after temporary failures; subclasses write and read their bodies.

    Args:
        options: how requests are sent.
        url: the server's address.
        label: what errors call the backend; empty for its name.
        client_options: further options of the HTTP clients.

    Attributes:
        name: the backend's name.
        extra: the extra of this package that the backend needs.
        model: the model's name.
        default_model: the model's name where none is set; empty: one has to be set.
        continues_texts: whether it can send a text as it is (`ModelRequest.raw`).
        refusals: statuses of responses that it reads itself; any other from 300 is an error.

    Raises:
        BackendUnusable: no client can be created.
    """

    name: ClassVar[str]
    extra: ClassVar[str]
    default_model: ClassVar[str] = ""
    continues_texts: ClassVar[bool] = False
    refusals: ClassVar[frozenset[int]] = frozenset()

    def __init__(self, options: BackendOptions, url: str, *, label: str = "", **client_options: Any) -> None:
        http = _http_library(self.name, self.extra)
        if not (options.model or self.default_model):
            raise BackendUnusable(f"the backend {self.name} has no default model: set --packbench-model")
        self.model = options.model or self.default_model
        self._url = check_url(url, name=self.name)
        self._http = http
        self._options = options
        self._errors = ErrorFactory(label or self.name, options.redactor or Redactor(os.environ))
        most = options.connections
        limits = http.Limits(max_connections=most, max_keepalive_connections=most)
        # further calls wait for a connection as long as it takes
        timeout = http.Timeout(options.timeout_s, connect=min(_CONNECT_S, options.timeout_s), pool=None)
        try:
            # the client parses it at each call
            http.URL(self._url)
            self._client = http.AsyncClient(timeout=timeout, limits=limits, **client_options)
        except (ValueError, TypeError, OSError, ImportError, http.InvalidURL) as error:
            reason = self._errors.redactor.excerpt(str(error))
            raise BackendUnusable(f"the backend {self._errors.name} can't be opened: {reason}") from None

    @property
    def temperature(self) -> float | None:
        """The temperature of requests; None where the model accepts none."""
        return self._options.temperature

    def limit_of(self, request: ModelRequest) -> int:
        """Return the limit of an answer, in tokens."""
        return request.max_output_tokens or self._options.max_output_tokens

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; an answer that can't be read has a problem.

        Raises:
            BackendError: the call failed.
        """
        usage = None
        if request.raw and not self.continues_texts:
            text = "it can't send a text without a chat template; use the backend openai"
            raise self._errors.error("bad_request", text)
        try:
            data = await self._ask(request)
            usage = Usage(**counts_in(data))
            return self._answer(data, request, usage)
        except UnreadableResponse as error:
            # what is no JSON has no answer either
            if usage is None or not isinstance(error, UnreadableAnswer):
                raise self._errors.error("response_unreadable", "", str(error), usage) from None
            problem = self._problem("answer_unreadable", "", str(error))
            return ModelAnswer(content=error.text, usage=usage, tool_calls=error.calls, problem=problem)

    def _problem(self, kind: str, text: str, cause: str) -> AnswerProblem:
        return AnswerProblem(kind, f"{self._errors.name}: {text}{self._errors.redactor.excerpt(cause)}")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    @abstractmethod
    async def _ask(self, request: ModelRequest) -> Any:
        """Return the server's response; raises `UnreadableResponse`, or `BackendError` where none came."""

    @abstractmethod
    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        """Return the answer in a response.

        Raises:
            UnreadableResponse: there is none.
            UnreadableAnswer: it does not have the requested form.
        """

    async def _post(self, path: str = "", **body: Any) -> httpx2.Response:
        """Send a request, again after a temporary failure; raise `BackendError` where that does not pass.

        Args:
            path: its path below the address.
            body: its body, as a keyword of the HTTP library: `json` or `content`.
        """
        options, retries = self._options, 0
        while True:
            wait, status = "", 0
            try:
                response = await self._sent(self._url + path, body)
                status = response.status_code
                if status in OVERLOADED:
                    options.on_overload()
                if status < _FIRST_NO_SUCCESS or status in self.refusals:
                    return response
                wait = response.headers.get("retry-after", "")
                raise self._errors.of_status(status, _text_of(response))
            except BackendError as error:
                delay_s = retry_delay_s(retries, wait)
                is_temporary = error.kind in _RETRIED or status == HTTPStatus.CONFLICT
                if not is_temporary or retries == options.retries or delay_s > _MAX_RETRY_AFTER_S:
                    raise
            await asyncio.sleep(delay_s)
            options.on_retry()
            retries += 1

    async def _sent(self, url: str, body: dict[str, Any]) -> httpx2.Response:
        """Send a request once."""
        http = self._http
        try:
            response: httpx2.Response = await self._client.post(url, **body)
        except http.TimeoutException:
            text = f"no answer within {self._options.timeout_s:g} seconds"
            raise self._errors.error("timeout", text) from None
        except http.RequestError as error:
            raise self._errors.error("network", f"no answer: {type(error).__name__}", str(error)) from None
        except UnicodeEncodeError as error:
            # half of a surrogate pair, which UTF-8 can't encode
            text = f"the request can't be sent: {error.reason} (at character {error.start})"
            raise self._errors.error("bad_request", text) from None
        return response


class ModelBackend(HttpBackend):
    """Asks a provider's API, and learns which parameters the model refuses.

    The key comes from `<NAME>_API_KEY` and is required for the provider's own address only; further headers come from
    `<NAME>_CUSTOM_HEADERS`, `Name: value`, one per line, and replace those of the same name.

    Attributes:
        address: the provider's own address.
        address_variable: the variable with another one.
        path: the path of requests under the address.
        needs_key: whether the provider's own address requires a key.
        answer_tool: the tool whose arguments are the answer where a schema is requested; empty: it is in the text.
        wraps_answers: whether a schema of anything but an object is sent as that of a property (`as_object`).
        adjustable: parameters that a request can omit, or that have another name.
    """

    address: ClassVar[str]
    address_variable: ClassVar[str]
    path: ClassVar[str]
    needs_key: ClassVar[bool] = True
    answer_tool: ClassVar[str] = ""
    wraps_answers: ClassVar[bool] = True
    adjustable: ClassVar[frozenset[str]] = frozenset()
    refusals = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})

    def __init__(self, options: BackendOptions) -> None:
        own = options.base_url or original(self.address_variable)
        self._is_own_server = bool(own)
        # parameters with which a call was refused that succeeded without them
        self._refused: frozenset[str] = frozenset()
        prefix = self.name.upper()
        custom = headers_of(f"{prefix}_CUSTOM_HEADERS")
        own_headers = self._headers(self._key(f"{prefix}_API_KEY")).items()
        replaced = {name.lower() for name, _ in custom}
        headers = [*(header for header in own_headers if header[0].lower() not in replaced), *custom]
        super().__init__(options, full_address(own or self.address, self.name), headers=headers)

    @property
    def temperature(self) -> float | None:
        """The temperature of requests; None once the model has refused the parameter."""
        return None if "temperature" in self._refused else self._options.temperature

    def _headers(self, key: str) -> dict[str, str]:
        """Return the headers of requests; the key is empty where there is none."""
        return {"authorization": f"Bearer {key}"} if key else {}

    @abstractmethod
    def _body(self, request: ModelRequest, without: frozenset[str]) -> dict[str, Any]:
        """Return the body of a request, without the named parameters."""

    def _path(self, request: ModelRequest) -> str:  # noqa: ARG002 - for providers with several paths
        """Return the path of a request."""
        return self.path

    async def _ask(self, request: ModelRequest) -> Any:
        # a parameter that the server refuses by name is omitted from now on, if the call succeeds without it
        refused = self._refused
        while True:
            body = self._body(request, refused)
            response = await self._post(self._path(request), json=body)
            if response.status_code not in self.refusals:
                self._refused |= refused
                return parse_json_text(_text_of(response))
            text = _text_of(response)
            newly_refused = self._refused_parameters(text, body) - refused
            if not newly_refused:
                raise self._errors.of_status(response.status_code, text)
            refused |= newly_refused

    @abstractmethod
    def _said(self, data: Any, request: ModelRequest) -> Said:
        """Return what the model said in a response; errors as in `_answer`."""

    def _tool_call(self, call: Any) -> ToolCall:
        """Return a tool call, by default of OpenAI's form; errors as in `_answer`."""
        function = member(call, "function", dict)
        name = member(function, "name", str)
        return ToolCall(id=member(call, "id", str), name=name, arguments=arguments(function.get("arguments"), name))

    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        said, schema = self._said(data, request), request.output_schema
        text, refusal = said.text or "", said.refusal
        if refusal and not (text.strip() or said.calls):
            return ModelAnswer(content=None, refusal=refusal, usage=usage)
        if refusal or said.is_cut:
            cause = f"by a refusal: {refusal}" if refusal else f"at its limit of {self.limit_of(request)} output tokens"
            problem = self._problem("truncated", "the answer was cut off ", cause)
            return ModelAnswer(content=text, usage=usage, problem=problem)
        calls = tool_calls(said.calls, self._tool_call)
        if said.text is None:
            raise UnreadableAnswer("the answer contains no text")
        if schema is None or request.tools or request.raw:
            return ModelAnswer(content=text, usage=usage, tool_calls=calls)
        answers = [call.arguments for call in calls if call.name == self.answer_tool]
        content = answers[0] if answers else parse_json_text(text)
        return ModelAnswer(content=unwrap(content, schema) if self.wraps_answers else content, usage=usage)

    def _refused_parameters(self, text: str, body: dict[str, Any]) -> frozenset[str]:
        message = error_message(text)
        if not _REFUSED_PARAMETER.search(message):
            return frozenset()
        return frozenset(self.adjustable & body.keys() & set(re.findall(r"\w+", message)))

    def _key(self, variable: str) -> str:
        """Return the key from an environment variable; empty where there is none, and none is needed."""
        key = os.environ.get(variable, "").strip()
        if not key and self.needs_key and not self._is_own_server:
            raise BackendUnusable(
                f"the backend {self.name} needs a key: set the environment variable {variable} "
                "(or set --packbench-base-url for your own server)"
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise BackendUnusable(
                f"{variable} contains characters that are invalid in an HTTP header: set it to the key alone"
            )
        return key


def _http_library(name: str, extra: str) -> ModuleType:
    try:
        import httpx2
    except ImportError:
        raise BackendUnusable(
            f"the backend {name} needs the package httpx2: pip install 'pytest-packbench[{extra}]'"
        ) from None
    return httpx2


def _text_of(response: httpx2.Response) -> str:
    """Return the text of a response: as UTF-8 where it states a charset that is none of text, such as `hex`."""
    try:
        return response.text
    except Exception:  # noqa: BLE001 - each codec raises its own
        return response.content.decode(errors="replace")


def retry_delay_s(retries: int, retry_after: str) -> float:
    """Return how long to wait before the next try: Retry-After, else exponentially longer, seconds."""
    requested = _seconds(retry_after)
    if requested > 0:
        return requested
    jitter = 1 - 0.25 * random.random()  # noqa: S311 - spreads retries, protects nothing
    return min(_FIRST_DELAY_S * 2.0**retries, _MAX_DELAY_S) * jitter


def _seconds(retry_after: str) -> float:
    """Parse Retry-After, seconds or a date (RFC 9110, 10.2.3); 0 where it is neither."""
    with suppress(ValueError):
        return float(retry_after)
    with suppress(ValueError):
        date = parsedate_to_datetime(retry_after)
        return (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return 0.0


def headers_of(variable: str) -> list[tuple[str, str]]:
    """Return the request headers in an environment variable, `Name: value`, one per line.

    Raises:
        BackendUnusable: a line is no header.
    """
    headers = []
    for number, line in enumerate(os.environ.get(variable, "").splitlines(), start=1):
        if not line.strip():
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            # the line itself may be a secret without its name
            raise BackendUnusable(f'{variable}, line {number}: expected "Name: value" in plain ASCII')
        if name.lower() in _FRAMING:
            raise BackendUnusable(f"{variable}, line {number}: {name} follows from the request itself; remove it")
        headers.append((name, value))
    return headers


def check_url(url: str, *, name: str) -> str:
    """Check a server's address; the error does not contain it, since it may contain a password.

    A login or a query is refused: the client logs it with every call.

    Raises:
        BackendUnusable: it is not just scheme, host, port and path.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        valid = valid and not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        valid = False
    if not valid:
        raise BackendUnusable(
            f"the base URL of the backend {name} is invalid: expected http:// or https://, a host, an optional port "
            "and path, and no user name, password or query"
        )
    return url
