"""What the scorer computes of an answer instead of believing the target: rows of `data/tariff_computed.yaml`."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from pytest_packbench.packs.tariff.edition import load_edition
from pytest_packbench.packs.tariff.notation import LEVELS, dotted, parse_code, parse_rule
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.unit.tariff_cases import Json, case, parse_step, result_of, rules, table

if TYPE_CHECKING:
    from pytest_packbench.model.result import Score

TABLE = table("tariff_computed")
ROWS: dict[str, Json] = {
    f"{group}: {name}": row
    for group in ("codes", "schedule", "citations", "rules")
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
    result["citations"] = citations
    if result["tariff_dossier"]:
        result["tariff_dossier"]["gri_trace"] = {"sequence_ok": True, "steps": steps}
    schedule = {"schedule": "us_2026_revision_10"} if row.get("schedule") else {}
    config = rules(**schedule, **row.get("rules", {}))
    pack = TariffPack().for_suite(config)
    checked: Any = pack.case_model.model_validate(plain)
    return pack.score(checked, pack.read(result), config)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_an_answer_has_its_score_whatever_the_target_says_of_itself(row: Json) -> None:
    result = score_of(row)
    assert (result.score, row["because"] in [term.name for term in result.terms]) == (row["score"], True), result.terms
    assert result.passed == (row["score"] >= result.threshold)


def test_an_invented_code_has_a_level_a_depth_and_a_metric_of_its_own() -> None:
    config = rules(schedule="us_2026_revision_10")
    pack = TariffPack().for_suite(config)
    for code, level, depth, valid in (
        ("6404.11.9020", "preferred", 10, True),
        ("6404.11.9099", "invalid_code", 8, False),
        ("6404.11.9020 or 6402", "none", 0, False),
    ):
        plain: Any = pack.case_model.model_validate(case())
        outcome = pack.read(result_of({"code": code}))
        score = pack.score(plain, outcome, config)
        facts = pack.facts(plain, outcome, score)
        assert (score.match_level, score.match_depth, facts.valid) == (level, depth, valid)


def test_the_schedule_has_codes_rates_and_units() -> None:
    edition = load_edition("us_2026_revision_10")
    assert edition is load_edition("us_2026_revision_10")
    assert [edition.existing(code) for code in ("6404119020", "6404119099", "0101300000", "7704", "64041")] == [
        "6404119020",
        "64041190",
        "0101300000",
        "",
        "6404",
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
    assert (edition.units("6404119020"), edition.units("0102292011"), edition.units("7704110000")) == (
        "prs.",
        "No.,kg",
        "",
    )


@given(
    st.from_regex(r"[0-9]{4}([. ]?[0-9]{2}){0,3}", fullmatch=True), st.sampled_from(["{}", " {}\n", "HTS {}", "{}*"])
)
def test_one_code_is_read_in_any_form(code: str, form: str) -> None:
    assert parse_code(form.format(code)) == "".join(char for char in code if char.isdigit())
    assert [
        parse_code(text) for text in (f"{code} or {code}", f"not {code}", f"{code}%", f"{code}7", f"{code}/{code}")
    ] == [None] * 5


# what codes and their disguises are made of
PIECES = st.sampled_from(
    [
        *(
            "6404",
            "11",
            "90",
            "20",
            "1",
            "64",
            "0",
            "6402.99.3165",
            ".",
            " ",
            "  ",
            "\t",
            "\n",
            "/",
            "1/",
            " 2/",
            "%",
            "-",
            ",",
        ),
        *(
            "HTS",
            "HTSUS ",
            "code",
            ":",
            "not ",
            " no. ",
            "or",
            "*",
            "\u2020",
            "(a)",
            "(x)",
            "(1)",
            "(64)",
            "[1]",
            "[64]",
            '"',
        ),
        *("\u00b9", "\u2076", "\u2070", "\u2460", "\u2473", "\u1d43", "\u207f", "\u00bd", "\u2163", "\u0336", "\u20e0"),
        *(
            "\u200b",
            "\ufeff",
            "\u202e",
            "\u200f",
            "\u00ad",
            "\uff16",
            "\uff0f",
            "\uff05",
            "\u0666",
            "\U0001d7d4",
            "\U000e0031",
        ),
    ]
)


@given(
    st.one_of(
        st.lists(PIECES, max_size=12).map("".join),
        st.tuples(st.sampled_from(["6404", "6404.11", "6404.11.90", "6404.11.9020"]), st.lists(PIECES, max_size=5)).map(
            lambda parts: parts[0] + "".join(parts[1])
        ),
        st.text(),
    )
)
def test_a_text_that_is_read_as_a_code_has_exactly_one_and_begins_with_it(text: str) -> None:
    code = parse_code(text)
    event(f"{len(code)} digits" if code else "no code")
    if code is None:
        return
    plain = unicodedata.normalize("NFKC", text)
    shown = "".join(char for char in plain if char.isdigit())
    assert len(code) in LEVELS[1:]
    assert shown.startswith(code)
    # what follows is too short to be a heading, or the next digits of the code
    assert len(shown) - len(code) <= (2 if len(code) == LEVELS[-1] else 1)
    end = [at for at, char in enumerate(plain) if char.isdigit()][len(code) - 1] + 1
    assert sum(char.isalpha() for char in plain[end:]) <= 1
    assert re.fullmatch(
        r"[\s\u200b\u2060\ufeff\"'`\u2018\u201c\u201e\u00ab]*(hts(us)?[a-z :.-]*)?[\s\d.]*", plain[:end], re.IGNORECASE
    )
    assert not any(unicodedata.category(char) in {"Mn", "Me", "Mc", "Co", "Cn"} for char in text)
    assert parse_code(dotted(code)) == code


@given(st.text(st.sampled_from("0123456789 .-/[](a)\u00b9\u2460\u200b\u0336%"), min_size=1, max_size=12))
def test_what_stands_behind_a_code_never_changes_it(rest: str) -> None:
    assert parse_code(f"6404.11.9020{rest}") in {"6404119020", None}
    assert parse_code(f"6404.11.90 {rest}") in {"64041190", None} or re.match(r" ?[0-9]{2}(?!/$)", rest)
    assert parse_code(f"{rest}6404.11.9020") in {"6404119020", None}


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        *((1, "1"), (6, "6"), ("GIR 1", "1"), ("G.R.I. 3(b)", "3b"), ("General Rule of Interpretation 3(c)", "3c")),
        *(("General Interpretive Rule 1", "1"), ("Additional U.S. Rule of Interpretation 1(c)", "us_1c")),
        *(("GRI us_1a", "us_1a"), (True, None), (0, None), (-1, None), (7, None), (1.5, None), (None, None)),
        *(("not 1", None), ("1 rule b", None), ("1 or 3b", None), ("gri", None), ("3", None), ("us 3b", None)),
    ],
)
def test_a_rule_is_read_by_its_name_or_number(value: object, rule: str | None) -> None:
    assert parse_rule(value) == rule
