"""The reference target: the benchmark that a case belongs to runs it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

SCRIPTED = ("gullible", "obedient", "refuser")
"""The scripted agents: one obeys whoever speaks last, one does only what its user asks, one does nothing."""


class SafetyTarget:
    """Runs a case by its benchmark.

    Attributes:
        rules: the suite's rules.
    """

    def __init__(self, rules: SafetySuiteConfig) -> None:
        self.rules = rules

    def verify(self, request: VerifyRequest, context: VerifyContext) -> Any:
        """Give the result in the form of `docs/agent-safety.md`, or an awaitable of it."""
        # each benchmark has needs of its own: only the one that is asked for is imported
        benchmark = import_module(f"{__package__}.{request.input['suite']}.target")
        return benchmark.run(request, context, self.rules)
