"""Keys that an answer model does not have make an answer unreadable, or a suite leaves them unread and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import Answer, Case, Pack, ResultError, StrictModel, SuiteConfig, Term, Text, Unscored
from pytest_packbench.analysis.conclusion import caveats, conclude, run_document
from pytest_packbench.cases.load import read_config, scoring_sha256
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.case import ListOf  # noqa: TC001 - pydantic reads it at run time
from pytest_packbench.model.report import UnknownKeys
from pytest_packbench.model.result import adapter
from pytest_packbench.packs.registry import builtin
from pytest_packbench.testing import case, score
from tests.conftest import SUITE
from tests.unit.run_builders import case_result, data, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.model.result import Result

DATA: dict[str, Any] = data("unknown_keys.yaml")
OPEN = {"unknown_keys": "ignore"}


class Part(StrictModel):
    name: Text
    grams: int = 0


class Letter(StrictModel):
    pages: int = 0
    sealed: bool = False


class Card(StrictModel):
    pages: int = 0
    picture: Text = "none"


class Parcel(Answer):
    zone: Text | None = None
    parts: ListOf[Part] = ()
    goods: Letter | Card | None = None
    refusal: Text | None = None
    notes: dict[str, Any] | None = None


class ParcelPack(Pack):
    """Refuses a refusal with keys that it left unread."""

    name = "parcels"
    version = "1"
    answer_model = Parcel

    def terms(self, case: Case, answer: Parcel, rules: SuiteConfig) -> Iterator[Term]:
        yield Term(name="zone", value=float(answer.zone == "x" or answer.refused))
        if answer.zone == "nowhere":
            raise Unscored("vacuous", "nothing was seen")
        if answer.refused and answer.unread_keys:
            yield Term(name="contradiction", effect="zero", detail=answer.unread_keys[0])


def noted(found: Any) -> list[str]:
    return [term.detail for term in found.terms if (term.name, term.effect) == ("unknown_key", "note")]


@pytest.mark.parametrize("name", DATA["answers"])
def test_an_unknown_key_makes_an_answer_unreadable_or_is_listed_beside_the_score(name: str) -> None:
    row = DATA["answers"][name]
    answer, places, opened = row["answer"], row.get("places", []), row["opened"]
    unreadable = (0.0, "failed", "unreadable_answer")
    closed, found = (score(ParcelPack(), case("a"), answer, rules=rules) for rules in ({}, OPEN))
    if not places and opened == 1.0:
        assert (closed.score, closed.terms[1:]) == (1.0, ())
    else:
        assert (closed.score, closed.verdict, closed.terms[0].name) == unreadable
        assert noted(closed) == places
    if isinstance(opened, float):
        assert (found.score, noted(found)) == (opened, places)
        return
    assert (found.score, found.verdict, found.terms[0].name) == unreadable
    with pytest.raises(ResultError) as caught:
        ParcelPack().for_suite(SuiteConfig(pack="parcels", unknown_keys="ignore")).read(answer)
    assert str(caught.value).startswith(opened)


def test_a_pack_can_look_at_keys_that_are_left_unread_and_a_case_without_a_score_lists_them() -> None:
    for answer, points in (({"refusal": "no", "price": 5}, 0.0), ({"refusal": "no"}, 1.0)):
        assert score(ParcelPack(), case("a"), answer, rules=OPEN).score == points
    found = score(ParcelPack(), case("a"), {"zone": "nowhere", "trace": 1}, rules=OPEN)
    assert (found.verdict, [term.name for term in found.terms]) == ("vacuous", ["zone", "unknown_key"])


def test_rules_that_open_a_suite_are_other_rules_all_others_keep_their_hash_and_no_bundled_suite_is_open() -> None:
    closed, opened = (SuiteConfig(pack="parcels", unknown_keys=each) for each in ("refuse", "ignore"))
    before = closed.model_dump(mode="json", exclude={*closed.not_scoring, "unknown_keys"})
    assert scoring_sha256(closed) == scoring_sha256(SuiteConfig(pack="parcels")) == canonical_sha256(before)
    assert scoring_sha256(opened) != scoring_sha256(closed)
    models = {name: pack.suite_model for name, pack in builtin().items()}
    found = [read_config(path.parent, models, source="") for path in SUITE.parent.glob("*/suite.yaml")]
    assert len(found) > 1
    assert {rules.unknown_keys for rules in found} == {"refuse"}


def keyed(row: dict[str, Any]) -> Result:
    term = row.get("term")
    first = {"name": term, "effect": "zero", "detail": "why"} if term else {"name": "zone", "value": 1.0}
    notes = [{"name": "unknown_key", "effect": "note", "detail": place} for place in row.get("places", ())]
    return case_result(row["id"], row.get("verdict", "failed"), terms=[first, *notes])


@pytest.mark.parametrize("name", DATA["runs"])
def test_unknown_keys_are_told_once_a_run_with_their_count_and_the_remedy(name: str) -> None:
    row = DATA["runs"][name]
    concluded = conclude(run(pack="toy"), list(map(keyed, row["results"])))
    told = [row["told"].replace("PUT", DATA["put"])] if "told" in row else []
    assert [each for each in caveats(concluded) if "keys" in each] == told
    counts = run_document(concluded).get("unknown_keys")
    assert counts == row.get("counts")
    assert adapter(UnknownKeys | None).validate_python(counts) == concluded.unknown_keys
