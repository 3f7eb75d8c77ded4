"""The cassette: the recorded exchanges of one case, in order."""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pytest_packbench.model.case import CaseId, CurrentVersion, ListOf, StrictModel, Text
from pytest_packbench.model.run import Origin  # noqa: TC001 - pydantic reads it when the model is made
from pytest_packbench.model.strict_json import U64_MAX

CASSETTE_VERSION = 2
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Tokens = Annotated[int, Field(ge=0, le=U64_MAX)]
VERIFY_ROLE = "verify"
"""The role of the only exchange of a target that runs outside this process: its whole result."""


class ExchangeUsage(StrictModel):
    """Tokens of one exchange, as counted by the provider."""

    tokens_input: Tokens | None = None
    tokens_output: Tokens | None = None


class ExchangeToolCall(StrictModel):
    """One tool call that the model requested; see `ToolCall`."""

    id: Text
    name: Text
    arguments: dict[str, Any]


class Prompt(StrictModel):
    """What the model was asked, as far as it may be stored: secrets are replaced.

    Attributes:
        continues: the position of an earlier exchange, whose system prompt and messages come first; None for none.
        system: the system prompt; None where it is that of the earlier exchange.
        messages: the messages that follow; see `ModelRequest`.
    """

    continues: Annotated[int, Field(ge=0)] | None = None
    system: str | None = None
    messages: ListOf[dict[str, Any]] = ()


class ExchangeProblem(StrictModel):
    """Why an answer can't be read; see `AnswerProblem`."""

    kind: Literal["truncated", "answer_unreadable"]
    message: Text


class Exchange(StrictModel):
    """One model call and its answer.

    Attributes:
        role: the step of the pipeline that called the model.
        prompt: what the model was asked; None where a person wrote the answer, or prompts are not recorded.
        answer: the answer, a JSON value or text.
        refusal: the model's words if it declined to answer.
        request_sha256: hash of the request; None if a person wrote the answer.
        usage: tokens, if the provider counted them.
        tool_calls: the tool calls that the model requested.
        problem: why the answer can't be read; then `answer` is its text.
    """

    role: Text
    prompt: Prompt | None = None
    answer: Any = None
    refusal: Text | None = None
    request_sha256: Digest | None = None
    usage: ExchangeUsage = ExchangeUsage()
    tool_calls: ListOf[ExchangeToolCall] = ()
    problem: ExchangeProblem | None = None


class GatewayExchange(StrictModel):
    """One call of a client of the target's own, through the gateway, and its answer.

    An answer has one of the keys `body`, `text`, `body_base64`, `stream` and `stream_base64`; none if it is empty.

    Attributes:
        provider: whose protocol it is.
        method: the HTTP method.
        path: the path, and the query without keys.
        version: 2; None in older recordings, which do not know the headers of requests.
        request_headers: the headers of the request that decide on its answer, names in lower case: values in words, as
            `[redacted]`, or as `sha256:` and a hash.
        request: the JSON body of the request; None where it has none, or prompts are not recorded.
        request_sha256: hash of method, path, headers and body without credentials; in older recordings of method, path
            and body.
        status: the HTTP status of the answer; None where it never began.
        headers: those of the answer that clients read, names in lower case.
        body: the answer, where it is JSON.
        text: the answer, where it is other text.
        body_base64: the answer, where it is no text.
        stream: the answer, where it was streamed: events or lines, byte for byte.
        stream_base64: the same, where it is no text.
        end: `complete`; `cut` if the provider broke off, `aborted` if the client went away.
        usage: tokens, if the provider counted them.
    """

    provider: Literal["openai", "anthropic", "ollama", "gemini"]
    method: Text
    path: Text
    version: Literal[2] | None = None
    request_headers: dict[str, str] | None = None
    request: Any = None
    request_sha256: Digest
    status: Annotated[int, Field(ge=200, le=599)] | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    text: str | None = None
    body_base64: str | None = None
    stream: str | None = None
    stream_base64: str | None = None
    end: Literal["complete", "cut", "aborted"] = "complete"
    usage: ExchangeUsage = ExchangeUsage()

    @model_validator(mode="after")
    def _check(self) -> Self:
        stated = {"body", "text", "body_base64", "stream", "stream_base64"} & self.model_fields_set
        if len(stated) > 1:
            raise ValueError(f"an answer has one of the keys {', '.join(sorted(stated))}")
        if (self.version is None) != (self.request_headers is None):
            raise ValueError("version 2 states request_headers, and only version 2")
        if self.status is None and self.end == "complete":
            raise ValueError("an answer without a status is not complete")
        if any("\r" in text or "\n" in text for pair in self.headers.items() for text in pair):
            raise ValueError("a header has several lines")
        try:
            self.content()
        except Base64Error:
            raise ValueError("an answer is no base64") from None
        return self

    @property
    def is_stream(self) -> bool:
        """Whether the answer was streamed."""
        return self.stream is not None or self.stream_base64 is not None

    def content(self) -> bytes:
        """Return the bytes of the answer; of JSON, those of an equal value."""
        if "body" in self.model_fields_set:
            return json.dumps(self.body, separators=(",", ":")).encode()
        encoded = self.stream_base64 if self.stream_base64 is not None else self.body_base64
        if encoded is not None:
            return a2b_base64(encoded, strict_mode=True)
        return (self.stream if self.stream is not None else self.text or "").encode()


class RecordedTarget(StrictModel):
    """The target of a recording.

    Attributes:
        kind: how it is called; `reference` is the pack's own target, `hook` that of a hook.
        address: `module:attr`, the URL or the command, without secrets; for `reference`, the name of the pack.
    """

    kind: Literal["python", "hook", "reference", "http", "cmd"]
    address: Text


class RecordedPack(StrictModel):
    """The pack of a recording; without a version where that is not known."""

    name: Text
    version: Text | None = None


class RecordedPart(StrictModel):
    """A guard or a judge of a recording.

    Attributes:
        name: its name.
        settings: its settings, plain JSON.
        code_sha256: hash of its source file; None where it has none.
    """

    name: Text
    settings: dict[str, Any] = Field(default_factory=dict)
    code_sha256: Digest | None = None


class RecordedTool(StrictModel):
    """A tool that the model was offered.

    Attributes:
        name: its name.
        sha256: hash of its name, description and parameters.
    """

    name: Text
    sha256: Digest


class Conditions(StrictModel):
    """Under which conditions a recording was made, in addition to model and input.

    Attributes:
        target: the target that was called.
        pack: the pack of the suite.
        guards: the guards between agent and untrusted text, in order.
        judges: the judges that the suite names.
        tools: the tools that the model was offered, sorted by name; None where that is not known, because the target
            ran outside this process.
    """

    target: RecordedTarget
    pack: RecordedPack
    guards: ListOf[RecordedPart] = ()
    judges: ListOf[RecordedPart] = ()
    tools: ListOf[RecordedTool] | None = None


Version = Annotated[Literal[2], CurrentVersion(CASSETTE_VERSION)]


class Cassette(StrictModel):
    """The recording of one case.

    Attributes:
        cassette_version: 2.
        case_id: the case that it belongs to; cases do not share cassettes.
        input_sha256: hash of the case's `input` when it was recorded.
        origin: `authored` by a person, or `recorded` from a model.
        llm_backend: the backend that answered; `stub` for authored answers.
        llm_model: the model that answered; `authored` for authored answers.
        recorded_at: the time of the recording; None for authored answers.
        conditions: under which conditions it was made.
        exchanges: the model calls in order.
        gateway: the calls of the target's own clients, in the order in which they began.
    """

    cassette_version: Version
    case_id: CaseId
    input_sha256: Digest
    origin: Origin
    llm_backend: Text
    llm_model: Text
    recorded_at: Text | None = None
    conditions: Conditions
    exchanges: ListOf[Exchange]
    gateway: ListOf[GatewayExchange] = ()
