"""What every backend needs before its first call: its package, its key, a model's name, an address."""

from __future__ import annotations

import functools
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_packbench.backends import BackendUnusable

if TYPE_CHECKING:
    from types import ModuleType

NO_KEY = "no-key"
"""What a server of one's own gets as key where none is set: the clients send nothing without one."""

_HTTP_LIBRARIES = frozenset({"httpx", "httpx2"})

CONNECT_S = 10.0
"""The longest wait for a connection, seconds."""


def imported(package: str) -> ModuleType:
    """Import a provider's client.

    Raises:
        BackendUnusable: it isn't installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        name = getattr(error, "name", None)
        found = "" if name in {package, None} else f" (it lacks {name})"
        raise BackendUnusable(
            f"the backend {package} needs the package {package}{found}: pip install 'pytest-packbench[{package}]'"
        ) from None


def http_library(client: ModuleType) -> Any:
    """Give the HTTP library that a client is built on: `httpx2`, or `httpx` under older ones."""
    bases = client.DefaultAsyncHttpxClient.__mro__
    return import_module(next(base.__module__ for base in bases if base.__module__ in _HTTP_LIBRARIES))


@functools.cache
def tls_context(http: Any) -> Any:
    """Give an HTTP library's TLS settings, made once: reading the certificates costs more than the rest of a client."""
    return http.create_ssl_context()


def model_named(model: str, *, name: str, default: str = "") -> str:
    """Give the model's name.

    Raises:
        BackendUnusable: there is none.
    """
    if not (model or default):
        raise BackendUnusable(f"the backend {name} has no default model: name one with --packbench-model")
    return model or default


def key_from(variable: str, *, name: str, own_server: bool) -> str:
    """Read a key from the environment; a server of one's own needs none.

    Raises:
        BackendUnusable: it is missing, or no header can carry it.
    """
    key = os.environ.get(variable, "").strip()
    if not key and own_server:
        return NO_KEY
    if not key:
        raise BackendUnusable(
            f"the backend {name} needs a key: set the environment variable {variable} "
            "(or name a server of your own with --packbench-base-url)"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise BackendUnusable(f"{variable} holds characters that no header can carry: set it to the key alone")
    return key


def checked_url(url: str, *, name: str, bare_host: bool = False) -> str:
    """Check a server's address without ever showing it.

    A login or a query in it would stand in the clients' logs with every call.

    Args:
        url: the address.
        name: the backend.
        bare_host: whether it may lack its scheme.

    Raises:
        BackendUnusable: it isn't scheme, host, port and path only.
    """
    try:
        parts = urlsplit(url if "://" in url or not bare_host else f"http://{url}")
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname or (bare_host and "://" not in url))
        fine = fine and not (parts.username or parts.password or parts.query or parts.fragment) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise BackendUnusable(
            f"the base URL of the backend {name} isn't usable: expected http:// or https://, a host, perhaps a port "
            "and a path, and no user name, password or query"
        )
    return url
