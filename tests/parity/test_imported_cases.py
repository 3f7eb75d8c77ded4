"""A case of the original that was imported scores each result as the case itself does."""

from __future__ import annotations

from typing import Any

from pytest_packbench.api import score
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.result import ResultError
from pytest_packbench.packs.tariff.white_box.cases import to_case
from pytest_packbench.packs.tariff.white_box.original import document
from tests.parity.test_parity import vectors


def answer(case: dict[str, Any], result: Any) -> object:
    try:
        return score(case, document(result), pack="tariff")
    except (CaseError, ResultError) as error:
        return str(error)


def test_an_import_changes_no_score() -> None:
    changed = [
        vector["n"]
        for vector in vectors("tariff_scoring.jsonl.gz")
        if answer(to_case(vector["case"]), vector["result"])
        != answer({**vector["case"], "pack_id": "tariff"}, vector["result"])
    ]
    assert changed == []
