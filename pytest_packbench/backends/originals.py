"""The addresses of models as the user has set them, while a run has put the gateway's in their place.

The environment keeps them, so that processes that tests start know them as well.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

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
