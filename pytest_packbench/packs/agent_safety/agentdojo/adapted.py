"""AgentDojo at half its cost and without a clock, with the same results: changes to its parts, in this process only."""

from __future__ import annotations

import gc
from datetime import datetime
from functools import cache, lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

import agentdojo.task_suite.task_suite as task_suites
import pydantic.networks
import yaml
from agentdojo.default_suites.v1.tools import cloud_drive_client, email_client
from agentdojo.default_suites.v1.travel.task_suite import TravelDeepDiff
from agentdojo.default_suites.v1.workspace.task_suite import WorkspaceDeepDiff

NOW = datetime(2024, 6, 1, 12)  # noqa: DTZ001 - AgentDojo's times have no zone
"""When everything happens: later than anything in AgentDojo's data."""

_ADDRESSES = 4096


@cache
def adapt() -> None:
    """Change what takes most of the time, and what makes two runs differ; once in a process."""
    _stop_the_clock()
    _read_yaml_in_c()
    _check_addresses_once()
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


def _stop_the_clock() -> None:
    # a tool that gives the time of day would make every recording outdated at once
    stopped = SimpleNamespace(datetime=SimpleNamespace(now=lambda: NOW))
    for tools in (email_client, cloud_drive_client):
        tools.datetime = stopped


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


def _check_addresses_once() -> None:
    # a pure function: each environment holds the same few addresses hundreds of times
    pydantic.networks.validate_email = lru_cache(_ADDRESSES)(pydantic.networks.validate_email)
