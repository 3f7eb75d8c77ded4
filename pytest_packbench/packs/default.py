"""The pack of a new suite where nobody names one."""

from __future__ import annotations

DEFAULT_PACK = "generic"
