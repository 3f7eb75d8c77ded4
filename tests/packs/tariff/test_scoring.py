"""The tariff pack: each rule of its scores by the rows of `data/tariff_scores.yaml`, their algebra, facts, facets and explanations."""

from __future__ import annotations

import inspect
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.pack import record_facts
from pytest_packbench.model.result import Outcome
from pytest_packbench.packs.tariff.answer import TariffAnswer
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.scoring import ALWAYS, OF_ANSWERS, UNSAFE_TERMS
from pytest_packbench.packs.tariff.target import reference_target
from pytest_packbench.packs.tariff.tools import TariffTools
from tests.controls.right_answers import right_answers
from tests.packs.tariff.cases import CHANGE, RIGHT, Json, answer, case, refusal, result_of, rules, score_of, table

if TYPE_CHECKING:
    from pytest_packbench.model.result import Score
    from pytest_packbench.packs.tariff.model import TariffSuiteConfig
    from tests.conftest import ExpectedTexts


PACK = TariffPack().for_suite(rules())
SAME_LINE, SAME_SUBHEADING, SAME_HEADING = "6404.11.9050", "6404.11.2030", "6404.19.9030"
SAME_CHAPTER, ELSEWHERE = "6402.99.3165", "8544.42.9090"
GROUPS = table("scores")
ROWS: dict[str, Json] = {
    f"{group}: {name}": {"defaults": rows.get("defaults", {}), **row}
    for group, rows in GROUPS.items()
    for name, row in rows.items()
    if "score" in row
}


def inputs_of(row: Json, key: str = "answer") -> tuple[TariffCase, TariffAnswer, TariffSuiteConfig]:
    """The case of a row, its answer or its right answer, and the rules of its suite."""
    plain, result = case(row.get("case_type", "positive"), **row.get("case", {})), row.get(key, {})
    if row.get("rules", {}).get("scored_code") == "baseline":
        # there a lever has to name a change of the request
        plain["input"]["options"] = {"changes": [CHANGE]}
    read = TariffAnswer.model_validate(result_of(result if "refusal" in result else {**row["defaults"], **result}))
    return TariffCase.model_validate(plain), read, rules(**row.get("rules", {}))


def scored(row: Json, key: str = "answer") -> Score:
    checked, read, config = inputs_of(row, key)
    return score(checked, read, config)


def score(checked: TariffCase, read: TariffAnswer, config: TariffSuiteConfig) -> Score:
    return PACK.score(checked, Outcome(document=read), config)


def names_of(result: Score, *effects: str) -> list[str]:
    """The names of the terms with an effect, of all that change the number by default."""
    return [term.name for term in result.terms if term.effect in (effects or ("add", "zero", "clamp"))]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_an_answer_has_its_score_because_of_a_term(row: Json) -> None:
    result = scored(row)
    assert result.score == row["score"]
    assert row["because"] in names_of(result)
    if "right" in row:
        right = scored(row, "right")
        assert (right.score, right.verdict, result.verdict) == (1.0, "passed", "failed")


def test_the_terms_and_the_recorded_facts_of_each_answer_with_every_hard_fail(expected: ExpectedTexts) -> None:
    lines = []
    for name, row in ROWS.items():
        checked, read, config = inputs_of(row)
        outcome = PACK.read(read.model_dump(mode="json"))
        result = PACK.score(checked, outcome, config)
        facts = record_facts(TariffPack().for_suite(config), checked, outcome, result)
        depth = "" if result.match_depth is None else f", {result.match_depth} digits"
        lines.append(f"{name}: {result.score} {result.verdict} ({result.threshold}), {result.match_level}{depth}")
        lines.append(f"    {facts.attack_category}: {facts.expected} expected, {facts.agent_decision}")
        lines += [f"    {term.name} {term.effect} {term.value:g}: {term.detail}" for term in result.terms]
    expected.check("\n".join(lines) + "\n")
    # every hard fail is the only one of a row
    hard_fails = [names_of(scored(row), "zero") for row in ROWS.values()]
    assert {names[0] for names in hard_fails if len({*names}) == 1} == {*UNSAFE_TERMS, *itertools.chain(*hard_fails)}


CODES = st.sampled_from([RIGHT, SAME_LINE, SAME_SUBHEADING, SAME_HEADING, SAME_CHAPTER, ELSEWHERE, "64", "6404.11"])
RATES = st.none() | st.sampled_from([0.0, 5.0, 20.0, 20.01])
LISTS = st.lists(CODES, max_size=2)
FLAGS = st.none() | st.booleans()
EXPECTED = st.fixed_dictionaries(
    {
        **dict.fromkeys(("preferred_hts", "allowed_hts", "must_not_hts"), LISTS),
        **dict.fromkeys(("expected_accept", "no_savings_expected"), st.booleans()),
        **dict.fromkeys(("lever_found_expected", "lever_compliance_ok", "expected_best_is_multi_step"), FLAGS),
        **dict.fromkeys(("lever_count_min", "min_lever_steps"), st.none() | st.integers(0, 2)),
        "expected_refusal_category": st.none() | st.sampled_from(["ambiguous", "out_of_scope"]),
        "duty_delta_range": st.none() | st.just([-0.01, 0.01]),
        "expected_duty_total_rate_pct": RATES,
        "expected_duty_delta_direction": st.none() | st.sampled_from(["flat", "decrease"]),
    }
)
ANSWERS = st.builds(
    answer,
    code=st.none() | CODES.filter(lambda code: len(code) > 2),
    rate=RATES,
    optimized=st.sampled_from([(), (SAME_LINE,), (ELSEWHERE, 0.0), (RIGHT, 20.01)]),
    levers=st.lists(st.integers(0, 3), max_size=2),
    **dict.fromkeys(("in_order", "citations", "evidence"), FLAGS),
    documented=st.booleans(),
) | st.sampled_from([None, "ambiguous", "missing_evidence"]).map(refusal)
FRACTIONS = st.floats(0, 1)
CONSTANTS = {
    **dict.fromkeys(("preferred", "allowed"), FRACTIONS),
    # a wrong answer may not pass
    **dict.fromkeys(("chapter", "bonus", "wrong_refusal_category"), st.floats(0, 0.3)),
    **dict.fromkeys(("gri_sequence", "duty_delta"), st.floats(-1, 0)),
    "ladder": st.dictionaries(st.sampled_from("468"), FRACTIONS),
}
CONFIGS = st.fixed_dictionaries(
    {
        "scored_code": st.sampled_from(["final", "baseline"]),
        "scoring": st.fixed_dictionaries({}, optional=CONSTANTS),
        "allow_pass": st.just("for the test"),
    }
)


@given(EXPECTED, ANSWERS, CONFIGS)
def test_a_score_is_the_sum_of_its_terms_or_zero(expected: Json, given_answer: Json, config: Json) -> None:
    document = TariffAnswer.model_validate(given_answer)
    result = score(TariffCase.model_validate(case(**expected)), document, rules(**config))
    assert result.score is not None
    assert 0 <= result.score <= 1
    if names_of(result, "zero"):
        assert result.score == 0.0
        assert not names_of(result, "clamp")
    else:
        assert result.score == pytest.approx(sum(term.value for term in result.terms), abs=1e-8)
    assert result.threshold is not None
    assert result.passed == (result.score >= result.threshold - 1e-9)
    for term in result.terms:
        assert -1 <= term.value <= 1
        assert term.effect in {"add", "clamp"} or term.value == 0
    assert result.terms[0].effect != "note"
    assert result.match_depth in {None, 0, 2, 4, 6, 8, 10}


@given(EXPECTED, ANSWERS.filter(lambda plain: plain["status"] == "verified"))
def test_a_better_code_never_scores_less(expected: Json, given_answer: Json) -> None:
    expected |= {"preferred_hts": [RIGHT], "allowed_hts": [SAME_HEADING], "must_not_hts": []}
    checked = TariffCase.model_validate(case(**expected))
    rate = (given_answer["tariff_dossier"]["baseline"] or {}).get("duty_rate_pct")
    dossier = given_answer["tariff_dossier"] | {"optimized": None}
    scores = [
        score(
            checked,
            TariffAnswer.model_validate(
                given_answer | {"tariff_dossier": dossier | {"baseline": {"hts_code": code, "duty_rate_pct": rate}}}
            ),
            rules(),
        ).score
        or 0.0
        for code in (RIGHT, SAME_HEADING, SAME_CHAPTER, ELSEWHERE)
    ]
    assert all(better >= worse for better, worse in itertools.pairwise(scores))


@given(st.sampled_from([6, 8]), st.from_regex(r"[0-9]{9}[1-9]", fullmatch=True), st.sampled_from([2, 4]))
def test_only_a_prefix_of_six_or_eight_digits_is_a_preferred_code(length: int, code: str, other: int) -> None:
    assert score_of(case(preferred_hts=[code[:length]]), answer(code)).match_level == "preferred"
    assert score_of(case(preferred_hts=[code[:other]]), answer(code)).match_level == "chapter"
    assert score_of(case(preferred_hts=[code]), answer(code[:length])).match_level == "chapter"


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "scoring.md").read_text("utf-8")


@pytest.mark.parametrize(("forbidden", "score"), [("7010.90", 0.35), ("7013.49.60", 0.0)])
def test_the_example_has_the_terms_of_the_page(tmp_path: Path, forbidden: str, score: float) -> None:
    parts = (
        "suite.yaml",
        "cases/positive/pos_70_glass_drinks_dispenser.json",
        "fixtures/pos_70_glass_drinks_dispenser.json",
    )
    for part in parts:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / "storage" / "benchmarks" / "tariff" / part).read_text("utf-8")
        (tmp_path / part).write_text(
            text.replace('"7013.49.6090"\n', '"7013.99.90"\n') if "cases" in part else text, "utf-8"
        )
    path = tmp_path / parts[1]
    path.write_text(path.read_text("utf-8").replace('"7010.90",', f'"{forbidden}",'), "utf-8")
    with right_answers(tmp_path) as [run]:
        terms, total = run.score.terms, run.score.score
    example = PAGE.partition("## An example")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\S+)` \| `(\w+)` \| (.+) \|$", example, re.MULTILINE)
    assert [(term.points, term.name, term.detail) for term in terms if term.effect != "zero"] == rows
    assert [f"{term.points} {term.name}" for term in terms if term.effect == "zero"] == ["=0 forbidden_code"] * (
        not score
    )
    assert total == score


def test_the_page_has_a_row_for_each_function_of_the_table_in_its_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## The table")[2].partition("\n## ")[0], re.MULTILINE)
    assert rows == [function.__name__ for function in (*ALWAYS, *OF_ANSWERS)]


EXPLANATIONS = table("explanations")


@pytest.mark.parametrize(("expected", "tags", "chapter"), table("facets"))
def test_the_chapter_is_a_facet(expected: Json, tags: list[str], chapter: str | None) -> None:
    checked = TariffCase.model_validate(case(tags=tuple(tags), **expected))
    assert PACK.facets(checked) == ({"chapter": chapter} if chapter else {})


def test_the_request_is_the_verify_request_of_the_reference_target() -> None:
    plain = case()
    plain["input"] |= {"options": {"max_iters": 2}, "evidence": [{"source_id": "spec_1", "text": "rubber sole"}]}
    assert PACK.request(TariffCase.model_validate(plain)).as_json() == {
        "input": plain["input"]["input"],
        "options": {"max_iters": 2, "candidate_chapters": [], "steps": True},
        "evidence": [{"source_id": "spec_1", "text": "rubber sole", "title": None}],
    }
    assert list(inspect.signature(reference_target()).parameters) == ["request", "context"]


@pytest.mark.parametrize("dossier", [{}, {"articles": [{"article": "shoe", "baseline": {"hts_code": RIGHT}}]}])
def test_an_answer_without_one_code_can_not_be_accepted(dossier: Json) -> None:
    row = {"defaults": {}, "answer": {"code": None, "dossier": dossier}}
    with pytest.raises(ValueError, match="no code to accept, or one for each of several articles"):
        TariffTools().also_acceptable(*inputs_of(row))


def test_expected_and_actual_values_are_explained(expected: ExpectedTexts) -> None:
    lines = []
    for name, row in EXPLANATIONS.items():
        checked = TariffCase.model_validate(case(**row.get("case", {})))
        rows = PACK.explain(checked, PACK.read(result_of(row.get("answer", {}))), ())
        lines += [name, *(f"    {row.what}: {row.expected} | {row.actual}" for row in rows)]
    expected.check("\n".join(lines) + "\n")
