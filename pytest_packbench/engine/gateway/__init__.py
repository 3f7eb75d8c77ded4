"""The gateway: a loopback endpoint between a target's own model clients and their providers.

It records and replays each case's calls, counts them, and obeys the run's caps. In fixture mode it can't forward
anything.
"""

from __future__ import annotations

from pytest_packbench.engine.gateway.exchanges import CaseTraffic, RecordedCall
from pytest_packbench.engine.gateway.service import Gateway

__all__ = ["CaseTraffic", "Gateway", "RecordedCall"]
