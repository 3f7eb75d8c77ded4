"""The functions for scripts: `load_suite` and `score`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import pytest_packbench
from pytest_packbench import CaseError, ResultError, Score, SuiteError, load_suite
from pytest_packbench.cases.load import scoring_sha256
from pytest_packbench.model.case import Case
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.unit.tariff_cases import RIGHT, Json, answer, case, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench import Suite

OTHER = {**case(), "pack_id": "tariff_us"}


def suite_of(folder: Path, text: str = "pack: tariff\n") -> Suite:
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return load_suite(folder)


class Result(BaseModel):
    """A target's result as a model."""

    status: str
    tariff_dossier: dict[str, Any]


class Strict(TariffPack):
    """A user's pack, with the name of a built-in one."""

    version = "2"

    def score(self, case: TariffCase, outcome: Any, rules: TariffSuiteConfig) -> Score:
        return Score(score=0.25, threshold=1.0, verdict="failed", message=rules.pack)


class Renamed(TariffPack):
    name = "other"


def test_a_folder_becomes_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = suite_of(tmp_path, "pack: tariff\nscored_code: baseline\nthresholds: {accept: 0.7}\n")
    assert (suite.name, suite.path, suite.bundled) == (tmp_path.name, tmp_path.resolve(), False)
    assert isinstance(suite.config, TariffSuiteConfig)
    assert (suite.config.scored_code, suite.config.thresholds.accept) == ("baseline", 0.7)
    assert suite.sha256 == scoring_sha256(suite.config)
    monkeypatch.chdir(tmp_path)
    assert load_suite(".") == suite


def test_the_hash_is_of_the_rules_not_of_their_spelling(tmp_path: Path) -> None:
    texts = ("pack: tariff\n", "# same\n{pack: tariff, scored_code: final}\n", "pack: tariff\nscored_code: baseline\n")
    plain, same, other = (suite_of(tmp_path, text).sha256 for text in texts)
    assert plain == same
    assert plain != other


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pack: tarif\n", r'suite.yaml: .*did you mean "tariff"\?'),
        ("pack: tariff\nscored: final\n", r'suite.yaml: .*did you mean "scored_code"\?'),
        ("pack: [\n", "suite.yaml: .*not YAML"),
        ("- pack\n", "suite.yaml: .*/pack"),
        ("pack: tariff\nthresholds: {by_type: {negativ: 0.5}}\n", "suite.yaml: .*negativ"),
    ],
)
def test_a_mistake_in_the_rules_is_a_suite_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        suite_of(tmp_path, text)


def test_a_missing_folder_is_a_suite_error(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"suite\.yaml: cannot be read"):
        load_suite(tmp_path / "nowhere")


def test_models_and_plain_json_score_alike() -> None:
    plain = {"status": "verified", "tariff_dossier": {"baseline": {"hts_code": RIGHT}}}
    score = pytest_packbench.score(case(), plain)
    assert (score.score, score.verdict, score.match_level, score.match_depth) == (1.0, "passed", "preferred", 10)
    model = TariffCase.model_validate(case())
    for one, result in ((model, plain), (Case.model_validate(case()), plain), (model, Result.model_validate(plain))):
        assert pytest_packbench.score(one, result) == score


@pytest.mark.parametrize("pack", ["tariff", TariffPack()])
def test_an_explicit_pack_accepts_any_pack_id(pack: str | TariffPack) -> None:
    for one in (OTHER, Case.model_validate(OTHER)):
        assert pytest_packbench.score(one, answer(), pack=pack).passed


@pytest.mark.parametrize("pack_id", ["tariff_us", "", None, 7, ["tariff"]])
def test_without_a_pack_the_pack_id_names_it(pack_id: object) -> None:
    with pytest.raises(CaseError, match=r"case case_of_a_test: /pack_id: .*tariff.* or pass pack="):
        pytest_packbench.score({**case(), "pack_id": pack_id}, answer())


def test_the_rules_of_the_suite_apply(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, "pack: tariff\nthresholds: {accept: 0.3}\nscoring: {chapter: 0.4}\n")
    score = pytest_packbench.score(case(), answer("6402.99.3165"), suite=suite)
    assert (score.score, score.threshold, score.passed) == (0.45, 0.3, True)
    assert pytest_packbench.score(case(), answer("6402.99.3165")).score == 0.35
    for one in (OTHER, TariffCase.model_validate(OTHER)):
        with pytest.raises(CaseError, match='/pack_id: got "tariff_us"; expected "tariff"'):
            pytest_packbench.score(one, answer(), suite=suite)
    assert pytest_packbench.score(OTHER, answer(), suite=suite, pack="tariff").passed


def test_a_users_pack_replaces_a_built_in_one(tmp_path: Path) -> None:
    for suite in (None, suite_of(tmp_path)):
        score = pytest_packbench.score(case(), answer(), pack=Strict(), suite=suite)
        assert (score.score, score.message) == (0.25, "tariff")


def test_a_pack_that_does_not_fit_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='unknown pack "tarif"; did you mean "tariff"'):
        pytest_packbench.score(case(), answer(), pack="tarif")
    with pytest.raises(ValueError, match='uses the pack "tariff", not "other"'):
        pytest_packbench.score(case(), answer(), pack=Renamed(), suite=suite_of(tmp_path))


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"expected": {"prefered_hts": [RIGHT], "expected_accept": True}}, "/expected/prefered_hts"),
        ({"expected": {"preferred_hts": ["6"], "expected_accept": True}}, "/expected/preferred_hts/0"),
        ({"case_type": "neutral"}, "/case_type"),
        ({"input": "a shoe"}, "/input"),
    ],
)
def test_a_case_that_does_not_fit_its_schema_is_a_case_error(changes: Json, pointer: str) -> None:
    with pytest.raises(CaseError, match=f"^case case_of_a_test: .*{pointer}"):
        pytest_packbench.score({**case(), **changes}, answer())


@pytest.mark.parametrize("pack", [None, "tariff"])
@pytest.mark.parametrize("value", [None, [], "case", 1])
def test_a_value_that_is_no_case_is_a_case_error(value: Any, pack: str | None) -> None:
    with pytest.raises(CaseError):
        pytest_packbench.score(value, answer(), pack=pack)


@pytest.mark.parametrize("result", [None, {}, {"status": "VERIFIED"}])
def test_a_value_that_is_no_result_is_a_result_error(result: object) -> None:
    with pytest.raises(ResultError):
        pytest_packbench.score(case(), result)


@pytest.mark.parametrize("expected_accept", [True, False])
def test_an_infrastructure_failure_has_no_score(expected_accept: bool) -> None:
    down = refusal(error={"kind": "network", "message": "no route"})
    score = pytest_packbench.score(case(expected_accept=expected_accept), down)
    assert (score.score, score.verdict, score.passed) == (None, "error", False)
    assert "network: no route" in score.message


@given(
    st.dictionaries(
        st.sampled_from(["id", "pack_id", "case_type", "difficulty", "input", "expected", "notes", "$schema"]),
        st.none() | st.text() | st.integers() | st.lists(st.none()) | st.dictionaries(st.text(), st.none()),
    )
)
def test_any_case_is_scored_or_a_case_error(changes: Json) -> None:
    for pack in (None, "tariff"):
        try:
            score = pytest_packbench.score({**case(), **changes}, answer(), pack=pack)
        except CaseError:
            continue
        assert isinstance(score, Score)
