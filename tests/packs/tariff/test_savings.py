"""What an answer says of savings is true or false: rows of `data/tariff_savings.yaml`."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.api import load_suite, score
from tests.packs.tariff.cases import Json, case, refusal, table

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.result import Score

TABLE = table("savings")
GROUPS = ("right answers", "wrong targets", "wrong levers", "wrong rates", "too small a saving", "no savings")
ROWS: dict[str, Json] = {f"{group}: {name}": row for group in GROUPS for name, row in TABLE[group].items()}
RULES = {"pack": "tariff", "scored_code": "baseline", "schedule": "us_2026_revision_10"}


def answer_of(row: Json) -> Json:
    """The right answer with the values that a row sets."""
    result: Json = {
        "status": "verified",
        "citation_gate_result": {"ok": True},
        "tariff_dossier": deepcopy(TABLE["answer"]),
    }
    for place, value in row.get("set", {}).items():
        *above, last = place.replace("dossier/", "tariff_dossier/", 1).split("/")
        part: Any = result
        for key in above:
            part = part[int(key)] if isinstance(part, list) else part.setdefault(key, {})
        part[last] = deepcopy(value)
    return result


def score_of(row: Json, folder: Path, result: Json | None = None) -> Score:
    plain = case(**{**TABLE["expected"], **row.get("expected", {})})
    plain["input"]["options"] = {"changes": row.get("changes", TABLE["changes"])}
    lines = (f"{key}: {value}\n" for key, value in {**RULES, **row.get("rules", {})}.items() if value is not None)
    (folder / "cases").mkdir()
    (folder / "suite.yaml").write_text("".join(lines), "utf-8")
    return score(plain, answer_of(row) if result is None else result, suite=load_suite(folder))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_saving_is_true_or_its_untruth_is_a_hard_fail(row: Json, tmp_path: Path) -> None:
    result = score_of(row, tmp_path)
    zeros = {term.name: term.detail for term in result.terms if term.effect == "zero"}
    zeros |= {term.name: term.detail for term in result.terms if term.name == "unreadable_answer"}
    because = row.get("because")
    assert (result.score, because in zeros) == (1.0 if because is None else 0.0, because is not None), result.terms
    assert "note" not in row or row["note"] in [term.name for term in result.terms if term.effect == "note"]
    assert not any("\n" in term.detail for term in result.terms)


def test_of_many_wrong_what_ifs_a_few_are_shown(tmp_path: Path) -> None:
    result = answer_of({})
    offered = result["tariff_dossier"]["what_if_candidates"]
    offered += [{**offered[0], "id": f"w{number}", "change": "unknown"} for number in range(50)]
    names = [term.name for term in score_of({}, tmp_path, result).terms]
    assert names.count("savings_lever") == 5


def test_a_refusal_of_a_savings_case_is_a_refusal(tmp_path: Path) -> None:
    assert score_of({}, tmp_path, refusal()).match_level == "unexpected_refusal"
