"""The gold of the tariff suite is the rulings', its cassettes are no template, and it is as large as it claims."""

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

from pytest_packbench.cases.load import parse_case
from pytest_packbench.packs.tariff.codes import digits, is_under
from pytest_packbench.packs.tariff.model import RefusalCategory, TariffCase
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.conftest import SUITE

if TYPE_CHECKING:
    from collections.abc import Iterator

RULINGS = Path(__file__).parents[2].parent / "shared" / "data" / "tariff" / "rulings.tsv"
needs_rulings = pytest.mark.skipif(not RULINGS.is_file(), reason="needs ../shared/data/tariff/rulings.tsv")
CATEGORIES = get_args(RefusalCategory)
# the suffix of these rulings still exists, but for other goods: the table's status can't see that
REUSED_SUFFIXES = {"N336683": "03 was veterinary medicaments and is medicaments of acyclovir now"}
SOURCE = "ruling:"
MOST_SHARED = 0.6
SHINGLE = 5


@cache
def cases() -> dict[str, TariffCase]:
    found = {}
    for path in sorted((SUITE / "cases").glob("*/*.json")):
        loaded = parse_case(path.read_bytes(), TariffCase, source=path.name, stem=path.stem, pack="tariff")
        assert isinstance(loaded.case, TariffCase)
        found[path.stem] = loaded.case
    return found


@cache
def rulings() -> dict[str, dict[str, str]]:
    """The table by ruling; a prefix such as `NY` before a number is left out, for a source has no spaces."""
    with RULINGS.open(encoding="utf-8", newline="") as file:
        return {row["ruling_id"].split()[-1]: row for row in csv.DictReader(file, delimiter="\t")}


def by_ruling() -> Iterator[tuple[TariffCase, dict[str, str]]]:
    for case in cases().values():
        row = rulings().get(case.notes.source.removeprefix(SOURCE))
        if row is not None and case.notes.source.startswith(SOURCE):
            yield case, row


def codes(row: dict[str, str]) -> list[str]:
    return [digits(code) for code in (row["hts_code"], *row["other_hts"].split(";")) if code]


def is_stale(row: dict[str, str]) -> bool:
    return row["code_status_hts2026r10"].startswith("stale suffix") or row["ruling_id"] in REUSED_SUFFIXES


def disagreement(case: TariffCase, row: dict[str, str]) -> str:
    """Say which preferred code is not the ruling's; empty where all are.

    A suffix may differ within the 8 digits where the ruling's is stale, and the case has to tell so: the reason for its
    code names the old suffix.
    """
    golds = codes(row)
    for code in case.expected.preferred_hts:
        if digits(code) in golds:
            continue
        old = next((gold for gold in golds if is_stale(row) and is_under(code, gold[:8])), None)
        if old is None or old[8:] not in case.notes.reasons.get(code, ""):
            return f"{code}, the ruling has {golds}, status {row['code_status_hts2026r10']}"
    return ""


@needs_rulings
def test_every_ruling_named_is_known() -> None:
    named = {case.notes.source.removeprefix(SOURCE) for case in cases().values() if SOURCE in case.notes.source}
    assert named - set(rulings()) == set()


@needs_rulings
def test_every_gold_code_is_the_rulings() -> None:
    assert {case.id: found for case, row in by_ruling() if (found := disagreement(case, row))} == {}


@needs_rulings
def test_another_code_would_be_seen() -> None:
    """The comparison itself can fail: a neighbour of every gold code is refused."""
    for case, row in by_ruling():
        for code in case.expected.preferred_hts:
            plain = digits(code)
            wrong = f"{plain[:7]}{(int(plain[7]) + 1) % 10}{plain[8:]}"
            other = case.model_copy(update={"expected": case.expected.model_copy(update={"preferred_hts": (wrong,)})})
            assert disagreement(other, row) or wrong in codes(row)


@needs_rulings
def test_every_date_is_the_rulings() -> None:
    assert {
        case.id: (case.notes.date, row["date"]) for case, row in by_ruling() if case.notes.date != row["date"]
    } == {}


@needs_rulings
def test_enough_cases_come_from_rulings() -> None:
    assert len(list(by_ruling())) >= 120


@needs_rulings
def test_enough_rulings_are_verified_on_full_text() -> None:
    verified = {row["ruling_id"] for _, row in by_ruling() if row["verified"] == "full text"}
    assert len(verified) >= 85


@needs_rulings
def test_gold_from_a_redacted_ruling_says_so() -> None:
    tagged = {case.id for case, _ in by_ruling() if "gold_secondary" in case.notes.tags}
    assert tagged == {case.id for case, row in by_ruling() if "redacted" in row["verified"]}


@cache
def exchanges(case_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((SUITE / "fixtures" / f"{case_id}.json").read_bytes())["exchanges"]
    return found


def is_revised(case_id: str) -> bool:
    return any(exchange["role"] == "revise" for exchange in exchanges(case_id))


def counts() -> dict[str, tuple[int, int]]:
    """What the suite has and at least has to have."""
    every = list(cases().values())
    types = Counter(case.case_type for case in every)
    refusals = Counter(case.expected.expected_refusal_category for case in every if not case.expected.expected_accept)
    tags = Counter(tag for case in every for tag in case.notes.tags)
    chapters = {chapter for case in every if (chapter := TariffPack().facets(case).get("chapter"))}
    sources = [case.notes.source for case in every if case.notes.source.startswith(SOURCE)]
    revised = Counter((case.expected.expected_accept, is_revised(case.id)) for case in every)
    return {
        "cases": (len(every), 150),
        "chapters": (len(chapters), 30),
        "positive": (types["positive"], 80),
        "negative": (types["negative"], 25),
        **{f"refusals due, {category}": (refusals[category], 5) for category in CATEGORIES},
        "adversarial": (types["adversarial"], 25),
        "no_savings and savings_possible": (types["no_savings"] + types["savings_possible"], 20),
        "cases from rulings": (len(sources), 120),
        "different rulings": (len(set(sources)), 85),
        "cases with evidence": (sum(bool(case.input.evidence) for case in every), 20),
        "citation traps": (tags["citation_trap"], 8),
        "pairs (two cases each)": (len({tag for tag in tags if tag.startswith("pair_")}), 1),
        "recordings: right at once": (revised[True, False], 10),
        "recordings: right after an objection": (revised[True, True], 10),
        "recordings: refused at once": (revised[False, False], 10),
        "recordings: refused after an objection": (revised[False, True], 10),
    }


def test_the_suite_is_as_large_as_it_claims() -> None:
    assert {name: f"{found} of {least}" for name, (found, least) in counts().items() if found < least} == {}


def test_every_pair_is_complete() -> None:
    """The same goods without the fact that decides (refuse) and with it (accept)."""
    pairs: dict[str, list[bool]] = {}
    for case in cases().values():
        for tag in case.notes.tags:
            if tag.startswith("pair_"):
                pairs.setdefault(tag, []).append(case.expected.expected_accept)
    assert pairs
    assert {tag: accepts for tag, accepts in pairs.items() if sorted(accepts) != [False, True]} == {}


def answers_of(case_id: str) -> list[Any]:
    return [exchange.get(key) for exchange in exchanges(case_id) for key in ("answer", "refusal")]


def prose(value: Any) -> Iterator[str]:
    """Every string of an answer that is more than a word of the schema's vocabulary."""
    if isinstance(value, str):
        if " " in value.strip():
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from prose(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from prose(inner)


def shingles(answers: list[Any]) -> frozenset[tuple[str, ...]]:
    """The runs of five words of the answers' prose, codes and numbers masked; a shorter string is one run."""
    found = set()
    for text in prose(answers):
        masked = re.sub(r"\d[\d.,/]*", "#", text.casefold())
        words = re.findall(r"[^\W\d_]+|#", masked)
        runs = range(max(1, len(words) - SHINGLE + 1))
        found |= {tuple(words[at : at + SHINGLE]) for at in runs}
    return frozenset(found)


def shared(texts: dict[str, frozenset[tuple[str, ...]]]) -> dict[tuple[str, str], float]:
    """The share of its runs that the shorter of two texts has in common with the other, for pairs that have any.

    By an inverted index: the work grows with the runs that are really shared, not with the number of pairs.
    """
    holders: dict[tuple[str, ...], list[str]] = {}
    for name, runs in texts.items():
        for run in runs:
            holders.setdefault(run, []).append(name)
    common = Counter(pair for names in holders.values() for pair in combinations(names, 2))
    return {(one, other): count / min(len(texts[one]), len(texts[other])) for (one, other), count in common.items()}


def test_no_cassette_is_a_copy_of_another() -> None:
    """No two share more than 60 % of their text, codes and numbers masked (containment of runs of five words)."""
    texts = {case_id: shingles(answers_of(case_id)) for case_id in cases()}
    assert min(map(len, texts.values())) > 20
    assert {pair: share for pair, share in shared(texts).items() if share > MOST_SHARED} == {}


def test_a_template_would_be_seen() -> None:
    """The measure itself can fail: the same text with other codes and numbers, and half of it replaced by other words."""
    case_id = next(iter(cases()))
    text = " ".join(prose(answers_of(case_id)))
    other = re.sub(r"\d", "7", text)
    longer = f"{other} {' '.join(f'word{letter}' for letter in 'abcdefghij')}"
    found = shared({"one": shingles([text]), "same": shingles([other]), "longer": shingles([longer])})
    assert found["one", "same"] == 1.0
    assert found["one", "longer"] > MOST_SHARED
    words = text.split()
    half = " ".join(words[: len(words) // 2])
    assert shared({"one": shingles([text]), "half": shingles([half])})["one", "half"] > MOST_SHARED
