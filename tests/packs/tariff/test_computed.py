"""What the scorer computes of an answer instead of believing the target: rows of `data/tariff_computed.yaml`."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pytest_packbench.model.pack import record_facts
from pytest_packbench.model.result import ResultError
from pytest_packbench.packs.tariff.answer import Code
from pytest_packbench.packs.tariff.edition import load_edition
from pytest_packbench.packs.tariff.notation import digits, dotted
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.packs.tariff.cases import (
    RIGHT,
    Json,
    answer,
    case,
    classification,
    parse_step,
    result_of,
    rules,
    table,
    what_if,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.model.result import Score

TABLE = table("computed")
ROWS: dict[str, Json] = {
    f"{group}: {name}": row
    for group in ("codes", "schedule", "citations", "rates", "rules")
    for name, row in TABLE[group].items()
}


def score_of(row: Json) -> Score:
    """Score the answer of a row, in which the target says that all is right."""
    plain = case(**row.get("case", {}))
    if row.get("evidence", True):
        plain["input"]["evidence"] = [
            {"source_id": name, "text": TABLE[key]} for name, key in (("report", "text"), ("old", "old"))
        ]
    citations = [{"source_id": source, "claim": "it is so", "quote": quote} for source, quote in row.get("quotes", [])]
    steps = list(map(parse_step, row.get("steps", [])))
    result = result_of({"refusal": row["refusal"]} if "refusal" in row else row.get("answer", {}))
    dossier = result.setdefault("tariff_dossier", {})
    dossier |= {"citations": citations, "gri_trace": {"sequence_ok": True, "steps": steps}}
    schedule = {"schedule": "us_2026_revision_10"} if row.get("schedule") else {}
    config = rules(**schedule, **row.get("rules", {}))
    pack = TariffPack().for_suite(config)
    checked: Any = pack.case_model.model_validate(plain)
    return pack.score(checked, pack.read(result), config)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_an_answer_has_its_score_whatever_the_target_says_of_itself(row: Json) -> None:
    if row.get("unreadable"):
        with pytest.raises(ResultError, match=r"hts_code: got .*; expected one code of 4, 6, 8 or 10 digits"):
            score_of(row)
        return
    result = score_of(row)
    assert (result.score, row["because"] in [term.name for term in result.terms]) == (row["score"], True), result.terms
    assert result.passed == (row["score"] >= result.threshold)


def test_an_invented_code_has_a_level_a_depth_and_a_metric_of_its_own() -> None:
    config = rules(schedule="us_2026_revision_10")
    pack = TariffPack().for_suite(config)
    for code, level, depth, valid in (
        ("6404.11.9020", "preferred", 10, True),
        ("6404.11.9099", "invalid_code", 8, False),
        ("6499.11.9020", "invalid_code", 2, False),
    ):
        plain: Any = pack.case_model.model_validate(case())
        outcome = pack.read(result_of({"code": code}))
        score = pack.score(plain, outcome, config)
        facts = record_facts(pack, plain, outcome, score)
        assert (score.match_level, score.match_depth, facts.valid) == (level, depth, valid)


def test_the_schedule_has_codes_and_rates() -> None:
    edition = load_edition("us_2026_revision_10")
    assert edition is load_edition("us_2026_revision_10")
    # the last two: a line without suffixes
    codes = ("6404119020", "6404119099", "0101300000", "7704", "64041", "9101114000", "9101114010")
    assert [edition.existing(code) for code in codes] == [
        "6404119020",
        "64041190",
        "0101300000",
        "",
        "6404",
        "9101114000",
        "91011140",
    ]
    assert [
        edition.rate(code) for code in ("64041190", "6404119020", "0102294024", "98020091", "6404", "6404119099")
    ] == [
        ("20%", 20.0),
        ("20%", 20.0),
        ("1¢/kg", None),
        None,
        None,
        None,
    ]


CODES = TypeAdapter(Code)


@given(st.from_regex(r"[0-9]{4}([. ]?[0-9]{2}){0,3}", fullmatch=True), st.sampled_from(["{}", " {}\n"]))
def test_one_code_is_read_in_its_forms_and_written_with_its_dots(code: str, form: str) -> None:
    read = CODES.validate_python(form.format(code), strict=True)
    assert read == digits(code)
    assert CODES.dump_python(read) == dotted(code)
    for text in (
        f"{code} or {code}",
        f"not {code}",
        f"{code}%",
        f"{code}7",
        f"{code}/{code}",
        f"{code}.",
        f"{code}-00",
    ):
        with pytest.raises(ValidationError):
            CODES.validate_python(text, strict=True)


@given(st.text(st.sampled_from("0123456789 .-/[](a)\u00b9\u2460\u200b\u0336%\uff16\u0666\n"), max_size=14) | st.text())
def test_a_text_that_is_read_as_a_code_has_nothing_else(text: str) -> None:
    try:
        code = CODES.validate_python(text, strict=True)
    except ValidationError:
        return
    assert code.isascii()
    assert len(code) in {4, 6, 8, 10}
    assert "".join(text.replace(".", " ").split()) == code


LONG: dict[str, Callable[[int], Json]] = {
    "steps": lambda count: {"gri_trace": {"steps": [parse_step("6 subheading 6404.11 6404.19 = failed")] * count}},
    "deciding steps": lambda count: {"gri_trace": {"steps": [parse_step("1 heading 6404 6405 = 6404")] * count}},
    "citations": lambda count: {"citations": [{"source_id": "report", "quote": f"{row}"} for row in range(count)]},
    "changes": lambda count: {"what_if_candidates": [what_if(row, 1, "6405.20.90", -7.5) for row in range(count)]},
    "articles": lambda count: {
        "articles": [{"article": f"shoe {row}", "baseline": classification()} for row in range(count)]
    },
}


@pytest.mark.parametrize("kind", LONG)
def test_twice_as_long_an_answer_is_at_most_twice_the_work(kind: str) -> None:
    expected: Json = {"must_not_hts": ["6405"], "must_cite": ["report"], "expected_rule": "1"}
    if kind == "articles":
        shoes = [{"name": f"shoe {row}", "preferred_hts": [RIGHT]} for row in range(2)]
        expected = {"preferred_hts": [], "articles": shoes}
    plain = case(**expected)
    plain["input"]["evidence"] = [{"source_id": "report", "text": TABLE["text"]}]
    code = None if kind == "articles" else RIGHT
    # the first one fills the caches
    _, *calls = [calls_of(plain, answer(code, dossier=LONG[kind](count))) for count in (1, 100, 200)]
    assert calls[1] <= 2.05 * calls[0]
    assert calls[1] >= 1.2 * calls[0], "the length has to matter, or nothing was counted"


def calls_of(plain: Json, result: Json) -> int:
    """Count the calls of functions that reading, scoring and describing an answer need."""
    pack = TariffPack().for_suite(rules(schedule="us_2026_revision_10"))
    checked: Any = pack.case_model.model_validate(plain)
    counts = Counter[str]()
    sys.setprofile(lambda _frame, event, _value: counts.update([event]))
    try:
        read = pack.read(result)
        pack.facts(checked, read.document, pack.score(checked, read, pack.rules).terms)
    finally:
        sys.setprofile(None)
    return counts["call"] + counts["c_call"]
