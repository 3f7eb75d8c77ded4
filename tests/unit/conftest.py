"""How hypothesis tries: how long an example takes says more of the machine than of the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("packbench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("packbench")
