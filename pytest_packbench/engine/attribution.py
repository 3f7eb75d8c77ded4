"""Attribution: which backend and model answered an attempt, how many tokens they used, and what they cost.

What neither a backend, a recording nor the target's result states is unknown; nothing is guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import Usage
from pytest_packbench.model.run import STUB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.gateway import RecordedCall
    from pytest_packbench.engine.metering import ModelCall
    from pytest_packbench.model.cassette import ExchangeUsage


_BACKENDS = frozenset({"openai", "anthropic", "ollama"})
_DIGITS = 12
UNKNOWN = "unknown"
"""The name of a backend or model that nothing states."""


def attribute(context: SuiteContext, state: AttemptState) -> None:
    """Set which backend and model answered an attempt, how many calls and tokens that took, and what it cost.

    The cost, US dollars, is None in fixture mode, and if one call's is not known. Calls that the cache answered cost
    nothing, nor does a target that is marked as one without a model.
    """
    own = [call for call in state.traffic.calls if call.uses_tokens] if state.traffic is not None else []
    made: list[ModelCall | RecordedCall] = [*(state.meter.calls if state.meter is not None else ()), *own]
    state.calls, state.cached = len(made), sum(call.cached for call in made)
    if state.replay is not None:
        state.stale = state.replay.stale
        state.calls += state.replay.used
    state.llm_backend, state.llm_model, usages = _answered_by(context, state, own)
    state.tokens_input = _sum([usage.tokens_input for usage in usages])
    state.tokens_output = _sum([usage.tokens_output for usage in usages])
    costs = [state.reported_usd, *(call.cost_usd for call in made)]
    # a scripted model has no price
    if context.live is not None and None not in costs and (len(costs) > 1 or context.backend != STUB):
        # digits beyond these are only those of the floating-point sum
        state.cost_usd = round(sum(filter(None, costs)), _DIGITS)


def _answered_by(
    context: SuiteContext, state: AttemptState, own: Sequence[RecordedCall]
) -> tuple[str, str, list[Usage | ExchangeUsage]]:
    """Return the backend and the model that answered, and the tokens of each call of the model under test."""
    counted: list[Usage | ExchangeUsage] = [call.usage or Usage() for call in own]
    if state.meter is not None and state.meter.primary_called:
        answers = [call.answer for call in state.meter.calls if not call.secondary]
        usages = [answer.usage for answer in answers if answer is not None]
        return context.backend, context.model, usages + counted
    if own and context.live is not None:
        return *_names(own), counted
    if state.cassette is not None and context.live is None:
        cassette = state.cassette
        counted = [each.usage for each in cassette.exchanges if each.role not in context.roles]
        if cassette.gateway:
            from pytest_packbench.engine.gateway.protocols import uses_tokens

            counted += [each.usage for each in cassette.gateway if uses_tokens(each.method, each.path)]
        return cassette.llm_backend, cassette.llm_model, counted
    backend, model, usage = _reported(state.payload)
    if backend == UNKNOWN and context.backend and (context.backend == STUB or context.caller.opaque):
        # a scripted model, or what the user states of a target outside this process
        backend, model = context.backend, context.model or UNKNOWN
    return backend, model, [usage]


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


def _sum(counts: Sequence[int | None]) -> int | None:
    """Return the tokens of several calls; None where one of them lacks the count, or there is none."""
    return sum(filter(None, counts)) if counts and None not in counts else None


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
