"""Guards: what stands between an agent and untrusted text or tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def builtin() -> Mapping[str, Callable[[], Any]]:
    """Give the guards that come with the pack, name to what makes one."""
    from pytest_packbench.packs.agent_safety.guards.standard import Redact, Spotlight, ToolPolicy

    return {guard.name: guard for guard in (Spotlight, Redact, ToolPolicy)}
