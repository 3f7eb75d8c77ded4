"""AgentDojo's package of agents, executed when somebody asks it for something; and whether AgentDojo is installed.

Its `__init__` imports the clients of four providers, which take most of AgentDojo's import and which nothing here uses:
a model is asked through `context.llm`. The modules in it that are used are imported as they are; whoever asks the
package itself for a name gets the package as published.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


ADVICE = "AgentDojo is not installed: pip install 'pytest-packbench[agentdojo]'"


def missing() -> str:
    """Say in one line what to install; empty where nothing is missing."""
    try:
        version("agentdojo")
    except PackageNotFoundError:
        # a folder of this name may be importable without being the package
        return ADVICE
    return ""


PACKAGE = "agentdojo.agent_pipeline"
_LOADING = RLock()


class DeferredPackage(ModuleType):
    """A package whose `__init__` runs when a name is missed."""

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
    spec: ModuleSpec | None = find_spec(name)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return
    module = module_from_spec(spec)
    module.__class__ = DeferredPackage
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)
