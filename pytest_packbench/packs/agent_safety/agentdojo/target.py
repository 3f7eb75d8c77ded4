"""One pair of AgentDojo, run by AgentDojo: its tools, its checkers, its attack, with guards in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.agent_safety.agentdojo.deferred import missing

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig


def run(request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig) -> dict[str, Any]:  # noqa: ARG001 - every benchmark is given the rules
    """Run a pair.

    Args:
        request: its input is a `SafetyInput` of the suite `agentdojo`.
        context: names the scripted agent or answers for the model, and brings the guards.
        rules: the suite's rules.

    Returns:
        The result in the form of `docs/agent-safety.md`; with `error` where the extra is missing, or where the case or
        the agent names what AgentDojo doesn't have.

    Raises:
        GuardError: a guard broke.
        BackendError: a model call broke.
    """
    advice = missing()
    if advice:
        return {"error": {"kind": "extra_missing", "message": advice}}
    from pytest_packbench.packs.agent_safety.agentdojo.deferred import defer

    defer()
    from pytest_packbench.packs.agent_safety.agentdojo.pair import play

    return play(request.input, context)
