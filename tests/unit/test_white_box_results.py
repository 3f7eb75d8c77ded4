"""Results of the original as documents: a wrong type, an error or a claim beside the code never becomes a pass."""

from __future__ import annotations

import asyncio
import re
import sys
from copy import deepcopy
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_packbench.api import score
from pytest_packbench.packs.tariff.white_box import document
from tests.unit.tariff_cases import case

PAGE = Path(__file__).parents[2] / "docs" / "import-white-box.md"
PLAIN = {"hts_code": "6404.11.9020", "duty_rate_pct": 20.0}
ACCEPTED = {
    "status": "verified",
    "iterations": [{"accepted": True, "rejected_because": []}],
    "tariff_dossier": {"baseline": PLAIN},
    "citation_gate_result": {"ok": True},
}
REFUSED = {"status": "refused", "iterations": [{"accepted": False, "rejected_because": ["missing"]}]}
ERROR = {"kind": "timeout", "message": "no answer"}


def scored(result: dict[str, Any], **expected: Any) -> tuple[float | None, str]:
    found = score(case(**expected), document(result), pack="tariff")
    return found.score, next((term.name for term in found.terms if term.effect == "zero"), found.verdict)


def with_dossier(**parts: Any) -> dict[str, Any]:
    return {**ACCEPTED, "tariff_dossier": {"baseline": PLAIN, **parts}}


UNREADABLE = {
    "accepted is a text": {**ACCEPTED, "iterations": [{"accepted": "false"}]},
    "a gate is a text": {**ACCEPTED, "citation_gate_result": {"ok": "false"}},
    "a rate is a text": with_dossier(baseline={**PLAIN, "duty_rate_pct": "20"}),
    "a rate is a flag": with_dossier(baseline={**PLAIN, "duty_rate_pct": True}),
    "a check is a number": {
        **ACCEPTED,
        "accepted": True,
        "lever_proof": {"selected_levers": [{"gate_results": {"plausibility": [{"ok": 1}]}}]},
    },
    "a refusal beside it": {**ACCEPTED, "refusal": {"category": "ambiguous"}},
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_value_of_another_type_is_unreadable(name: str) -> None:
    assert scored(ACCEPTED) == (1.0, "passed")
    assert scored(UNREADABLE[name]) == (0.0, "unreadable_answer")


CLAIMS: dict[str, dict[str, Any]] = {
    "a what-if": {"what_if_candidates": [{"estimated_duty_delta": -10.0}]},
    "a mutation": {"mutations": [{"expected_duty_rate_pct": 0.0}]},
    "an estimate": {"savings_estimate": {"usd": 10000}},
    "an amount": {"optimized": {"estimated_savings_per_unit": "5"}},
    "a rate without a code": {"optimized": {"duty_rate_pct": 0.0}},
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claimed_saving_counts_where_none_is_expected(name: str) -> None:
    assert scored(ACCEPTED, no_savings_expected=True) == (1.0, "passed")
    assert scored(with_dossier(**CLAIMS[name]), no_savings_expected=True) == (0.0, "no_savings_violation")


REFUSALS: dict[str, tuple[dict[str, Any], tuple[float | None, str]]] = {
    "rejected": (REFUSED, (1.0, "passed")),
    "reasons are a text": (
        {"status": "refused", "iterations": [{"accepted": False, "rejected_because": "crash"}]},
        (0.0, "unreadable_answer"),
    ),
    "an error beside reasons": ({**REFUSED, "error": ERROR}, (None, "error")),
    "a code that nothing rejected": (
        {"status": "refused", "tariff_dossier": {"baseline": PLAIN}, "proof": {"iterations": []}},
        (0.0, "contradictory_decision"),
    ),
    "the proposal that was rejected": ({**REFUSED, "tariff_dossier": {"baseline": PLAIN}}, (1.0, "passed")),
    "a document": (
        {"status": "refused", "refusal": {"category": "insufficient_info", "reason": "r"}},
        (1.0, "passed"),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_one_only_if_something_was_refused(name: str) -> None:
    result, wanted = REFUSALS[name]
    before = deepcopy(result)
    due = {"expected_accept": False, "expected_refusal_category": "insufficient_info"}
    assert (scored(result, **due), result) == (wanted, before)


def test_an_error_beside_an_answer_is_an_error() -> None:
    assert scored({**ACCEPTED, "error": ERROR}) == (None, "error")


def test_the_target_of_the_page_returns_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_input: str, _options: object) -> SimpleNamespace:
        return SimpleNamespace(model_dump=lambda mode: {**ACCEPTED, "proof": {"mode": mode}})

    registry: Any = ModuleType("trustai_core.packs.registry")
    registry.PackContext = SimpleNamespace
    registry.get_pack_runner = lambda _name, _context: SimpleNamespace(run=run)
    for name in ("trustai_core", "trustai_core.packs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, registry.__name__, registry)
    monkeypatch.setenv("TRUSTAI_TARIFF_FIXTURE", "")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    page: dict[str, Any] = {}
    exec(code, page)  # noqa: S102 - the example of our own page
    answer = asyncio.run(page["verify"](SimpleNamespace(input="shoes", options={})))
    assert score(case(), answer, pack="tariff").score == 1.0
