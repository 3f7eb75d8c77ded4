"""The package agentdojo: whether it is installed, and its import without the clients of four providers.

It is imported without the `__init__` of `agentdojo.agent_pipeline`: that imports those clients, most of AgentDojo's
import time, and nothing here uses them because models are called through `context.llm`. Other code that accesses a name
of that package still gets the package as published (`defer`).
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, module_from_spec
from threading import RLock
from typing import Any

ADVICE = "AgentDojo is not installed: pip install 'pytest-packbench[agentdojo]'"
PACKAGE = "agentdojo.agent_pipeline"


def adapt_pipeline(candidate: object) -> object:
    """Return a target that hands over a pipeline; any other object as it is."""
    # an object of this class exists only where its module is imported
    element = getattr(sys.modules.get(f"{PACKAGE}.base_pipeline_element"), "BasePipelineElement", None)
    if element is None or not isinstance(candidate, element):
        return candidate
    return lambda request: candidate  # noqa: ARG005 - the signature of all targets


def install_advice() -> str:
    """Return in one line what to install; empty where AgentDojo is installed."""
    try:
        version("agentdojo")
    except PackageNotFoundError:
        # not `find_spec`: a folder named agentdojo is importable without being the package
        return ADVICE
    return ""


def defer(name: str = PACKAGE) -> None:
    """Register a package in `sys.modules` so that its `__init__` runs on the first access to a name missing in it.

    Its submodules can be imported without running it; its parent package is imported. A package that is already
    imported, or doesn't exist, is left alone. Where its `__init__` fails, the next access runs it again.
    """
    # not `importlib.util.LazyLoader`: importing a submodule reads `__path__`, which makes that run the package
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return
    loader, module, lock = spec.loader, module_from_spec(spec), RLock()

    def load(attribute: str) -> Any:
        # `inspect` and others probe for special names; that needs no code of the package
        if attribute.startswith("__") and attribute != "__all__":
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        with lock:
            if module.__dict__.pop("__getattr__", None) is not None:
                try:
                    loader.exec_module(module)
                except BaseException:
                    vars(module)["__getattr__"] = load
                    raise
        return getattr(module, attribute)

    # a module calls the `__getattr__` in its dictionary for names that it doesn't have (PEP 562)
    vars(module)["__getattr__"] = load
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)
