"""What commands need of the agent-safety pack, and no run: importers, a starter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.model.authoring import Tools
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.agent_safety.agentdojo.importer import AgentDojoImporter
from pytest_packbench.packs.agent_safety.harmbench.importer import HarmBenchImporter
from pytest_packbench.packs.agent_safety.injecagent.importer import InjecAgentImporter

if TYPE_CHECKING:
    from pytest_packbench.model.authoring import Importer, Starter


class SafetyTools(Tools):
    """The tools of agent-safety suites."""

    # expected answers don't depend on a date
    dated = False

    def importers(self) -> tuple[Importer, ...]:
        """Return the importers of AgentDojo, HarmBench and InjecAgent."""
        return (AgentDojoImporter(), HarmBenchImporter(), InjecAgentImporter())

    def starter(self) -> Starter:
        """Return a suite of two harmless attacks in InjecAgent's form, and an agent that follows one of them."""
        return read_starter(__package__)
