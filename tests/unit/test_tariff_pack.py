"""The tariff pack as the engine uses it: facts of the record, facets, request and explanation."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.registry import builtin
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.unit.tariff_cases import Json, case, result_of, rules, table

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

PACK = TariffPack()
EXPLANATIONS = table("tariff_explanations")


def test_it_is_built_in_under_its_name() -> None:
    packs = builtin()
    assert isinstance(packs["tariff"], TariffPack)
    assert all(pack.name == name for name, pack in packs.items())


@pytest.mark.parametrize(
    ("plain", "facets"),
    [
        (case(), {"chapter": "64"}),
        (case(preferred_hts=["8544.42", "64"], tags=("chapter_90",)), {"chapter": "85"}),
        (case(expected_accept=False, tags=("gri_3b", "chapter_07")), {"chapter": "07"}),
        (case(expected_accept=False, tags=("chapter_7", "chapter_777")), {}),
        (case(expected_accept=False), {}),
    ],
)
def test_the_chapter_is_a_facet(plain: Json, facets: dict[str, str]) -> None:
    assert PACK.facets(TariffCase.model_validate(plain)) == facets


def test_the_request_is_the_verify_request_of_the_reference_target() -> None:
    plain = case()
    plain["input"] |= {"options": {"max_iters": 2}, "evidence": [{"source_id": "spec_1", "text": "rubber sole"}]}
    assert PACK.request(TariffCase.model_validate(plain)).as_json() == {
        "input": plain["input"]["input"],
        "options": {"max_iters": 2, "candidate_chapters": []},
        "evidence": [{"source_id": "spec_1", "text": "rubber sole", "title": None}],
    }
    assert list(inspect.signature(PACK.target(rules())).parameters) == ["request", "context"]


def test_expected_and_actual_values_are_explained(expected: ExpectedTexts) -> None:
    lines = []
    for name, row in EXPLANATIONS.items():
        checked = TariffCase.model_validate(case(**row.get("case", {})))
        rows = PACK.explain(checked, PACK.read(result_of(row.get("answer", {}))))
        lines += [name, *(f"    {row.what}: {row.expected} | {row.actual}" for row in rows)]
    expected.check("\n".join(lines) + "\n")
