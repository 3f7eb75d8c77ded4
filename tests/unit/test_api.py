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


def suite_of(folder: Path, text: str = "pack: tariff\n") -> Path:
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return folder


class Result(BaseModel):
    """A target's result as a model."""

    status: str
    tariff_dossier: dict[str, Any]


class Strict(TariffPack):
    """A pack of a user's, with the name of a built-in one."""

    version = "2"

    def score(self, case: TariffCase, outcome: Any, rules: TariffSuiteConfig) -> Score:
        return Score(score=0.25, threshold=1.0, verdict="failed", message=rules.pack)


class TestLoadSuite:
    def test_a_folder_becomes_a_suite(self, tmp_path: Path) -> None:
        text = "pack: tariff\ndescription: shoes\nscored_code: baseline\nthresholds: {accept: 0.7}\n"
        suite = load_suite(suite_of(tmp_path, text))
        assert (suite.name, suite.path, suite.bundled) == (tmp_path.name, tmp_path.resolve(), False)
        assert isinstance(suite.config, TariffSuiteConfig)
        assert suite.config.scored_code == "baseline"
        assert suite.config.thresholds.accept == 0.7
        assert suite.sha256 == scoring_sha256(suite.config)

    def test_the_hash_is_of_the_rules_not_of_their_spelling(self, tmp_path: Path) -> None:
        texts = (
            "pack: tariff\n",
            "# the same\n{pack: tariff, scored_code: final}\n",
            "pack: tariff\nscored_code: baseline\n",
        )
        one, same, other = (load_suite(suite_of(tmp_path, text)).sha256 for text in texts)
        assert one == same
        assert one != other

    def test_a_relative_path_and_a_string_will_do(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        suite_of(tmp_path)
        monkeypatch.chdir(tmp_path)
        assert load_suite(".").name == tmp_path.name

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("pack: tarif\n", 'did you mean "tariff"?'),
            ("pack: tariff\nscored: final\n", 'did you mean "scored_code"?'),
            ("pack: [\n", "not YAML"),
            ("- pack\n", "/pack"),
            ("pack: tariff\nthresholds: {by_type: {negativ: 0.5}}\n", "negativ"),
        ],
    )
    def test_a_mistake_is_a_suite_error(self, tmp_path: Path, text: str, words: str) -> None:
        with pytest.raises(SuiteError) as caught:
            load_suite(suite_of(tmp_path, text))
        assert words in str(caught.value)
        assert "suite.yaml" in str(caught.value)

    def test_no_folder_is_a_suite_error(self, tmp_path: Path) -> None:
        with pytest.raises(SuiteError, match=r"suite\.yaml: cannot be read"):
            load_suite(tmp_path / "nowhere")


class TestScore:
    def test_the_public_name_is_this_function(self) -> None:
        found = pytest_packbench.score(case(), answer())
        assert (found.score, found.verdict, found.match_level, found.match_depth) == (1.0, "passed", "preferred", 10)

    def test_models_and_plain_json_score_alike(self) -> None:
        model = TariffCase.model_validate(case())
        plain = {"status": "verified", "tariff_dossier": {"baseline": {"hts_code": RIGHT}}}
        expected = pytest_packbench.score(case(), plain)
        assert pytest_packbench.score(model, plain) == expected
        assert pytest_packbench.score(Case.model_validate(case()), plain) == expected
        assert pytest_packbench.score(model, Result.model_validate(plain)) == expected

    def test_an_explicit_pack_takes_any_pack_id(self) -> None:
        other = {**case(), "pack_id": "tariff_us"}
        for pack in ("tariff", TariffPack()):
            assert pytest_packbench.score(other, answer(), pack=pack).passed
            assert pytest_packbench.score(Case.model_validate(other), answer(), pack=pack).passed

    @pytest.mark.parametrize("pack_id", ["tariff_us", "", None, 7, ["tariff"]])
    def test_without_a_pack_the_pack_id_names_it(self, pack_id: object) -> None:
        with pytest.raises(CaseError, match=r"case case_of_a_test: /pack_id: .*tariff.* or pass pack="):
            pytest_packbench.score({**case(), "pack_id": pack_id}, answer())

    def test_the_rules_are_those_of_the_suite(self, tmp_path: Path) -> None:
        suite = load_suite(suite_of(tmp_path, "pack: tariff\nthresholds: {accept: 0.3}\nscoring: {chapter: 0.4}\n"))
        found = pytest_packbench.score(case(), answer("6402.99.3165"), suite=suite)
        assert (found.score, found.threshold, found.passed) == (0.45, 0.3, True)
        assert pytest_packbench.score(case(), answer("6402.99.3165")).score == 0.35

    def test_a_case_of_another_pack_is_no_case_of_the_suite(self, tmp_path: Path) -> None:
        other = {**case(), "pack_id": "tariff_us"}
        suite = load_suite(suite_of(tmp_path))
        for given_case in (other, TariffCase.model_validate(other)):
            with pytest.raises(CaseError, match='/pack_id: got "tariff_us"; expected "tariff"'):
                pytest_packbench.score(given_case, answer(), suite=suite)
        assert pytest_packbench.score(other, answer(), suite=suite, pack="tariff").passed

    def test_a_pack_of_the_users_scores(self, tmp_path: Path) -> None:
        for suite in (None, load_suite(suite_of(tmp_path))):
            found = pytest_packbench.score(case(), answer(), pack=Strict(), suite=suite)
            assert (found.score, found.message) == (0.25, "tariff")

    def test_a_pack_that_nobody_knows_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match='unknown pack "tarif"; did you mean "tariff"'):
            pytest_packbench.score(case(), answer(), pack="tarif")

    def test_a_suite_of_another_pack_is_a_value_error(self, tmp_path: Path) -> None:
        class Other(TariffPack):
            name = "other"

        with pytest.raises(ValueError, match='uses the pack "tariff", not "other"'):
            pytest_packbench.score(case(), answer(), pack=Other(), suite=load_suite(suite_of(tmp_path)))

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"expected": {"prefered_hts": [RIGHT], "expected_accept": True}}, "/expected/prefered_hts"),
            ({"expected": {"preferred_hts": ["6"], "expected_accept": True}}, "/expected/preferred_hts/0"),
            ({"case_type": "neutral"}, "/case_type"),
            ({"input": "a shoe"}, "/input"),
        ],
    )
    def test_a_case_that_breaks_the_schema_is_a_case_error(self, changes: Json, words: str) -> None:
        with pytest.raises(CaseError) as caught:
            pytest_packbench.score({**case(), **changes}, answer())
        assert str(caught.value).startswith("case case_of_a_test: ")
        assert words in str(caught.value)

    @pytest.mark.parametrize("given_case", [None, [], "case", 1])
    def test_what_is_no_case_is_a_case_error(self, given_case: Any) -> None:
        for pack in (None, "tariff"):
            with pytest.raises(CaseError):
                pytest_packbench.score(given_case, answer(), pack=pack)

    @pytest.mark.parametrize("result", [None, {}, {"status": "VERIFIED"}])
    def test_what_is_no_result_is_a_result_error(self, result: object) -> None:
        with pytest.raises(ResultError):
            pytest_packbench.score(case(), result)

    @pytest.mark.parametrize("given_case", [case(), case(expected_accept=False)])
    def test_an_infrastructure_failure_has_no_number(self, given_case: Json) -> None:
        down = refusal(error={"kind": "network", "message": "no route"})
        found = pytest_packbench.score(given_case, down)
        assert (found.score, found.verdict, found.passed) == (None, "error", False)
        assert "network: no route" in found.message

    @given(
        st.dictionaries(
            st.sampled_from(["id", "pack_id", "case_type", "difficulty", "input", "expected", "notes", "$schema"]),
            st.none() | st.text() | st.integers() | st.lists(st.none()) | st.dictionaries(st.text(), st.none()),
        )
    )
    def test_any_case_is_scored_or_a_case_error(self, changes: Json) -> None:
        for pack in (None, "tariff"):
            try:
                found = pytest_packbench.score({**case(), **changes}, answer(), pack=pack)
            except CaseError:
                continue
            assert isinstance(found, Score)
