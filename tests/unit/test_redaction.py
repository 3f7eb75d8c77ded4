"""Redaction: no secret remains in any text or JSON value, and nothing else is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.redaction import REDACTED, Redactor, redact_options

TABLES = yaml.safe_load((Path(__file__).parent / "data" / "redaction.yaml").read_text("utf-8"))
SECRET = "planted-value-1"  # noqa: S105 - planted to be redacted
# printable and without the characters of the mark that replaces them
secrets = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=("Z", "C"), exclude_characters="[]:"),
    min_size=5,
    max_size=40,
    # no word, path or filler
).map(lambda text: f"7{text}qZ8")
plain = st.text(max_size=20)


@st.composite
def values_with_secret(draw: st.DrawFn) -> tuple[str, Any]:
    secret = draw(secrets)
    text = st.builds(lambda before, after: before + secret + after, plain, plain) | plain
    leaves = st.none() | st.booleans() | st.integers() | text
    inner = st.recursive(
        leaves, lambda parts: st.lists(parts, max_size=3) | st.dictionaries(text, parts, max_size=3), max_leaves=8
    )
    return secret, draw(inner)


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in texts(part)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


@given(values_with_secret())
def test_no_secret_remains_in_a_json_value(example: tuple[str, Any]) -> None:
    secret, value = example
    redacted = Redactor({"SOME_API_KEY": secret}).json(value)
    assert [text for text in texts(redacted) if secret in text] == []
    assert Redactor({"SOME_API_KEY": "nowhere-to-be-found"}).json(value) == Redactor({}).json(value) == value


@given(secret=secrets, before=plain, after=plain)
def test_no_secret_remains_in_text_in_whatever_encoding(secret: str, before: str, after: str) -> None:
    redactor = Redactor({"TOKEN": secret})
    for form in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        redacted = redactor.text(before + form + after)
        assert secret not in redacted
        assert form[1:-1] not in redacted


@given(secret=secrets, rest=secrets)
def test_a_secret_inside_another_leaves_no_part_of_it(secret: str, rest: str) -> None:
    redacted = Redactor({"A_KEY": secret, "B_KEY": secret + rest}).text(f"x {secret + rest} y {secret} z")
    assert secret not in redacted
    assert rest not in redacted or rest in secret


def test_names_of_variables_forms_of_texts_and_options_say_what_is_secret() -> None:
    names = [name for row in TABLES["secret variables"] for name in row]
    assert [name for name in names if Redactor({name: SECRET}).text(f"a {SECRET} b") != f"a {REDACTED} b"] == []
    assert [name for name in TABLES["plain variables"] if Redactor({name: SECRET}).text(SECRET) != SECRET] == []
    assert {text: Redactor({}).text(text) for text in TABLES["texts"]} == TABLES["texts"]
    for command, (shown, values) in TABLES["commands"].items():
        assert redact_options(command.split()) == (shown.split(), values.split())


def test_lines_headers_and_members_of_a_secret_are_secret() -> None:
    for name, value, text, redacted in TABLES["values"]:
        assert Redactor({name: value}).text(text) == redacted


def test_further_secrets_are_redacted_anywhere_from_eight_characters_and_as_whole_words_from_four() -> None:
    redactor = Redactor({}, ["a/b1", "abcd", "ab12", "1234", "swordfish/1", "password"])
    for redact in (redactor.text, redactor.json):
        assert redact("a/b1 abcd 1234 password") == f"{REDACTED} abcd 1234 password"
        assert redact("xab12 ab12x (ab12) xswordfish%2F1x") == f"xab12 ab12x ({REDACTED}) x{REDACTED}x"
    assert redactor.json({"ab12": ("xswordfish/1", 1)}) == {REDACTED: [f"x{REDACTED}", 1]}


def test_an_excerpt_is_redacted_before_it_is_cut() -> None:
    redactor = Redactor({"API_KEY": SECRET})
    assert redactor.excerpt(f"ab\n {SECRET} cd", 8) == "ab [red…"
    assert [redactor.excerpt(text, 8) for text in ("a\n b", "12345678", "123456789")] == ["a b", "12345678", "1234567…"]
