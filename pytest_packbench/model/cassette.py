"""The cassette: the recorded exchanges of one case, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from pydantic_core import core_schema

from pytest_packbench.model.case import CaseId, ListOf, StrictModel, Text
from pytest_packbench.model.request import Usage
from pytest_packbench.model.run import Origin  # noqa: TC001 - pydantic reads it when the model is made

if TYPE_CHECKING:
    from collections.abc import Container


CASSETTE_VERSION = 1
VERIFY_ROLE = "verify"
"""The role of the one exchange that a target outside this process leaves: its whole result."""


class ExchangeUsage(StrictModel):
    """Tokens of one exchange, as the provider counted them."""

    tokens_input: int | None = Field(default=None, ge=0)
    tokens_output: int | None = Field(default=None, ge=0)


class ExchangeToolCall(StrictModel):
    """One call of a tool that the model asked for; see `ToolCall`."""

    id: Text
    name: Text
    arguments: dict[str, Any]


class Exchange(StrictModel):
    """One model call and its answer.

    Attributes:
        role: the step of the pipeline that asked.
        answer: the JSON value or text answered.
        refusal: the model's words where it declined.
        request_sha256: hash of the request that was answered; absent where a person wrote the answer.
        usage: tokens, where a provider counted them.
        tool_calls: the tools that the model wanted called.
    """

    role: Text
    answer: Any = None
    refusal: Text | None = None
    request_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    usage: ExchangeUsage = ExchangeUsage()
    tool_calls: ListOf[ExchangeToolCall] = ()


class _One:
    """The whole number 1: what Python takes for it, such as true, is another version."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> core_schema.CoreSchema:
        return core_schema.custom_error_schema(
            core_schema.int_schema(strict=True, ge=CASSETTE_VERSION, le=CASSETTE_VERSION),
            custom_error_type="version",
            custom_error_message="a version",
            custom_error_context={"expected": str(CASSETTE_VERSION)},
        )

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        return {"const": CASSETTE_VERSION, "type": "integer"}


class Cassette(StrictModel):
    """The recording of one case.

    Attributes:
        cassette_version: 1.
        case_id: the case that it belongs to; none is shared.
        input_sha256: hash of the case's `input` that was answered.
        origin: `authored` by a person, or `recorded` from a model.
        llm_backend: who answered; `stub` for authored ones.
        llm_model: which model answered; `authored` for authored ones.
        recorded_at: when, for recorded ones.
        exchanges: the calls in order.
    """

    cassette_version: Annotated[Literal[1], _One()]
    case_id: CaseId
    input_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    origin: Origin
    llm_backend: Text
    llm_model: Text
    recorded_at: Text | None = None
    exchanges: ListOf[Exchange]

    def usage(self, aside: Container[str] = ()) -> Usage:
        """Tokens of all exchanges but those of the roles `aside`; None for a count that one of them doesn't have."""
        asked = [exchange.usage for exchange in self.exchanges if exchange.role not in aside]
        return Usage(
            tokens_input=_sum([one.tokens_input for one in asked]),
            tokens_output=_sum([one.tokens_output for one in asked]),
        )


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
