"""The functions for scripts: `load_suite` and `score`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pytest_packbench import CaseError, Score, SuiteError, load_suite, score
from pytest_packbench.cases.load import scoring_sha256
from pytest_packbench.model.case import Case
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.packs.tariff.cases import RIGHT, Json, answer, case

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench import Suite

OTHER = {**case(), "pack_id": "tariff_us"}


def suite_of(folder: Path, text: str = "pack: tariff\n") -> Suite:
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return load_suite(folder)


class Result(BaseModel):
    status: str
    tariff_dossier: dict[str, Any]


class Strict(TariffPack):
    def score(self, case: TariffCase, outcome: Any, rules: TariffSuiteConfig) -> Score:
        return Score(score=0.25, threshold=1.0, verdict="failed", message=rules.pack)


class Renamed(TariffPack):
    name = "other"


def test_a_folder_becomes_a_suite_or_a_suite_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = suite_of(tmp_path, "pack: tariff\nscored_code: baseline\nthresholds: {accept: 0.85}\n")
    assert (suite.name, suite.path, suite.bundled) == (tmp_path.name, tmp_path.resolve(), False)
    assert isinstance(suite.config, TariffSuiteConfig)
    assert (suite.config.scored_code, suite.config.thresholds.accept) == ("baseline", 0.85)
    assert suite.sha256 == scoring_sha256(suite.config)
    monkeypatch.chdir(tmp_path)
    assert load_suite(".") == suite
    assert load_suite("bundled/tariff").bundled
    # the hash is of the rules, not of their spelling
    texts = ("pack: tariff\n", "# same\n{pack: tariff, scored_code: final}\n", "pack: tariff\nscored_code: baseline\n")
    plain, same, other = (suite_of(tmp_path, text).sha256 for text in texts)
    assert plain == same
    assert plain != other
    mistakes = {
        "pack: tarif\n": r'.*did you mean "tariff"\?',
        "- pack\n": ".*/pack",
        "pack: tariff\nthresholds: {by_type: {negativ: 0.5}}\n": ".*negativ",
    }
    for text, message in mistakes.items():
        with pytest.raises(SuiteError, match=rf"suite\.yaml: {message}"):
            suite_of(tmp_path, text)
    with pytest.raises(SuiteError, match=r"suite\.yaml: cannot be read"):
        load_suite(tmp_path / "nowhere")


def test_models_and_plain_json_score_alike() -> None:
    plain = {"status": "verified", "tariff_dossier": {"baseline": {"hts_code": RIGHT}}}
    scored = score(case(), plain)
    assert (scored.score, scored.verdict, scored.match_level, scored.match_depth) == (1.0, "passed", "preferred", 10)
    for model in (TariffCase.model_validate(case()), Case.model_validate(case())):
        assert score(model, plain) == score(model, Result.model_validate(plain)) == scored


def test_the_pack_is_named_by_the_caller_or_by_the_case(tmp_path: Path) -> None:
    for pack in ("tariff", TariffPack()):
        for one in (OTHER, Case.model_validate(OTHER)):
            assert score(one, answer(), pack=pack).passed
    for pack_id in ("tariff_us", "", None, ["tariff"]):
        with pytest.raises(CaseError, match=r"case case_of_a_test: /pack_id: .*tariff.* or pass pack="):
            score({**case(), "pack_id": pack_id}, answer())
    suite = suite_of(tmp_path)
    for rules in (None, suite):
        replaced = score(case(), answer(), pack=Strict(), suite=rules)
        assert (replaced.score, replaced.message) == (0.25, "tariff")
    with pytest.raises(ValueError, match='unknown pack "tarif"; did you mean "tariff"'):
        score(case(), answer(), pack="tarif")
    with pytest.raises(ValueError, match='uses the pack "tariff", not "other"'):
        score(case(), answer(), pack=Renamed(), suite=suite)


def test_the_rules_of_the_suite_apply(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, "pack: tariff\nthresholds: {accept: 0.85}\nscoring: {chapter: 0.4}\n")
    scored = score(case(), answer("6402.99.3165"), suite=suite)
    assert (scored.score, scored.threshold, scored.passed) == (0.45, 0.85, False)
    assert score(case(), answer("6402.99.3165")).score == 0.35
    for one in (OTHER, TariffCase.model_validate(OTHER)):
        with pytest.raises(CaseError, match='/pack_id: got "tariff_us"; expected "tariff"'):
            score(one, answer(), suite=suite)
    assert score(OTHER, answer(), suite=suite, pack="tariff").passed
    # what the rules of a suite do not read is refused in the suite only
    unread = case(expected_refusal_category="ambiguous")
    assert score(unread, answer()).passed
    with pytest.raises(CaseError, match=r"/expected/expected_refusal_category: .*no rule reads"):
        score(unread, answer(), suite=suite)


def test_what_does_not_fit_is_a_case_error_or_scores_0_and_a_failed_network_is_an_error() -> None:
    for changes, pointer in (
        ({"expected": {"prefered_hts": [RIGHT], "expected_accept": True}}, "/expected/prefered_hts"),
        ({"expected": {"preferred_hts": ["6"], "expected_accept": True}}, "/expected/preferred_hts/0"),
        ({"case_type": "neutral"}, "/case_type"),
    ):
        with pytest.raises(CaseError, match=f"^case case_of_a_test: .*{pointer}"):
            score({**case(), **changes}, answer())
    no_case: Any
    for no_case in (None, [], "case"):
        with pytest.raises(CaseError):
            score(no_case, answer(), pack="tariff")
    for result in (None, {}, {"status": 3}):
        for expected_accept in (True, False):
            unread = score(case(expected_accept=expected_accept), result)
            assert (unread.score, unread.verdict) == (0.0, "failed")
            assert [(term.name, term.effect) for term in unread.terms] == [("unreadable_answer", "zero")]
    for expected_accept in (True, False):
        down = score(case(expected_accept=expected_accept), {"error": {"kind": "network", "message": "no route"}})
        assert (down.score, down.verdict, down.passed) == (None, "error", False)
        assert "network: no route" in down.message


@given(
    st.dictionaries(
        st.sampled_from(["id", "pack_id", "case_type", "difficulty", "input", "expected", "notes", "$schema"]),
        st.none() | st.text() | st.integers() | st.lists(st.none()) | st.dictionaries(st.text(), st.none()),
    )
)
def test_any_case_is_scored_or_a_case_error(changes: Json) -> None:
    for pack in (None, "tariff"):
        try:
            scored = score({**case(), **changes}, answer(), pack=pack)
        except CaseError:
            continue
        assert isinstance(scored, Score)
