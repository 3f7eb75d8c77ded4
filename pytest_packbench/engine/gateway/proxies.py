"""The proxy of the environment between the gateway and a provider; none between a target and the gateway."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies_environment as proxies_of_environment
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["proxies_of_environment", "proxy_for", "route_text"]


def proxy_for(address: str, proxies: Mapping[str, str]) -> str:
    """Return the URL of the proxy through which an address is reached; empty where it is reached directly.

    Args:
        address: an URL; loopback is always reached directly.
        proxies: the proxies by scheme, and under `no` what is reached directly: hosts, domains and ports.
    """
    parts = urlsplit(address)
    try:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        # a call says that the address can't be read
        return ""
    url = proxies.get(parts.scheme) or proxies.get("all", "")
    if not url or f".{host}".endswith(".localhost") or proxy_bypass_environment(f"{host}:{port}", dict(proxies)):
        return ""
    with suppress(ValueError):
        ip = ip_address(host)
        # who asks 0.0.0.0 asks this machine
        if ip.is_loopback or ip.is_unspecified:
            return ""
    return url if "://" in url else f"http://{url}"


def route_text(address: str, proxies: Mapping[str, str]) -> str:
    """Return what follows an address in the header: its proxy, and whether that reads what is sent."""
    proxy = urlsplit(proxy_for(address, proxies))
    if not proxy.netloc:
        return ""
    readable = "" if address.startswith("https://") else ", which can read the key, because the address is http://"
    return f" through the proxy {proxy.scheme}://{proxy.netloc.rpartition('@')[2]}{readable}"
