"""The cassette: the recorded exchanges of one case, and the replay that stands in for a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from pytest_packbench.backends.base import ModelAnswer, Usage
from pytest_packbench.cases.load import canonical_sha256, parse_json
from pytest_packbench.cases.model import CaseId, ListOf, StrictModel, Text
from pytest_packbench.cases.problem import CassetteError, Problem, problems_of, shown

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.backends.base import ModelRequest

CASSETTE_VERSION = 1


class ExchangeUsage(StrictModel):
    """Tokens of one exchange, as the provider counted them."""

    tokens_input: int | None = Field(default=None, ge=0)
    tokens_output: int | None = Field(default=None, ge=0)


class Exchange(StrictModel):
    """One model call and its answer.

    Attributes:
        role: the step of the pipeline that asked.
        answer: the JSON value or text answered.
        refusal: the model's words where it declined.
        request_sha256: hash of the request that was answered; absent where a person wrote the answer.
        usage: tokens, where a provider counted them.
    """

    role: Text
    answer: Any = None
    refusal: Text | None = None
    request_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    usage: ExchangeUsage = ExchangeUsage()


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

    cassette_version: Literal[1]
    case_id: CaseId
    input_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    origin: Literal["authored", "recorded"]
    llm_backend: Text
    llm_model: Text
    recorded_at: Text | None = None
    exchanges: ListOf[Exchange]


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

    A target may swallow what its model call raises, so the first mismatch is kept in `mismatch`.

    Attributes:
        stale: whether an exchange answered another request than the one asked now.
        mismatch: what differed, in one line; empty while all agrees.
        used: exchanges given so far.
    """

    def __init__(self, cassette: Cassette | None, *, source: str) -> None:
        self._cassette = cassette
        self._source = source
        self.stale = False
        self.mismatch = ""
        self.used = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer the next call; raises `ReplayError` where the recording has another one there."""
        return self.complete_sync(request)

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer the next call; raises `ReplayError` where the recording has another one there."""
        if self._cassette is None:
            raise self._differs(
                f"{self._source}: the target asks a model (role {shown(request.role)}), and the case has no cassette; "
                "write one (packbench schema cassette tells its form)"
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
        if exchange.request_sha256 is not None:
            self.stale = self.stale or exchange.request_sha256 != canonical_sha256(request.as_json())
        usage = Usage(tokens_input=exchange.usage.tokens_input, tokens_output=exchange.usage.tokens_output)
        return ModelAnswer(content=exchange.answer, refusal=exchange.refusal, usage=usage)

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


_ADVICE = "the pipeline changed its steps: make the recording fit them"
