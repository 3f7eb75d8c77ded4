"""Who answers model calls: one file each, its client imported inside.

Opening one is the only place where keys are looked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_packbench.backends.base import Backend, BackendOptions

MODULES = {
    "anthropic": "pytest_packbench.backends.anthropic",
    "openai": "pytest_packbench.backends.openai",
    "ollama": "pytest_packbench.backends.ollama",
}
"""Backends that ask a model, by name; each module has `open_backend(options)`."""

STUB = "stub"
"""The backend whose scripted models come from a pack."""

RECORDED = "recorded"
"""Instead of a backend, in fixture mode: replay recordings, also where the suite names a scripted model."""


def open_backend(name: str, options: BackendOptions) -> Backend:
    """Open a backend.

    Args:
        name: one of `MODULES`.
        options: how it is to ask.

    Raises:
        BackendUnusable: its package, its key or its model's name is missing; says what to do.
    """
    backend: Backend = import_module(MODULES[name]).open_backend(options)
    return backend
