"""Recordings: a cassette stands in for a backend, and is written from what one answered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_packbench.atomic import write_atomic
from pytest_packbench.cases.load import load_cassette
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.cassette import CASSETTE_VERSION, VERIFY_ROLE, Cassette
from pytest_packbench.model.errors import CassetteError, Problem, format_value
from pytest_packbench.model.request import ModelAnswer, ToolCall, Usage
from pytest_packbench.model.result import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_packbench.engine.attempt import Attempt
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.metering import Said
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.request import ModelRequest


_ADVICE = "the pipeline changed its steps: make the recording fit them, or record it anew (--packbench-mode=record)"


class ReplayError(RuntimeError):
    """The target's calls and the cassette's exchanges differ."""


class UnrecordableError(RuntimeError):
    """The target gave up on a model call: no replay could give it the same."""


def check_belongs(cassette: Cassette, *, case_id: str, input_sha256: str, source: str) -> None:
    """Refuse a cassette of another case or of another input.

    Raises:
        CassetteError: says what to do about it.
    """
    if cassette.case_id != case_id:
        problem = Problem(
            "/case_id", f"got {format_value(cassette.case_id)}", f'expected "{case_id}": no cassette is shared'
        )
        raise CassetteError(source, [problem])
    if cassette.input_sha256 != input_sha256:
        wrong = "outdated: the case's input is not the one that was answered"
        advice = f'undo the change of the input, or make sure that the answers still hold and write "{input_sha256}"'
        raise CassetteError(source, [Problem("/input_sha256", wrong, advice)])


def recorded_calls(path: Path) -> int | None:
    """Count the model calls of a cassette; None where there is none that can be read."""
    try:
        return len(load_cassette(path, source=path.name)[0].exchanges)
    except (CassetteError, OSError):
        return None


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
        """Answer as `complete_sync`, which waits for nobody."""
        return self.complete_sync(request)

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer the next call; raises `ReplayError` where the recording has another one there."""
        if self._nobody:
            raise self._differs(
                f"the target asks a model (role {format_value(request.role)}), and nobody is there to answer; "
                "name a model with --packbench-backend and --packbench-model"
            )
        if self._cassette is None:
            raise self._differs(
                f"the target asks a model (role {format_value(request.role)}), and the case has no cassette; "
                "record one (--packbench-mode=record) or write one (packbench schema cassette tells its form)"
            )
        exchanges = self._cassette.exchanges
        if self.used >= len(exchanges):
            raise self._differs(
                f"call {self.used + 1} (role {format_value(request.role)}) is one more than the "
                f"{len(exchanges)} recorded; {_ADVICE}"
            )
        exchange = exchanges[self.used]
        if exchange.role != request.role:
            raise self._differs(
                f"/exchanges/{self.used}/role: got {format_value(exchange.role)}; the target asks "
                f"{format_value(request.role)} there; {_ADVICE}"
            )
        self.used += 1
        if exchange.request_sha256 not in {None, canonical_sha256(request.as_json())}:
            self.stale = True
            self.stale_roles.add(request.role)
        answer = ModelAnswer(
            content=exchange.answer,
            refusal=exchange.refusal,
            usage=Usage(tokens_input=exchange.usage.tokens_input, tokens_output=exchange.usage.tokens_output),
        )
        if not exchange.tool_calls:
            return answer
        calls = (ToolCall(id=one.id, name=one.name, arguments=one.arguments) for one in exchange.tool_calls)
        return replace(answer, tool_calls=tuple(calls))

    def whole(self, request: dict[str, Any]) -> Any:
        """Give the result that a target outside this process gave when it was recorded (role `verify`).

        Raises `ReplayError` where there is no such recording; today's request, plain JSON, tells whether it is stale.
        """
        if self._cassette is None:
            raise self._differs(
                "the target lives outside this process and is replayed whole, and the case has no "
                "cassette; record one with --packbench-mode=record"
            )
        exchanges = self._cassette.exchanges
        if len(exchanges) != 1 or exchanges[0].role != VERIFY_ROLE:
            roles = ", ".join(exchange.role for exchange in exchanges) or "none"
            raise self._differs(
                f'/exchanges: got the roles {roles}; expected one exchange "{VERIFY_ROLE}", as recorded of '
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
                f"the target made {self.used} of the {recorded} recorded calls, then stopped; {_ADVICE}"
                f"{'' if self.used else ', or mark a target that asks no model with without_model'}"
            )

    def _differs(self, message: str) -> ReplayError:
        told = f"{self._source}: {message}"
        self.mismatch = self.mismatch or told
        return ReplayError(told)


def keep(context: SuiteContext, loaded: LoadedCase, state: Attempt) -> tuple[Cassette, str] | None:
    """Write what an attempt that nothing broke was answered, in the place of an older recording.

    Returns:
        The cassette and the hash of its meaning, as reading it gives them; None where nobody was asked.

    Raises:
        UnrecordableError: the target gave up on a model call.
        OSError: it can't be written; an older recording is untouched.
    """
    path = context.suite.cassette_path(loaded.case.id)
    if context.caller.opaque and state.request is not None:
        exchanges = [
            {
                "role": VERIFY_ROLE,
                "answer": state.payload,
                "request_sha256": canonical_sha256(state.request.as_json()),
                **_usage(state.usage),
            }
        ]
    elif state.meter is not None and (state.meter.said or path.exists()):
        # no call at all takes the place of an older recording that has some
        exchanges = model_exchanges(state.meter.said)
    else:
        return None
    data = cassette_of(
        exchanges,
        case_id=loaded.case.id,
        input_sha256=loaded.input_sha256,
        backend=state.backend,
        model=state.model,
        recorded_at=format_timestamp(state.finished_ns),
    )
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    cassette = Cassette.model_validate(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)
    return cassette, canonical_sha256(data)


def cassette_of(
    exchanges: list[dict[str, Any]], *, case_id: str, input_sha256: str, backend: str, model: str, recorded_at: str
) -> dict[str, Any]:
    """Give a recorded cassette as plain JSON; its exchanges are as `model_exchanges` gives them."""
    return {
        "cassette_version": CASSETTE_VERSION,
        "case_id": case_id,
        "input_sha256": input_sha256,
        "origin": "recorded",
        "llm_backend": backend,
        "llm_model": model,
        "recorded_at": recorded_at,
        "exchanges": exchanges,
    }


def model_exchanges(said: Sequence[Said]) -> list[dict[str, Any]]:
    """Give the exchanges of an attempt in the order in which a replay is asked for them.

    A call that broke and was made again has the answer of the second time, in the place of the first.

    Raises:
        UnrecordableError: a call has no answer, not even later.
    """
    left = list(said)
    exchanges = []
    while left:
        asked = left.pop(0)
        tries = [asked, *(one for one in left if one.request_sha256 == asked.request_sha256)]
        given = next((one for one in tries if one.answer is not None), None)
        if given is None or given.answer is None:
            raise UnrecordableError(
                f"the target gave up on a model call (role {format_value(asked.role)}) before it was answered: "
                "such an attempt can't be replayed, and is not recorded"
            )
        if given is not asked:
            again = left.index(given)
            # the tries between the two got nothing either
            left = [one for place, one in enumerate(left) if place > again or one not in tries]
        exchanges.append(_exchange(given, given.answer))
    return exchanges


def _exchange(said: Said, answer: ModelAnswer) -> dict[str, Any]:
    return {
        "role": said.role,
        "answer": answer.content,
        **({} if answer.refusal is None else {"refusal": answer.refusal}),
        "request_sha256": said.request_sha256,
        **_usage(answer.usage),
        **({"tool_calls": [call.as_json() for call in answer.tool_calls]} if answer.tool_calls else {}),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    counts = {"tokens_input": usage.tokens_input, "tokens_output": usage.tokens_output}
    known = {name: count for name, count in counts.items() if count is not None}
    return {"usage": known} if known else {}
