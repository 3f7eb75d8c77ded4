"""Backends answer model calls: built-in ones, a module each, and those of installed distributions.

A backend's client is imported, and its key looked for, when the backend is opened. While a run has put the gateway's
address in the place of a model's, the environment keeps what the user has set, also for processes that tests start.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol

from pytest_packbench.model.run import RECORDED, STUB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.request import ModelAnswer, ModelRequest, Usage


BUILTIN = {"anthropic": "Anthropic", "openai": "OpenAI", "ollama": "Ollama"}
"""Built-in backends: the name of a module of this package, and of its class."""

_INTERNAL = {"json_server": "JsonServer"}
"""Backends that only packs name, for roles of their own."""

GROUP = "pytest_packbench.backends"
"""The entry-point group in which a distribution names its backends, each `name = "package.module:ClassOrFactory"`."""
_MEMBERS = ("name", "model", "temperature", "complete", "aclose")


class BackendError(RuntimeError):
    """A model call failed: an error of its case, never a refusal and never a score.

    Attributes:
        kind: the reason's name, for `errors.jsonl`: `timeout`, `network`, `rate_limit`, `overloaded`, `server_error`,
            `auth`, `bad_request` or `response_unreadable` (what came is no response of the provider's API).
        usage: tokens that the provider counted although the call failed; None where unknown.
    """

    def __init__(self, kind: str, message: str, *, usage: Usage | None = None) -> None:
        self.kind = kind
        self.usage = usage
        super().__init__(message)


class BackendUnusable(ValueError):  # noqa: N818 - a mistake in the configuration, not a failure of a call
    """A backend can't be opened, because a package, a key or a model's name is missing; one line with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """How a backend sends its requests.

    Attributes:
        model: the model's name; empty: the backend's default, where it has one.
        base_url: the server; empty: the client's own default.
        timeout_s: time limit of one call, seconds.
        retries: how often the client repeats a call after a temporary failure, at most.
        temperature: 0 to 2.
        max_output_tokens: length limit of an answer, tokens.
        connections: calls that may be in flight at once.
        on_overload: called for each response that reports overload (429, 503, 529), whether the call is repeated or
            not.
        on_retry: called for each repetition of a call.
        redactor: removes secrets from messages; None: one that knows the environment.
    """

    model: str = ""
    base_url: str = ""
    timeout_s: float = 120.0
    retries: int = 4
    temperature: float = 0.0
    max_output_tokens: int = 4096
    connections: int = 8
    on_overload: Callable[[], None] = lambda: None
    on_retry: Callable[[], None] = lambda: None
    redactor: Redactor | None = None


class Backend(Protocol):
    """Answers model calls: one client for the whole run, used from one event loop."""

    @property
    def name(self) -> str:
        """The backend's name, as in `--packbench-backend`."""

    @property
    def model(self) -> str:
        """The model's name as it is sent to the server."""

    @property
    def temperature(self) -> float | None:
        """The temperature of requests; None where the model accepts none."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; an answer that is cut off or does not have the requested form has a `problem`.

        Raises:
            BackendError: the call failed; the message contains no secret.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends, without importing one: built-in ones, then those of distributions."""
    return (*BUILTIN, *sorted(installed_backends().keys() - BUILTIN))


def is_backend(name: str) -> bool:
    """Whether a backend has this name; imports nothing, and looks at distributions only if no built-in one has it."""
    return name in BUILTIN or name in installed_backends()


def open_backend(name: str, options: BackendOptions) -> Backend:
    """Open a backend.

    Args:
        name: one of `backend_names`; a built-in backend comes before a distribution's of the same name.
        options: how it sends its requests.

    Raises:
        BackendUnusable: it can't be opened; says what to do.
    """
    own = BUILTIN | _INTERNAL
    if name in own:
        backend: Backend = getattr(import_module(f"{__name__}.{name}"), own[name])(options)
        return backend
    if name not in installed_backends():
        raise BackendUnusable(f'unknown backend "{name}"; expected one of {", ".join(backend_names())}')
    return _open_installed(installed_backends()[name], options)


@cache
def installed_backends() -> dict[str, EntryPoint]:
    """Return the backends of installed distributions by name; looked up once per process."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in {STUB, RECORDED}}


def _open_installed(entry: EntryPoint, options: BackendOptions) -> Backend:
    source = f'the entry point {entry.name} = "{entry.value}" of {GROUP}'
    try:
        backend: Any = entry.load()(options)
    except BackendUnusable:
        raise
    except (Exception, SystemExit) as error:
        raise BackendUnusable(f"{source} can't be opened: {_describe(error)}") from error
    missing = [member for member in _MEMBERS if not hasattr(backend, member)]
    if missing:
        raise BackendUnusable(f"{source} returned no backend: {type(backend).__name__} has no {', '.join(missing)}")
    opened: Backend = backend
    return opened


def _describe(error: BaseException) -> str:
    # a configuration error is one line
    return " ".join(f"{type(error).__name__}: {error}".split())


VARIABLE = "PACKBENCH_GATEWAY_ORIGINALS"
"""A JSON object: for each replaced variable the value in its place, and the original one, null where it was not set."""


def original(name: str) -> str:
    """Return a variable as the user has set it; empty where it is not set."""
    return originals(os.environ).get(name, "")


def originals(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as the user has set it."""
    before = dict(environment)
    for name, (replacement, value) in _replaced(environment).items():
        # the user's code may have set another value since
        if before.get(name) == replacement:
            del before[name]
            if value is not None:
                before[name] = value
    before.pop(VARIABLE, None)
    return before


def full_address(value: str, provider: str) -> str:
    """Return an address; Ollama's variable may be a host without a scheme, or the one that its server binds."""
    # a key would go to another's over plain HTTP
    if "://" not in value and provider == "ollama":
        host, _, path = value.partition("/")
        # as its own client completes it
        port = "" if re.search(r":\d+$", host) else ":11434"
        value = f"http://{'127.0.0.1' * host.startswith(':')}{host}{port}{'/' * bool(path)}{path}"
    return re.sub(r"(://|@)0\.0\.0\.0(?=[:/]|$)", r"\g<1>127.0.0.1", value).rstrip("/")


def replace_variables(environment: MutableMapping[str, str], values: Mapping[str, str]) -> None:
    """Set variables, and keep their originals."""
    before = originals(environment)
    kept = {**_replaced(environment), **{name: (value, before.get(name)) for name, value in values.items()}}
    environment.update(values)
    environment[VARIABLE] = json.dumps(kept)


def _replaced(environment: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    try:
        stored = json.loads(environment.get(VARIABLE) or "{}")
        return {name: (replacement, value) for name, (replacement, value) in stored.items()}
    except (ValueError, AttributeError, TypeError):
        return {}
