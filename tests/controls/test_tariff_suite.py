"""The tariff suite: gold codes are those of the rulings, cassettes are no copies, and every case can fail.

`python -m tests.controls` prints the size of the suite and the numbers of its controls.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from pytest_packbench.api import load_suite
from pytest_packbench.cases.lint import lint
from pytest_packbench.packs.tariff.checks import CHECKS
from pytest_packbench.packs.tariff.model import RefusalCategory, TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import digits, is_under
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.scoring import UNSAFE_TERMS
from tests.conftest import SUITE
from tests.controls.answers import ODD_ANSWERS, WRONG_ANSWERS
from tests.controls.changed_inputs import CHANGES
from tests.controls.right_answers import run_controls
from tests.controls.wrong_proposals import FLAWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.controls.right_answers import Control, RightAnswer


RULINGS = Path(__file__).parents[2].parent / "shared" / "data" / "tariff" / "rulings.tsv"
needs_rulings = pytest.mark.skipif(not RULINGS.is_file(), reason="needs ../shared/data/tariff/rulings.tsv")
CATEGORIES = get_args(RefusalCategory)
# the suffix of these rulings still exists, but for other goods, which the table's status does not show
REUSED_SUFFIXES = {"N336683": "03 was veterinary medicaments and is medicaments of acyclovir now"}
SOURCE = "ruling:"
MAX_SHARED = 0.6
SHINGLE = 5


@cache
def cases() -> dict[str, TariffCase]:
    paths = sorted((SUITE / "cases").glob("*/*.json"))
    return {path.stem: TariffCase.model_validate_json(path.read_bytes()) for path in paths}


def cases_with_rulings() -> list[tuple[TariffCase, dict[str, str]]]:
    """Return each case from a ruling with its row; a prefix such as `NY` is dropped, as a source contains no spaces."""
    with RULINGS.open(encoding="utf-8", newline="") as file:
        rows = {row["ruling_id"].split()[-1]: row for row in csv.DictReader(file, delimiter="\t")}
    sources = [(case, case.notes.source.partition(SOURCE)) for case in cases().values()]
    return [(case, rows[ruling]) for case, (_, is_ruling, ruling) in sources if is_ruling]


def ruling_codes(row: dict[str, str]) -> list[str]:
    return [digits(code) for code in (row["hts_code"], *row["other_hts"].split(";")) if code]


def disagreement(case: TariffCase, row: dict[str, str], codes: Sequence[str] = ()) -> str:
    """Describe the first preferred code that is not the ruling's; empty if there is none.

    One of several articles may have eight digits. The suffix may differ if the ruling's is stale; the reason for the
    case's code must then name the old suffix.
    """
    gold_codes, status = ruling_codes(row), row["code_status_hts2026r10"]
    is_stale = status.startswith("stale suffix") or row["ruling_id"] in REUSED_SUFFIXES
    for code in codes or case.expected.all_preferred:
        old = next((gold for gold in gold_codes if is_stale and is_under(code, gold[:8])), "")
        if not any(is_under(gold, code) for gold in gold_codes) and not (
            old and old[8:] in case.notes.reasons.get(code, "")
        ):
            return f"{code}, the ruling has {gold_codes}, status {status}"
    return ""


@needs_rulings
def test_every_gold_code_date_and_tag_is_that_of_its_ruling() -> None:
    pairs = cases_with_rulings()
    assert {case.id: problem for case, row in pairs if (problem := disagreement(case, row))} == {}
    for case, row in pairs:
        for code in map(digits, case.expected.all_preferred):
            neighbour = f"{code[:7]}{(int(code[7]) + 1) % 10}{code[8:]}"
            assert disagreement(case, row, (neighbour,)) or neighbour in ruling_codes(row)
    assert {case.id: row["date"] for case, row in pairs if case.notes.date != row["date"]} == {}
    redacted = {case.id for case, row in pairs if "redacted" in row["verified"]}
    assert {case.id for case, _ in pairs if "gold_secondary" in case.notes.tags} == redacted
    assert len(pairs) >= 120
    assert len({row["ruling_id"] for _, row in pairs if row["verified"] == "full text"}) >= 85


@cache
def exchanges(case_id: str) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = json.loads((SUITE / "fixtures" / f"{case_id}.json").read_bytes())["exchanges"]
    return recorded


def counts() -> dict[str, tuple[int, int]]:
    """Return the size of the suite and the required minimum, by what is counted."""
    suite_cases = list(cases().values())
    types = Counter(case.case_type for case in suite_cases)
    refusals = Counter(case.expected.expected_refusal_category for case in suite_cases)
    tags = Counter(tag for case in suite_cases for tag in case.notes.tags)
    chapters = {chapter for case in suite_cases if (chapter := TariffPack().facets(case).get("chapter"))}
    sources = [case.notes.source for case in suite_cases if case.notes.source.startswith(SOURCE)]
    revised = Counter(
        (case.expected.expected_accept, any(exchange["role"] == "revise" for exchange in exchanges(case.id)))
        for case in suite_cases
    )
    return {
        "cases": (len(suite_cases), 150),
        "chapters": (len(chapters), 30),
        "positive": (types["positive"], 80),
        "negative": (types["negative"], 25),
        **{f"refusals, {category}": (refusals[category], 5) for category in CATEGORIES},
        "adversarial": (types["adversarial"], 25),
        "no_savings and savings_possible": (types["no_savings"] + types["savings_possible"], 20),
        "cases from rulings": (len(sources), 120),
        "different rulings": (len(set(sources)), 85),
        "cases with evidence": (sum(bool(case.input.evidence) for case in suite_cases), 20),
        "citation traps": (tags["citation_trap"], 8),
        "cases with a deciding rule": (sum(case.expected.expected_rule is not None for case in suite_cases), 60),
        "cases of several articles": (sum(case.expected.articles is not None for case in suite_cases), 2),
        "pairs (two cases each)": (len({tag for tag in tags if tag.startswith("pair_")}), 1),
        "recordings: right at once": (revised[True, False], 10),
        "recordings: right after an objection": (revised[True, True], 10),
        "recordings: refused at once": (revised[False, False], 10),
        "recordings: refused after an objection": (revised[False, True], 10),
    }


def test_the_suite_has_its_minimum_size_and_pairs_without_the_deciding_fact_and_with_it() -> None:
    assert {name: f"{count} of {minimum}" for name, (count, minimum) in counts().items() if count < minimum} == {}
    tagged = [(tag, case.expected.expected_accept) for case in cases().values() for tag in case.notes.tags]
    pairs = Counter((tag, accepts) for tag, accepts in tagged if tag.startswith("pair_"))
    assert pairs == {(tag, accepts): 1 for tag, _ in pairs for accepts in (False, True)}


def test_every_case_with_documents_says_what_must_be_cited_and_every_trap_what_must_not() -> None:
    with_documents = {case.id for case in cases().values() if case.input.evidence}
    assert {case.id for case in cases().values() if case.expected.must_cite} == with_documents
    traps = {case.id for case in cases().values() if "citation_trap" in case.notes.tags}
    assert {case.id for case in cases().values() if case.expected.must_not_cite} == traps


def prose(value: Any) -> Iterator[str]:
    """Yield every string of a value that is more than one word."""
    if isinstance(value, str) and " " in value.strip():
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from prose(inner)


def shingles(texts: list[str]) -> frozenset[tuple[str, ...]]:
    """Return the runs of five words of some texts, codes and numbers masked; a shorter text is one run."""
    result: set[tuple[str, ...]] = set()
    for text in texts:
        words = re.findall(r"[^\W\d_]+|#", re.sub(r"\d[\d.,/]*", "#", text.casefold()))
        starts = range(max(1, len(words) - SHINGLE + 1))
        result |= {tuple(words[start : start + SHINGLE]) for start in starts}
    return frozenset(result)


def containment(texts: dict[str, frozenset[tuple[str, ...]]]) -> dict[tuple[str, str], float]:
    """Return the share of the shorter text's runs that both texts contain, for each pair with a common run."""
    texts_by_run: dict[tuple[str, ...], list[str]] = {}
    for name, runs in texts.items():
        for run in runs:
            texts_by_run.setdefault(run, []).append(name)
    common = Counter(pair for names in texts_by_run.values() for pair in combinations(names, 2))
    return {(left, right): count / min(len(texts[left]), len(texts[right])) for (left, right), count in common.items()}


def test_no_two_cassettes_share_most_of_their_text() -> None:
    written = {
        case_id: list(prose([[exchange.get("answer"), exchange.get("refusal")] for exchange in exchanges(case_id)]))
        for case_id in cases()
    }
    texts = {case_id: shingles(strings) for case_id, strings in written.items()}
    assert min(map(len, texts.values())) > 20
    assert {pair: share for pair, share in containment(texts).items() if share > MAX_SHARED} == {}
    # a copy is detected with other numbers, and by half
    text = " ".join(next(iter(written.values())))
    copies = {"text": text, "numbers": re.sub(r"\d", "7", text), "half": text[: len(text) // 2]}
    shares = containment({name: shingles([copy]) for name, copy in copies.items()})
    assert (shares["text", "numbers"], shares["text", "half"] > MAX_SHARED) == (1.0, True)


def test_lint_finds_nothing() -> None:
    suite = load_suite(SUITE)
    assert isinstance(suite.config, TariffSuiteConfig)
    assert list(map(str, lint(suite, TariffPack().for_suite(suite.config), {}))) == []


def test_every_right_answer_scores_in_full(answers: list[RightAnswer]) -> None:
    assert {right.case.id: right.score for right in answers if right.score.score != 1.0} == {}


@pytest.mark.parametrize("control", [*WRONG_ANSWERS, *ODD_ANSWERS, *FLAWS, *CHANGES], ids=lambda control: control.name)
def test_every_control_is_caught(control: Control, answers: list[RightAnswer]) -> None:
    """A wrong answer by its score, a right one in another spelling in full, a flawed proposal by its gate, a changed input or recording as an error."""
    summary = run_controls(control, answers)
    assert summary.total, f"no case has a control: {summary.name}"
    assert summary.missed == []


def test_every_case_has_at_least_ten_wrong_answers_or_six_if_it_expects_a_refusal(answers: list[RightAnswer]) -> None:
    for right in answers:
        total = sum(len(kind.results(right)) for kind in WRONG_ANSWERS)
        assert total >= (10 if right.accepts else 6), right.case.id


def test_every_hard_fail_and_every_gate_has_controls() -> None:
    hard_fails = {kind.term for kind in WRONG_ANSWERS if kind.requirement == "score exactly 0"}
    # no case expects that there is no lever; a row of `scores.yaml` does
    assert hard_fails >= UNSAFE_TERMS - {"unexpected_lever"}
    assert {flaw.gate for flaw in FLAWS} == set(CHECKS)
