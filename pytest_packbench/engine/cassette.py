"""The cassette: the recorded exchanges of one case, and the replay that stands in for a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from pytest_packbench.backends.base import ModelAnswer, ToolCall, Usage
from pytest_packbench.cases.load import canonical_sha256, parse_json
from pytest_packbench.cases.model import CaseId, ListOf, StrictModel, Text
from pytest_packbench.cases.problem import CassetteError, Problem, problems_of, shown

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from pytest_packbench.backends.base import ModelRequest

CASSETTE_VERSION = 1
VERIFY = "verify"
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


def _whole(value: Any) -> Any:
    # in Python true is 1, in JSON it is not
    if type(value) is not int:
        raise PydanticCustomError("version", "a version", {"expected": "1"})
    return value


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

    cassette_version: Annotated[Literal[1], BeforeValidator(_whole)]
    case_id: CaseId
    input_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    origin: Literal["authored", "recorded"]
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


def load_cassette(path: Path, *, source: str) -> tuple[Cassette, str]:
    """Read a cassette.

    Args:
        path: the file.
        source: how to call it in an error.

    Returns:
        The cassette and the hash of its meaning.

    Raises:
        FileNotFoundError: there is none.
        CassetteError: one line with file, pointer, what is wrong, what was expected.
    """
    try:
        data = parse_json(path.read_bytes())
        cassette = Cassette.model_validate(data)
    except ValidationError as error:
        raise CassetteError(source, problems_of(error, Cassette)) from None
    except ValueError as error:
        problem = getattr(error, "problem", None) or Problem("", str(error), "expected a cassette")
        raise CassetteError(source, [problem]) from None
    return cassette, canonical_sha256(data)


def check_belongs(cassette: Cassette, *, case_id: str, input_sha256: str, source: str) -> None:
    """Refuse a cassette of another case or of another input.

    Raises:
        CassetteError: says what to do about it.
    """
    if cassette.case_id != case_id:
        problem = Problem("/case_id", f"got {shown(cassette.case_id)}", f'expected "{case_id}": no cassette is shared')
        raise CassetteError(source, [problem])
    if cassette.input_sha256 != input_sha256:
        wrong = "outdated: the case's input is not the one that was answered"
        advice = f'undo the change of the input, or make sure that the answers still hold and write "{input_sha256}"'
        raise CassetteError(source, [Problem("/input_sha256", wrong, advice)])


class ReplayError(RuntimeError):
    """The target's calls and the cassette's exchanges differ."""


class Replay:
    """Answers a target's model calls from a cassette, by position and role (design 7).

    A target may swallow what its model call raises, so the first mismatch is kept in `mismatch`. With `nobody` it
    stands where no model was named at all.

    Attributes:
        stale: whether an exchange answered another request than the one asked now.
        stale_roles: the roles of such exchanges.
        mismatch: what differed, in one line; empty while all agrees.
        used: exchanges given so far.
    """

    def __init__(self, cassette: Cassette | None, *, source: str, nobody: bool = False) -> None:
        self._cassette = cassette
        self._source = source
        self._nobody = nobody
        self.stale = False
        self.stale_roles: set[str] = set()
        self.mismatch = ""
        self.used = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer the next call; raises `ReplayError` where the recording has another one there."""
        return self.complete_sync(request)

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer the next call; raises `ReplayError` where the recording has another one there."""
        if self._nobody:
            raise self._differs(
                f"{self._source}: the target asks a model (role {shown(request.role)}), and nobody is there to answer; "
                "name a model with --packbench-backend and --packbench-model"
            )
        if self._cassette is None:
            raise self._differs(
                f"{self._source}: the target asks a model (role {shown(request.role)}), and the case has no cassette; "
                "record one (--packbench-mode=record) or write one (packbench schema cassette tells its form)"
            )
        exchanges = self._cassette.exchanges
        if self.used >= len(exchanges):
            raise self._differs(
                f"{self._source}: call {self.used + 1} (role {shown(request.role)}) is one more than the "
                f"{len(exchanges)} recorded; {_ADVICE}"
            )
        exchange = exchanges[self.used]
        if exchange.role != request.role:
            raise self._differs(
                f"{self._source}: /exchanges/{self.used}/role: got {shown(exchange.role)}; the target asks "
                f"{shown(request.role)} there; {_ADVICE}"
            )
        self.used += 1
        if exchange.request_sha256 not in {None, canonical_sha256(request.as_json())}:
            self.stale = True
            self.stale_roles.add(request.role)
        usage = Usage(tokens_input=exchange.usage.tokens_input, tokens_output=exchange.usage.tokens_output)
        calls = tuple(ToolCall(id=one.id, name=one.name, arguments=one.arguments) for one in exchange.tool_calls)
        return ModelAnswer(content=exchange.answer, refusal=exchange.refusal, usage=usage, tool_calls=calls)

    def whole(self, request: dict[str, Any]) -> Any:
        """Give the result that a target outside this process gave when it was recorded (role `verify`).

        Args:
            request: the verify request of today, plain JSON.

        Raises:
            ReplayError: there is no such recording.
        """
        if self._cassette is None:
            raise self._differs(
                f"{self._source}: the target lives outside this process and is replayed whole, and the case has no "
                "cassette; record one with --packbench-mode=record"
            )
        exchanges = self._cassette.exchanges
        if len(exchanges) != 1 or exchanges[0].role != VERIFY:
            roles = ", ".join(exchange.role for exchange in exchanges) or "none"
            raise self._differs(
                f'{self._source}: /exchanges: got the roles {roles}; expected one exchange "{VERIFY}", as recorded of '
                "a target outside this process; record it anew with --packbench-mode=record"
            )
        self.used = 1
        hashed = exchanges[0].request_sha256
        self.stale = hashed is not None and hashed != canonical_sha256(request)
        return exchanges[0].answer

    def finish(self) -> None:
        """Note the exchanges that the target did not ask for."""
        recorded = len(self._cassette.exchanges) if self._cassette is not None else 0
        if not self.mismatch and self.used < recorded:
            self._differs(
                f"{self._source}: the target made {self.used} of the {recorded} recorded calls, then stopped; {_ADVICE}"
                f"{'' if self.used else ', or mark a target that asks no model with without_model'}"
            )

    def _differs(self, message: str) -> ReplayError:
        self.mismatch = self.mismatch or message
        return ReplayError(message)


_ADVICE = "the pipeline changed its steps: make the recording fit them, or record it anew (--packbench-mode=record)"
