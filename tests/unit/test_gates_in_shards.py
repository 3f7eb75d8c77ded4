"""A shard decides only what the merged run can't undo: a case that has no verdict."""

from __future__ import annotations

import pytest

from pytest_packbench.analysis.gates import deferred
from pytest_packbench.model.suite import GateResult


@pytest.mark.parametrize(
    ("metric", "least", "observed", "passed", "is_judged"),
    [
        ("completeness", 1.0, 0.5, False, True),
        ("completeness", 1.0, 1.0, True, False),
        ("completeness", 1.0, None, False, False),
        ("completeness", 0.9, 0.5, False, False),
        ("completeness", 2.0, 0.5, False, False),
        ("pass_rate", 1.0, 0.5, False, False),
    ],
)
def test_only_a_missing_case_fails_a_shard(
    metric: str, least: float, observed: float | None, passed: bool, is_judged: bool
) -> None:
    result = GateResult(
        metric=metric,
        by=None,
        value=None,
        passed=passed,
        observed=observed,
        min=least,
        max=None,
        text="t",
        interval=(0.0, 1.0),
    )
    (found,) = deferred([result], "shard")
    assert found == result if is_judged else not found.judged
    if not is_judged:
        assert (found.passed, found.observed, found.interval) == (True, None, None)
        assert found.text.startswith(f"{metric}: not judged in a shard; packbench merge judges it")
