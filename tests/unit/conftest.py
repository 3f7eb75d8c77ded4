"""How hypothesis tries, and what CPU time is compared with: seconds say more of the machine than of the code."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile("packbench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "first_failure",  # for measurements: the smallest example is of no use there, and takes minutes
    settings.get_profile("packbench"),
    phases=[Phase.explicit, Phase.generate],
    database=None,
    derandomize=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "packbench"))


@pytest.fixture(scope="session")
def yardstick() -> float:
    """CPU time of a fixed piece of work, seconds: some 0.04."""

    def once() -> float:
        before = time.process_time()
        sum(number * number for number in range(1_000_000))
        return time.process_time() - before

    return min(once() for _ in range(3))
