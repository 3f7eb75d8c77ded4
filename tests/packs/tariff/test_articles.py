"""Several articles in one case: `data/tariff_articles.yaml` has answers, mistakes in cases, and proposals for the gates."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.api import score
from pytest_packbench.cases.load import parse_case
from pytest_packbench.model.errors import CaseError
from pytest_packbench.packs.tariff.answer import Proposal
from pytest_packbench.packs.tariff.checks import CheckInput, run_checks
from pytest_packbench.packs.tariff.judged import assign
from pytest_packbench.packs.tariff.model import TariffCase, TariffInput
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.packs.tariff.cases import Json, answer, case, classification, proposal, rules, table

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

TABLE = table("articles")


def articles_case(**changes: Any) -> Json:
    """The case of the table with changes; `options` are those of its request."""
    options = changes.pop("options", {})
    plain = case(**{"preferred_hts": [], **deepcopy(TABLE["case"]), **changes})
    plain["input"]["options"] = options
    return plain


def result_of(row: Json) -> Json:
    if "raw" in row:
        raw: Json = row["raw"]
        return raw
    codes = enumerate(row.get("codes", []), 1)
    items = [{"article": f"number {number}", "baseline": {"hts_code": code}} for number, code in codes]
    baseline = classification(row["baseline"]) if "baseline" in row else None
    return answer(dossier={"articles": items, "baseline": baseline})


@pytest.mark.parametrize("name", TABLE["answers"])
def test_each_article_is_matched_with_one_code(name: str) -> None:
    row = TABLE["answers"][name]
    ours = score(articles_case(), result_of(row), pack="tariff")
    assert ours.score == row["score"]
    assert ours.passed == (row["score"] >= 0.8)


def test_the_terms_and_explanations_of_each_answer(expected: ExpectedTexts) -> None:
    pack, lines = TariffPack().for_suite(rules()), []
    checked = TariffCase.model_validate(articles_case())
    for name, row in TABLE["answers"].items():
        ours = score(articles_case(), result_of(row), pack="tariff")
        lines.append(f"{name}: {ours.score} {ours.verdict}, {ours.match_level}, {ours.match_depth} digits")
        lines += [f"    {term.name} {term.points}: {term.detail}" for term in ours.terms]
        rows = pack.explain(checked, pack.read(result_of(row)), ())
        lines += [f"    {row.what}: {row.expected} | {row.actual}" for row in rows]
    expected.check("\n".join(lines) + "\n")


def test_what_is_shown_of_very_many_articles_is_short() -> None:
    codes = [f"{number:04d}.10" for number in range(2000)]
    ours = score(articles_case(), result_of({"codes": codes}), pack="tariff")
    assert (ours.score, len(ours.terms)) == (0.0, 26)
    assert sum(len(term.detail) for term in ours.terms) < 5000
    assert len(TariffPack().read(result_of({"codes": codes})).answer or "") < 1000


def problem_of(**changes: Any) -> str:
    """Why the case with changes is refused; empty if it is read."""
    plain = articles_case(**changes)
    try:
        parse_case(
            json.dumps(plain).encode(),
            rules().narrowed(TariffCase),
            source="case.json",
            stem=plain["id"],
            pack="tariff",
        )
    except CaseError as error:
        return str(error)
    return ""


def test_a_case_that_could_not_fail_or_asks_for_one_code_is_refused(expected: ExpectedTexts) -> None:
    problems = [(change, problem_of(**change)) for change in TABLE["mistakes"]]
    # one wrong article of four passes at 0.8, and not above 0.825
    four = [*TABLE["case"]["articles"], {"name": "lamp", "preferred_hts": ["9405.21"]}]
    problems.append(({"articles": "four"}, problem_of(articles=four)))
    assert all(problem for _, problem in problems)
    assert problem_of(articles=four, threshold=0.83) == problem_of() == ""
    expected.check("".join(f"{json.dumps(change)}\n    {problem}\n" for change, problem in problems))


def test_the_request_asks_for_a_code_for_each_article() -> None:
    pack = TariffPack()
    options = [pack.request(TariffCase.model_validate(plain)).options for plain in (articles_case(), case())]
    assert options == [
        {"max_iters": 4, "candidate_chapters": [], "articles": "each", "steps": True},
        {"max_iters": 4, "candidate_chapters": [], "steps": True},
    ]
    assert pack.facets(TariffCase.model_validate(articles_case())) == {"chapter": "64"}


WEIGHTS = st.integers(0, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0]), min_size=width, max_size=width), min_size=1, max_size=4
    )
)


@given(WEIGHTS)
def test_the_assignment_is_the_best_of_all(weights: list[list[float]]) -> None:
    columns = assign(weights)
    used = [column for column in columns if column is not None]
    assert len(set(used)) == len(used) == min(len(weights), len(weights[0]))
    total = sum(weights[row][column] for row, column in enumerate(columns) if column is not None)
    orders = permutations(range(max(len(weights), len(weights[0]))), len(weights))
    sums = (sum(row[at] for row, at in zip(weights, order, strict=True) if at < len(row)) for order in orders)
    assert total == pytest.approx(max(sums))


def proposed(row: Json) -> Proposal:
    """The sound proposal as two articles, with the changes of a row."""
    sound = proposal()
    own = {key: sound.pop(key) for key in ("candidate_headings", "gri_trace", "baseline")}
    articles = []
    for name in ("first", "second"):
        article, change = {"article": name, **deepcopy(own)}, row.get(name, {})
        steps = change.get("steps", article["gri_trace"]["steps"])
        article["gri_trace"]["steps"] = steps[::-1] if change.get("reversed") else steps
        article["baseline"]["hts_code"] = change.get("code", article["baseline"]["hts_code"])
        duty = article["baseline"]["duty_breakdown"]
        duty["total_rate_pct"] = change.get("total", duty["total_rate_pct"])
        articles.append(article)
    baseline = own["baseline"] if row.get("baseline") else None
    return Proposal.model_validate({**sound, "baseline": baseline, "articles": row.get("articles", articles)})


def test_the_gates_check_each_article(expected: ExpectedTexts) -> None:
    lines = []
    for name, row in TABLE["proposals"].items():
        options = {} if row.get("request") == "one" else {"articles": "each"}
        request = TariffInput.model_validate({"input": "garlic, dried and ground", "options": options})
        gates = run_checks(CheckInput(request=request, proposal=proposed(row), critique=None))
        lines.append(f"{name}: {', '.join(gate.name for gate in gates if gate.decision == 'pass')}")
        lines += [f"    {gate.name}: {line}" for gate in gates for line in gate.lines]
    expected.check("\n".join(lines) + "\n")
