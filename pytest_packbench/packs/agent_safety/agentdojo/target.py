"""One pair of AgentDojo, run by AgentDojo: its tools, its checkers, its attack, with guards in between.

AgentDojo is imported only here and below, and without the `__init__` of its package of agents: that imports the clients
of four providers, which take most of AgentDojo's import and which nothing here uses, since a model is asked through
`context.llm`. The modules in it that are used are imported as they are; whoever asks the package itself for a name gets
the package as published.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

ADVICE = "AgentDojo is not installed: pip install 'pytest-packbench[agentdojo]'"
PACKAGE = "agentdojo.agent_pipeline"
_LOADING = RLock()


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
    defer()
    from pytest_packbench.packs.agent_safety.agentdojo.pair import play

    return play(request.input, context)


def missing() -> str:
    """Say in one line what to install; empty where nothing is missing."""
    try:
        version("agentdojo")
    except PackageNotFoundError:
        # a folder of this name may be importable without being the package
        return ADVICE
    return ""


class DeferredPackage(ModuleType):
    """A package whose `__init__` runs when somebody misses a name in it."""

    def __getattr__(self, name: str) -> Any:
        """Run the package's own code, once, and look again.

        Raises:
            AttributeError: the package has no such name.
            ImportError: the package can't be imported; it is tried again next time.
        """
        # whoever only looks at a module, as `inspect` does, needs nothing run
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _LOADING:
            if type(self) is DeferredPackage:
                # from here on a module like any other
                self.__class__ = ModuleType  # type: ignore[assignment]  # it is one
                try:
                    self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]  # `defer` saw to it
                except BaseException:
                    self.__class__ = DeferredPackage
                    raise
        return getattr(self, name)


def defer(name: str = PACKAGE) -> None:
    """Put a package in place without running it; nothing where it is imported already or doesn't exist.

    Args:
        name: the package, dotted; the one above it is imported.
    """
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return
    module = module_from_spec(spec)
    module.__class__ = DeferredPackage
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)
