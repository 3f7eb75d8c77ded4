"""Who answered an attempt, and what it used: told by the backend, the recording or the result; never guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import STUB
from pytest_packbench.backends.answers import count
from pytest_packbench.backends.base import Usage
from pytest_packbench.engine.prices import price_of

if TYPE_CHECKING:
    from pytest_packbench.engine.bench import Bench, Draft

UNKNOWN = "unknown"
_NAMES = ("llm_backend", "llm_model")
_COUNTS = ("tokens_input", "tokens_output")


def answered_by(bench: Bench, draft: Draft) -> tuple[str, str, Usage]:
    """Say who answered, which model and at what price in tokens: what is not told is unknown, never a guess."""
    if draft.meter is not None and any(not one.aside for one in draft.meter.said):
        return bench.backend, bench.model, draft.meter.usage
    told = _told(draft.payload)
    if draft.cassette is not None and bench.live is None:
        cassette = draft.cassette
        return cassette.llm_backend, cassette.llm_model, cassette.usage(bench.roles)
    if told[0] == UNKNOWN and bench.backend and (bench.backend == STUB or bench.caller.opaque):
        # a scripted model, or what the user says of a target outside this process
        return bench.backend, bench.model or UNKNOWN, told[2]
    return told


def told_usage(bench: Bench, draft: Draft) -> None:
    """Book what a result tells of its own use of a model, so that the run's caps hold for it as well."""
    metered = draft.meter is not None and any(not one.aside for one in draft.meter.said)
    if bench.live is None or draft.trouble is not None or metered:
        return
    backend, model, usage = _told(draft.payload)
    if usage == Usage():
        if bench.caller.opaque:
            bench.live.ledger.tell(None, None)
        return
    if backend == UNKNOWN and bench.backend:
        backend, model = bench.backend, bench.model
    bench.live.ledger.tell(usage, price_of(bench.suite.config, backend, model))


def _told(payload: Any) -> tuple[str, str, Usage]:
    """Read what a result says of the model behind it: `llm_backend`, `llm_model`, `usage` at its top."""
    if not isinstance(payload, dict):
        return UNKNOWN, UNKNOWN, Usage()
    backend, model = (value if isinstance(value, str) and value else UNKNOWN for value in map(payload.get, _NAMES))
    usage = payload.get("usage")
    counts = {name: count(usage.get(name)) for name in _COUNTS} if isinstance(usage, dict) else {}
    return backend, model, Usage(**counts)
