"""How hypothesis tries: how long an example takes says more of the machine than of the code."""

from __future__ import annotations

import os

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
