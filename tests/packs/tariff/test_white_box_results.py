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
from tests.packs.tariff.cases import case, table

PAGE = Path(__file__).parents[3] / "docs" / "import-white-box.md"
TABLE = table("white_box_results")
ACCEPTED = TABLE["accepted"]
PLAIN = {"hts_code": "6404.11.9020", "duty_rate_pct": 20.0}


def scored(result: dict[str, Any], **expected: Any) -> tuple[float | None, str]:
    found = score(case(**expected), document(result), pack="tariff")
    return found.score, next((term.name for term in found.terms if term.effect == "zero"), found.verdict)


def with_dossier(**parts: Any) -> dict[str, Any]:
    return {**ACCEPTED, "tariff_dossier": {"baseline": PLAIN, **parts}}


@pytest.mark.parametrize("name", TABLE["unreadable"])
def test_a_value_of_another_type_is_unreadable(name: str) -> None:
    assert scored(ACCEPTED) == (1.0, "passed")
    assert scored({**ACCEPTED, **TABLE["unreadable"][name]}) == (0.0, "unreadable_answer")


@pytest.mark.parametrize("name", TABLE["claims"])
def test_a_claimed_saving_counts_where_none_is_expected(name: str) -> None:
    assert scored(ACCEPTED, no_savings_expected=True) == (1.0, "passed")
    assert scored(with_dossier(**TABLE["claims"][name]), no_savings_expected=True) == (0.0, "no_savings_violation")


@pytest.mark.parametrize("name", TABLE["refusals"])
def test_a_refusal_is_one_only_if_something_was_refused(name: str) -> None:
    result, wanted = TABLE["refusals"][name]
    before = deepcopy(result)
    due = {"expected_accept": False, "expected_refusal_category": "insufficient_info"}
    assert (scored(result, **due), result) == (tuple(wanted), before)


def test_an_error_beside_an_answer_is_an_error() -> None:
    assert scored({**ACCEPTED, "error": {"kind": "timeout", "message": "no answer"}}) == (None, "error")


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
