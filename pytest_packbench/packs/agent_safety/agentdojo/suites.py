"""AgentDojo's suites and attacks, loaded once in a process, faster than upstream and with the same results."""

from __future__ import annotations

import gc
import re
from datetime import datetime
from functools import cache, lru_cache
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import agentdojo.task_suite.task_suite as task_suites
import pydantic.networks
import yaml
from agentdojo.attacks.attack_registry import ATTACKS, load_attack
from agentdojo.attacks.base_attacks import DEFAULT_MODEL_NAME
from agentdojo.default_suites.v1.tools import cloud_drive_client, email_client
from agentdojo.default_suites.v1.travel.task_suite import TravelDeepDiff
from agentdojo.default_suites.v1.workspace.task_suite import WorkspaceDeepDiff
from agentdojo.models import MODEL_NAMES
from agentdojo.task_suite.load_suites import get_suites

if TYPE_CHECKING:
    from agentdojo.attacks.base_attacks import BaseAttack
    from agentdojo.task_suite.task_suite import TaskSuite


NOW = datetime(2024, 6, 1, 12)  # noqa: DTZ001 - AgentDojo's times have no zone
"""When everything happens: later than anything in AgentDojo's data."""
NO_ATTACK = "none"
"""The attack that brings nothing: the environment as it is. A case with it has to come out vacuous."""
_ADDRESSES = 4096
_ASKS_A_PERSON = "manual"
_LOCAL = "local"
_GPT = re.compile(r"gpt-(\d+(?:\.\d+)?)", re.IGNORECASE)


@cache
def adapt() -> None:
    """Change what takes most of the time, and what makes two runs differ; once in a process."""
    # a tool that gives the time of day would make every recording outdated at once
    stopped = SimpleNamespace(datetime=SimpleNamespace(now=lambda: NOW))
    for tools in (email_client, cloud_drive_client):
        tools.datetime = stopped
    _read_yaml_in_c()
    # a pure function: each environment holds the same few addresses hundreds of times
    pydantic.networks.validate_email = lru_cache(_ADDRESSES)(pydantic.networks.validate_email)
    for differ in (TravelDeepDiff, WorkspaceDeepDiff):
        differ.keywords.setdefault("custom_operators", [SkipEqual()])
    # AgentDojo's imports leave a million objects that stay: no collection has to look at them again
    gc.collect()
    gc.freeze()


class SkipEqual:
    """Tells DeepDiff not to walk through what is equal: an environment is the same but for one or two places."""

    def match(self, level: Any) -> bool:
        """Whether both sides are equal and of one type."""
        return type(level.t1) is type(level.t2) and bool(level.t1 == level.t2)

    def give_up_diffing(self, level: Any, diff_instance: Any) -> bool:  # noqa: ARG002 - DeepDiff's own signature
        """Leave what matched: there is no difference in it."""
        return True


def _read_yaml_in_c() -> None:
    loader = getattr(yaml, "CSafeLoader", None)
    if loader is None:
        return
    fast = ModuleType(yaml.__name__)
    fast.__dict__.update(yaml.__dict__)

    def safe_load(text: str) -> Any:
        return yaml.load(text, Loader=loader)  # noqa: S506 - the safe loader, in C

    fast.safe_load = safe_load  # type: ignore[attr-defined]  # a module takes attributes
    # AgentDojo's name for the module, not the module: nobody else's YAML changes
    task_suites.yaml = fast


class UnknownUpstreamError(ValueError):
    """A case names a version, an environment, a task or an attack that AgentDojo doesn't have."""


@cache
def suite_of(version: str, environment: str) -> TaskSuite:
    """Give the suite of an environment, such as `banking`, in a version of the benchmark, such as `v1.2.2`.

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

    It calls the model as `addressed_as` says.

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
    """Give the name by which an attack addresses a model: AgentDojo's for those it knows, else the family's."""
    if backend == "stub":
        return str(MODEL_NAMES[_LOCAL])
    known = next((prose for name, prose in MODEL_NAMES.items() if name != _LOCAL and name in model), None)
    if known is not None:
        return str(known)
    if "claude" in model.lower():
        return "Claude"
    family = _GPT.search(model)
    return f"GPT-{family[1]}" if family else str(DEFAULT_MODEL_NAME)
