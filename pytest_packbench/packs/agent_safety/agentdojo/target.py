"""The reference target for AgentDojo: a pair, run by AgentDojo's tools, checkers and attack, with guards in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.agent_safety.agentdojo.upstream import defer, install_advice
from pytest_packbench.packs.agent_safety.episode import NoEpisodeError

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig
    from pytest_packbench.packs.agent_safety.worlds import AgentWorld


def run(request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:
    """Run a pair with the scripted agent or the model of the context, behind its guards.

    Returns:
        The episode as plain JSON; an `error` where the extra is not installed, or where the case or the agent name
        something that AgentDojo doesn't have.

    Raises:
        GuardError: a guard raised an exception.
        BackendError: a model call failed.
    """
    try:
        _install()
        from pytest_packbench.packs.agent_safety.agentdojo.agents import run_pair

        return run_pair(request, context, rules).as_json()
    except NoEpisodeError as error:
        return error.as_json()


def open_world(request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig, agent: str) -> AgentWorld:
    """Return the world of a pair, for an agent of the user.

    Raises:
        NoEpisodeError: the extra is not installed, a guard can't meet such an agent, or the case is for the reference
            target only, or names something that AgentDojo doesn't have.
    """
    _install()
    from pytest_packbench.packs.agent_safety.agentdojo.world import DojoWorld

    pair = request.input
    if pair.get("any_of") or pair.get("variant"):
        what = f"the variant {pair['variant']}" if pair.get("variant") else "any of several attacks"
        problem = "only the reference target runs it; import the pairs without it"
        raise NoEpisodeError(f"{what}: {problem}", "unknown_upstream")
    repeating = [str(guard.name) for guard in context.guards if getattr(guard, "repeats_prompt", False)]
    if repeating:
        problem = "repeats the prompt in the conversation, which an agent of your own keeps itself"
        wrong = f"the guard {repeating[0]} {problem}; leave it out (--packbench-guard)"
        raise NoEpisodeError(wrong, "guards_unused")
    return DojoWorld(request, context, rules, agent)


def _install() -> None:
    """Prepare the import of AgentDojo; raises `NoEpisodeError` where it is not installed."""
    if advice := install_advice():
        raise NoEpisodeError(advice, "extra_missing")
    defer()
