"""Writing a cassette: what a model or a target outside this process answered, kept for fixture mode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.load import canonical_sha256
from pytest_packbench.engine.cassette import CASSETTE_VERSION, VERIFY, Cassette
from pytest_packbench.engine.entries import clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_packbench.backends.base import Usage
    from pytest_packbench.cases.load import LoadedCase
    from pytest_packbench.engine.attempt import Bench, Draft
    from pytest_packbench.engine.meter import Said


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
        OSError: it can't be written; an older recording is untouched.
    """
    if bench.caller.opaque and draft.request is not None:
        exchanges = whole_exchange(draft.request.as_json(), draft.payload, usage)
    elif draft.meter is not None and draft.meter.said:
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
    return write_cassette(bench.suite.cassette_path(loaded.case.id), data)


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
    """Give the exchanges of an attempt; a call that broke and was made again leaves the answered one."""
    return [
        {
            "role": one.role,
            "answer": one.answer.content,
            **({} if one.answer.refusal is None else {"refusal": one.answer.refusal}),
            "request_sha256": one.request_sha256,
            **_usage(one.answer.usage),
            **({"tool_calls": [call.as_json() for call in one.answer.tool_calls]} if one.answer.tool_calls else {}),
        }
        for one in said
        if one.answer is not None
    ]


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
