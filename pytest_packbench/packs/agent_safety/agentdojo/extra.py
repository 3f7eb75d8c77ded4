"""Whether the extra `agentdojo` is here, told without importing it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

ADVICE = "AgentDojo is not installed: pip install 'pytest-packbench[agentdojo]'"


def missing() -> str:
    """Say in one line what to install; empty where nothing is missing."""
    try:
        version("agentdojo")
    except PackageNotFoundError:
        # a folder of this name may be importable without being the package
        return ADVICE
    return ""
