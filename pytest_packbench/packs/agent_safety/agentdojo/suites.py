"""AgentDojo's suites and attacks, loaded once in a process."""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

from agentdojo.attacks.attack_registry import ATTACKS, load_attack
from agentdojo.attacks.base_attacks import DEFAULT_MODEL_NAME
from agentdojo.models import MODEL_NAMES
from agentdojo.task_suite.load_suites import get_suites

from pytest_packbench.packs.agent_safety.agentdojo.adapted import adapt

if TYPE_CHECKING:
    from agentdojo.attacks.base_attacks import BaseAttack
    from agentdojo.task_suite.task_suite import TaskSuite

NO_ATTACK = "none"
"""The attack that brings nothing: the environment as it is. A case with it has to come out vacuous."""

_ASKS_A_PERSON = "manual"
_LOCAL = "local"
_GPT = re.compile(r"gpt-(\d+(?:\.\d+)?)", re.IGNORECASE)


class UnknownUpstreamError(ValueError):
    """A case names a version, an environment, a task or an attack that AgentDojo doesn't have."""


@cache
def suite_of(version: str, environment: str) -> TaskSuite:
    """Give one of AgentDojo's suites.

    Args:
        version: the benchmark's version, such as `v1.2.2`.
        environment: `banking`, `slack`, `travel` or `workspace`.

    Raises:
        UnknownUpstreamError: there is no such version or environment.
    """
    adapt()
    suites = get_suites(version)
    if environment not in suites:
        known = f"known in {version}: {', '.join(suites)}" if suites else f"AgentDojo has no version {version}"
        raise UnknownUpstreamError(f'no environment is called "{environment}"; {known}')
    return suites[environment]


@cache
def attack_of(version: str, environment: str, attack: str, addressed: str) -> BaseAttack:
    """Give an attack on a suite; one object, for it remembers which places each user task reads.

    Args:
        version: see `suite_of`.
        environment: see `suite_of`.
        attack: the attack as AgentDojo registers it.
        addressed: how the attack calls the model; see `addressed_as`.

    Raises:
        UnknownUpstreamError: there is no such attack, or it asks a person.
    """
    if attack not in ATTACKS or attack == _ASKS_A_PERSON:
        known = ", ".join(sorted(set(ATTACKS) - {_ASKS_A_PERSON}))
        raise UnknownUpstreamError(f'no attack is called "{attack}"; known: {known}, {NO_ATTACK}')
    # an attack refuses a pipeline whose name holds none of the models that AgentDojo knows
    made = load_attack(attack, suite_of(version, environment), SimpleNamespace(name=_LOCAL))
    if hasattr(made, "model_name"):
        made.model_name = addressed
    return made


def addressed_as(backend: str, model: str) -> str:
    """Give the name by which an attack addresses a model: AgentDojo's for those it knows, else the family's.

    Args:
        backend: who answers.
        model: the model's name.
    """
    if backend == "stub":
        return str(MODEL_NAMES[_LOCAL])
    known = next((prose for name, prose in MODEL_NAMES.items() if name != _LOCAL and name in model), None)
    if known is not None:
        return str(known)
    if "claude" in model.lower():
        return "Claude"
    family = _GPT.search(model)
    return f"GPT-{family[1]}" if family else str(DEFAULT_MODEL_NAME)
