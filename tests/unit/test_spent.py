"""What a live run says that it used."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_packbench.reports.terminal import spent_text

NOTHING: dict[str, Any] = {"calls": 0, "tokens": 0, "uncounted": 0, "cost": 0.0, "currency": "USD"}
OURS = "used: no model calls through packbench; "


@pytest.mark.parametrize(
    ("spent", "said"),
    [
        ({}, "used: 0 model calls, 0 tokens, 0.0000 USD"),
        ({"uncounted": 1}, f"{OURS}1 answer of the target without a token count, cost unknown"),
        (
            {"uncounted": 2, "tokens": 1200},
            f"{OURS}2 answers of the target without a token count, 1,200 tokens reported with others, cost unknown",
        ),
        ({"calls": 2, "uncounted": 1}, "used: 2 model calls, 0 tokens (1 call without a token count), 0.0000 USD"),
    ],
)
def test_what_a_target_asks_by_itself_is_no_call_of_ours(spent: dict[str, Any], said: str) -> None:
    assert spent_text({**NOTHING, **spent}) == said
