"""AgentDojo's suites and attacks, loaded once per process, faster than upstream and with the same results."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache, lru_cache, partial, wraps
from importlib import import_module
from inspect import isfunction
from threading import RLock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import agentdojo.task_suite.task_suite as task_suites
import pydantic.networks
import yaml
from agentdojo.attacks.attack_registry import ATTACKS
from agentdojo.attacks.base_attacks import DEFAULT_MODEL_NAME, BaseAttack
from agentdojo.default_suites.v1.tools import cloud_drive_client, email_client
from agentdojo.default_suites.v1.travel.task_suite import TravelDeepDiff
from agentdojo.default_suites.v1.workspace.task_suite import WorkspaceDeepDiff
from agentdojo.models import MODEL_NAMES
from agentdojo.task_suite.load_suites import get_suites

from pytest_packbench.packs.agent_safety.episode import NoEpisodeError
from pytest_packbench.packs.agent_safety.metrics import NO_ATTACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentdojo.task_suite.task_suite import TaskSuite


NOW = datetime(2024, 6, 1, 12)  # noqa: DTZ001 - AgentDojo's times have no zone
"""The time of day in every run: later than anything in AgentDojo's data."""
_MAX_ADDRESSES = 4096
_ABSENT = object()
_SET_BY_PYTHON = frozenset({"__slotnames__", "__annotations__", "__annotations_cache__", "__signature__"})
_INTERACTIVE = "manual"
_LOCAL = "local"
_GPT = re.compile(r"gpt-(\d+(?:\.\d+)?)", re.IGNORECASE)


@cache
def adapt() -> None:
    """Make AgentDojo faster and its runs repeatable: only attributes of AgentDojo's own modules stay replaced."""
    # a tool that returns the time of day would make every recording stale at once
    stopped_clock = SimpleNamespace(datetime=SimpleNamespace(now=lambda: NOW))
    for tools in (email_client, cloud_drive_client):
        tools.datetime = stopped_clock
    _use_c_yaml_loader()
    _cache_addresses_while_loading()
    for deep_diff in (TravelDeepDiff, WorkspaceDeepDiff):
        deep_diff.keywords.setdefault("custom_operators", [SkipEqual()])


class SkipEqual:
    """Makes DeepDiff skip equal objects: two environments differ in one or two places only."""

    def match(self, level: Any) -> bool:
        """Return whether both sides are equal and of the same type."""
        return type(level.t1) is type(level.t2) and bool(level.t1 == level.t2)

    def give_up_diffing(self, level: Any, diff_instance: Any) -> bool:  # noqa: ARG002 - DeepDiff's own signature
        """Report no difference for a match."""
        return True


def _use_c_yaml_loader() -> None:
    loader = getattr(yaml, "CSafeLoader", None)
    if loader is None:
        return
    # the name `yaml` in AgentDojo's module, so that nobody else's YAML changes; the safe loader, in C
    task_suites.yaml = SimpleNamespace(**vars(yaml) | {"safe_load": partial(yaml.load, Loader=loader)})


def _cache_addresses_while_loading() -> None:
    """Cache the validation of e-mail addresses, for everybody, while an environment is loaded.

    An environment contains the same few addresses hundreds of times: validating them is a quarter of a pair's time.
    """
    load = task_suites.TaskSuite.load_and_inject_default_environment
    cached = lru_cache(_MAX_ADDRESSES)(pydantic.networks.validate_email)
    lock = RLock()

    @wraps(load)
    def load_with_cache(suite: TaskSuite, injections: dict[str, str]) -> Any:
        # one thread at a time, which costs nothing: loading waits for nothing
        with lock:
            original, pydantic.networks.validate_email = pydantic.networks.validate_email, cached
            try:
                return load(suite, injections)
            finally:
                pydantic.networks.validate_email = original

    task_suites.TaskSuite.load_and_inject_default_environment = load_with_cache


class UnknownUpstreamError(NoEpisodeError):
    """A case names a version, environment, task or attack that AgentDojo doesn't have."""

    kind = "unknown_upstream"


@cache
def suite_of(version: str, environment: str) -> TaskSuite:
    """Return the suite of an environment, such as `banking`, in a version of the benchmark, such as `v1.2.2`.

    Raises:
        UnknownUpstreamError: there is no such version or environment.
    """
    adapt()
    suites = get_suites(version)
    if environment not in suites:
        if not suites:
            raise UnknownUpstreamError(f'unknown AgentDojo version "{version}"; use a version of the installed package')
        expected = ", ".join(suites)
        raise UnknownUpstreamError(f'unknown environment "{environment}" in {version}; expected one of {expected}')
    # of all environments: what runs later may change those of a later case
    _loaded_parts(version)
    return suites[environment]


def changed_part(version: str, environment: str) -> str:
    """Return which part of a suite is not as it was loaded, as a dotted name; empty if nothing has changed.

    Code of the user that runs in this process can replace AgentDojo's checkers, or change its texts.
    """
    before, now = _loaded_parts(version)[environment], _parts_of(suite_of(version, environment))
    return next((name for name in {**before, **now} if before.get(name, _ABSENT) is not now.get(name, _ABSENT)), "")


@cache
def _loaded_parts(version: str) -> dict[str, dict[str, object]]:
    return {name: _parts_of(suite) for name, suite in get_suites(version).items()}


def _parts_of(suite: TaskSuite) -> dict[str, object]:
    """Return what decides how a pair ends, by dotted name: tasks with their attributes, tools, and the runner."""
    tasks = (*suite.user_tasks.values(), *suite.injection_tasks.values())
    owners = dict.fromkeys(owner for one in (suite, *tasks) for owner in type(one).__mro__)
    whole: dict[str, object] = {
        task_suites.__name__: task_suites,
        **{f"{suite.name}.{task.ID}": task for task in tasks},
        **{f"{suite.name}.{tool.name}": tool for tool in suite.tools},
        **{f"{one.__module__}.{one.__qualname__}": one for one in owners if one.__module__.startswith("agentdojo.")},
    }
    parts = {
        f"{name}.{inner}": part
        for name, one in whole.items()
        for inner, part in list(vars(one).items())
        if inner not in _SET_BY_PYTHON and (callable(part) or one is not task_suites)
    } | whole
    return parts | {
        f"{name}.__code__": function.__code__
        for name, part in parts.items()
        if isfunction(function := getattr(part, "__func__", part))
    }


@cache
def attack_of(version: str, environment: str, attack: str, addressed: str, path: str = "") -> BaseAttack:
    """Return an attack on a suite; one object per suite, because it caches which injection points each user task reads.

    It addresses the model by `addressed`, the result of `addressed_as`. With a path it is the user's own.

    Raises:
        UnknownUpstreamError: there is no such attack, or it needs a person at the keyboard.
    """
    if not path and (attack not in ATTACKS or attack == _INTERACTIVE):
        expected = ", ".join(sorted(set(ATTACKS) - {_INTERACTIVE}))
        raise UnknownUpstreamError(f'unknown attack "{attack}"; expected one of {expected}, {NO_ATTACK}')
    # an attack rejects a pipeline whose name contains none of the models that AgentDojo knows
    pipeline = SimpleNamespace(name=_LOCAL)
    loaded = (_own_attack(attack, path) if path else ATTACKS[attack])(suite_of(version, environment), pipeline)
    if hasattr(loaded, "model_name"):
        loaded.model_name = addressed
    return loaded


def addressed_as(backend: str, model: str) -> str:
    """Return the name by which an attack addresses a model: AgentDojo's where it has one, else the model family's."""
    if backend == "stub":
        return str(MODEL_NAMES[_LOCAL])
    known = next((prose for name, prose in MODEL_NAMES.items() if name != _LOCAL and name in model), None)
    if known is not None:
        return str(known)
    if "claude" in model.lower():
        return "Claude"
    family = _GPT.search(model)
    return f"GPT-{family[1]}" if family else str(DEFAULT_MODEL_NAME)


class OwnAttack(BaseAttack):  # type: ignore[misc]  # the extra may be absent where types are checked
    """An attack by a function of the user: it gets the attacker's goal, the user's prompt and the model's name.

    Its text is planted where AgentDojo's attacks are: at each place that the solution of the user's task reads.
    """

    model_name = ""

    def __init__(self, name: str, function: Callable[[str, str, str], object], *of_upstream: Any) -> None:
        super().__init__(*of_upstream)
        self.name = name
        self._function = function

    def attack(self, user_task: Any, injection_task: Any) -> dict[str, str]:
        """Return the text by the place where it is planted.

        Raises:
            UnknownUpstreamError: the function raised an exception, or returned no text.
        """
        try:
            text = self._function(injection_task.GOAL, user_task.PROMPT, self.model_name)
        except Exception as error:
            raise UnknownUpstreamError(f"attack {self.name} raised {type(error).__name__}: {error}") from error
        if not isinstance(text, str) or not text.strip():
            raise UnknownUpstreamError(f"attack {self.name} returned {type(text).__name__}; expected a text")
        return dict.fromkeys(self.get_injection_candidates(user_task), text)


def _own_attack(name: str, path: str) -> Callable[..., BaseAttack]:
    """Return what makes an attack of the user's own on a suite, for a pipeline.

    Args:
        name: its name in `attacks` of `suite.yaml`.
        path: `MODULE:NAME` of a function that returns the text, or of a class of AgentDojo's form (`BaseAttack`).

    Raises:
        UnknownUpstreamError: it can't be loaded.
    """
    module, _, attribute = path.removeprefix("python:").partition(":")
    try:
        loaded: Any = getattr(import_module(module), attribute)
    except Exception as error:
        wrong = f"attack {name}: {path} can't be loaded: {type(error).__name__}: {error}"
        raise UnknownUpstreamError(f"{wrong}; expected MODULE:FUNCTION") from error
    if isinstance(loaded, type) and issubclass(loaded, BaseAttack):
        return loaded
    return partial(OwnAttack, name, loaded)
