"""The kinds of `packbench import` that make cases of agent safety."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.packs.agent_safety.agentdojo.importer import AgentDojoImporter
from pytest_packbench.packs.agent_safety.harmbench.importer import HarmBenchImporter
from pytest_packbench.packs.agent_safety.injecagent.importer import InjecAgentImporter

if TYPE_CHECKING:
    from pytest_packbench.model.pack import Importer


def importers() -> tuple[Importer, ...]:
    """Give one of each; light, for every `packbench import` asks."""
    return (AgentDojoImporter(), HarmBenchImporter(), InjecAgentImporter())
