"""Writing a cassette: what a model or a target outside this process answered, kept for fixture mode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.load import canonical_sha256
from pytest_packbench.cases.problem import shown
from pytest_packbench.engine.cassette import CASSETTE_VERSION, VERIFY, Cassette
from pytest_packbench.engine.entries import clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_packbench.backends.base import ModelAnswer, Usage
    from pytest_packbench.cases.load import LoadedCase
    from pytest_packbench.engine.bench import Bench, Draft
    from pytest_packbench.engine.meter import Said


class UnrecordableError(RuntimeError):
    """The target gave up on a model call: no replay could give it the same."""


def keep(  # noqa: PLR0917 - what was asked, and who answered
    bench: Bench, loaded: LoadedCase, draft: Draft, backend: str, model: str, usage: Usage
) -> tuple[Cassette, str] | None:
    """Write what an attempt was answered; None where nobody was asked.

    Args:
        bench: what the suite's cases share.
        loaded: the case.
        draft: an attempt that nothing broke.
        backend: who answered.
        model: which model.
        usage: tokens of all calls.

    Raises:
        UnrecordableError: the target gave up on a model call.
        OSError: it can't be written; an older recording is untouched.
    """
    path = bench.suite.cassette_path(loaded.case.id)
    if bench.caller.opaque and draft.request is not None:
        exchanges = whole_exchange(draft.request.as_json(), draft.payload, usage)
    elif draft.meter is not None and (draft.meter.said or path.exists()):
        # no call at all takes the place of an older recording that has some
        exchanges = model_exchanges(draft.meter.said)
    else:
        return None
    data = cassette_of(
        exchanges,
        case_id=loaded.case.id,
        input_sha256=loaded.input_sha256,
        backend=backend,
        model=model,
        recorded_at=clock(draft.finished_ns),
    )
    return write_cassette(path, data)


def cassette_of(
    exchanges: list[dict[str, Any]],
    *,
    case_id: str,
    input_sha256: str,
    backend: str,
    model: str,
    recorded_at: str,
) -> dict[str, Any]:
    """Give a recorded cassette as plain JSON, without keys that say nothing.

    Args:
        exchanges: see `model_exchanges` and `whole_exchange`.
        case_id: the case.
        input_sha256: hash of its input.
        backend: who answered.
        model: which model.
        recorded_at: `YYYY-MM-DDTHH:MM:SS.mmmZ`.
    """
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
        given = asked if asked.answer is not None else _again(asked, left)
        if given is None or given.answer is None:
            raise UnrecordableError(
                f"the target gave up on a model call (role {shown(asked.role)}) before it was answered: "
                "such an attempt can't be replayed, and is not recorded"
            )
        if given is not asked:
            again = left.index(given)
            # the tries between the two got nothing either
            left = [one for place, one in enumerate(left) if place > again or not _same_try(one, asked)]
        exchanges.append(_exchange(given, given.answer))
    return exchanges


def _again(asked: Said, later: Sequence[Said]) -> Said | None:
    same = (one for one in later if one.request_sha256 == asked.request_sha256 and one.answer is not None)
    return next(same, None)


def _same_try(one: Said, asked: Said) -> bool:
    return one.request_sha256 == asked.request_sha256


def _exchange(said: Said, answer: ModelAnswer) -> dict[str, Any]:
    return {
        "role": said.role,
        "answer": answer.content,
        **({} if answer.refusal is None else {"refusal": answer.refusal}),
        "request_sha256": said.request_sha256,
        **_usage(answer.usage),
        **({"tool_calls": [call.as_json() for call in answer.tool_calls]} if answer.tool_calls else {}),
    }


def whole_exchange(request: dict[str, Any], result: Any, usage: Usage) -> list[dict[str, Any]]:
    """Give the one exchange of a target outside this process."""
    return [{"role": VERIFY, "answer": result, "request_sha256": canonical_sha256(request), **_usage(usage)}]


def write_cassette(path: Path, data: dict[str, Any]) -> tuple[Cassette, str]:
    """Write a cassette in the place of an older one, whole or not at all.

    Args:
        path: the file; its folder is made.
        data: see `cassette_of`.

    Returns:
        The cassette and the hash of its meaning, as reading it gives them.

    Raises:
        OSError: it can't be written; an older one is untouched.
    """
    from pytest_packbench.records.atomic import write_atomic

    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    cassette = Cassette.model_validate(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)
    return cassette, canonical_sha256(data)


def _usage(usage: Usage) -> dict[str, Any]:
    counts = {"tokens_input": usage.tokens_input, "tokens_output": usage.tokens_output}
    known = {name: count for name, count in counts.items() if count is not None}
    return {"usage": known} if known else {}
