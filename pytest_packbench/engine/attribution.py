"""Attribution: which backend and model answered an attempt, how many tokens they used, and what they cost.

What neither a backend, a recording nor the target's result states is unknown; nothing is guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import Usage, total_usage
from pytest_packbench.model.run import STUB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.gateway import RecordedCall
    from pytest_packbench.model.cassette import ExchangeUsage


_BACKENDS = frozenset({"openai", "anthropic", "ollama"})
_DIGITS = 12
UNKNOWN = "unknown"
"""The name of a backend or model that nothing states."""


def attribution(context: SuiteContext, state: AttemptState) -> tuple[str, str, Usage]:
    """Return the backend and model that answered an attempt, and the tokens used."""
    own = [call for call in state.traffic.calls if call.uses_tokens] if state.traffic is not None else []
    if state.meter is not None and state.meter.primary_called:
        usage = total_usage([state.meter.usage, *(call.usage for call in own)])
        return context.backend, context.model, usage
    if own and context.live is not None:
        return *_names(own), total_usage(call.usage for call in own)
    if state.cassette is not None and context.live is None:
        cassette = state.cassette
        usages: list[Usage | ExchangeUsage] = (
            [cassette.usage(context.roles)] if cassette.exchanges or not cassette.gateway else []
        )
        if cassette.gateway:
            from pytest_packbench.engine.gateway.protocols import uses_tokens

            usages += [each.usage for each in cassette.gateway if uses_tokens(each.method, each.path)]
        return cassette.llm_backend, cassette.llm_model, total_usage(usages)
    backend, model, usage = _reported(state.payload)
    if backend == UNKNOWN and context.backend and (context.backend == STUB or context.caller.opaque):
        # a scripted model, or what the user states of a target outside this process
        return context.backend, context.model or UNKNOWN, usage
    return backend, model, usage


def cost_of(context: SuiteContext, state: AttemptState) -> float | None:
    """Return what the model calls of an attempt cost, US dollars; None in fixture mode, and if one's cost is not known.

    Calls that the cache answered cost nothing, nor does a target that is marked as one without a model.
    """
    if context.live is None or state.reported_usd is None:
        return None
    costs = [call.cost_usd for call in state.meter.calls] if state.meter is not None else []
    if state.traffic is not None:
        costs += [call.cost_usd for call in state.traffic.calls if call.uses_tokens]
    if not costs and context.backend == STUB:
        # a scripted model has no price
        return None
    known = [cost for cost in costs if cost is not None]
    # digits beyond these are only those of the floating-point sum
    return round(sum(known, state.reported_usd), _DIGITS) if len(known) == len(costs) else None


def count_reported_usage(context: SuiteContext, state: AttemptState) -> float | None:
    """Count the usage that a result reports of the target's own model calls, so that the run's caps apply to it.

    Returns:
        What it costs, US dollars; 0 where such calls were seen, or the target makes none; None if it is not known.
    """
    metered = state.meter is not None and state.meter.primary_called
    metered = metered or bool(state.traffic is not None and state.traffic.calls)
    if metered:
        return 0.0
    if context.live is None or state.raised is not None:
        return None
    backend, model, usage = _reported(state.payload)
    if usage == Usage():
        caller = context.caller
        is_watched = state.traffic is not None and not state.traffic.strayed
        if context.backend == STUB or caller.without_model or (is_watched and not caller.opaque):
            return 0.0
        context.live.ledger.add_unmetered_attempt(is_blind=not (is_watched and caller.runs_offline))
        return None
    from pytest_packbench.engine.metering import price_of  # live runs have loaded it

    if backend == UNKNOWN and context.backend:
        backend, model = context.backend, context.model
    return context.live.ledger.add_usage(usage, price_of(context.suite.config, backend, model))


def _names(calls: Sequence[RecordedCall]) -> tuple[str, str]:
    """Return the backend and the model of a target's own calls; of several, those that wrote text, all of them."""
    writing = [call for call in calls if "embed" not in call.path.lower()] or calls
    providers = list(dict.fromkeys(call.provider for call in writing))
    models = list(dict.fromkeys(call.model for call in writing if call.model))
    backend = providers[0] if len(providers) == 1 and providers[0] in _BACKENDS else UNKNOWN
    return backend, ", ".join(models) or UNKNOWN


def _reported(payload: Any) -> tuple[str, str, Usage]:
    """Return what a result reports of its model: `llm_backend`, `llm_model` and `usage` at its top level."""
    if not isinstance(payload, dict):
        return UNKNOWN, UNKNOWN, Usage()
    names = (payload.get(key) for key in ("llm_backend", "llm_model"))
    backend, model = (name if isinstance(name, str) and name else UNKNOWN for name in names)
    counts = payload.get("usage")
    if not isinstance(counts, dict):
        return backend, model, Usage()
    from pytest_packbench.backends.answers import count

    tokens_input, tokens_output = count(counts.get("tokens_input")), count(counts.get("tokens_output"))
    return backend, model, Usage(tokens_input=tokens_input, tokens_output=tokens_output)
