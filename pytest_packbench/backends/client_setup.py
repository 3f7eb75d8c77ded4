"""What a backend needs before its first call: its package, a key, a model's name and an address."""

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
"""The key sent to a server of the user's own where none is set: the clients require one."""

_HTTP_LIBRARIES = frozenset({"httpx", "httpx2"})

CONNECT_S = 10.0
"""Time limit of opening a connection, seconds."""


def import_client(package: str) -> ModuleType:
    """Import a provider's client.

    Raises:
        BackendUnusable: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        name = getattr(error, "name", None)
        missing = "" if name in {package, None} else f" ({name} is missing)"
        raise BackendUnusable(
            f"the backend {package} needs the package {package}{missing}: pip install 'pytest-packbench[{package}]'"
        ) from None


def http_library(client: ModuleType) -> Any:
    """Return the HTTP library that a client uses: `httpx2`, or `httpx` under older clients."""
    bases = client.DefaultAsyncHttpxClient.__mro__
    return import_module(next(base.__module__ for base in bases if base.__module__ in _HTTP_LIBRARIES))


@functools.cache
def tls_context(http: Any) -> Any:
    """Return an HTTP library's TLS settings, created once: reading the certificates is most of the cost of a client."""
    return http.create_ssl_context()


def required_model(model: str, *, name: str, default: str = "") -> str:
    """Return the model's name, else the default.

    Raises:
        BackendUnusable: there is neither.
    """
    if not (model or default):
        raise BackendUnusable(f"the backend {name} has no default model: set --packbench-model")
    return model or default


def api_key(variable: str, *, name: str, own_server: bool) -> str:
    """Return the key from an environment variable; a server of the user's own needs none.

    Raises:
        BackendUnusable: it is missing, or is not valid in an HTTP header.
    """
    key = os.environ.get(variable, "").strip()
    if not key and own_server:
        return NO_KEY
    if not key:
        raise BackendUnusable(
            f"the backend {name} needs a key: set the environment variable {variable} "
            "(or set --packbench-base-url for your own server)"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise BackendUnusable(
            f"{variable} contains characters that are invalid in an HTTP header: set it to the key alone"
        )
    return key


def check_url(url: str, *, name: str, bare_host: bool = False) -> str:
    """Check a server's address; the error does not contain it, since it may contain a password.

    With `bare_host` the scheme may be missing. A login or a query is refused: the clients log it with every call.

    Raises:
        BackendUnusable: it is not just scheme, host, port and path.
    """
    try:
        parts = urlsplit(url if "://" in url or not bare_host else f"http://{url}")
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname or (bare_host and "://" not in url))
        valid = valid and not (parts.username or parts.password or parts.query or parts.fragment) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise BackendUnusable(
            f"the base URL of the backend {name} is invalid: expected http:// or https://, a host, an optional port "
            "and path, and no user name, password or query"
        )
    return url
