"""Redaction: no secret remains in any text or JSON value, and nothing else is changed."""

from __future__ import annotations

import json
import time
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.redaction import FORMS, REDACTED, Redactor, redact_options, secrets_of_target

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
        words, secret_values = redact_options(command.split())
        assert (" ".join(words), secret_values) == (shown, values.split())


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


# a line break takes these signs with it, where they are those of a quotation or a frame
EDGES = "'\"|\\>#*E"
RANDOM = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"


DIGITS = "0a1b2c3d4e5f67890a1b2c3d4e5f6789"


def filled(key: str) -> str:
    return key.replace("*", RANDOM).replace("#", DIGITS)


FORMED = {name: [filled(key) for key in keys] for name, keys in TABLES["forms"].items()}
# before, the key, after
WITHIN = [filled(row).replace(">", "<").split("<", 2) for row in TABLES["forms within text"]]


@pytest.mark.parametrize("name", FORMED)
def test_what_has_the_form_of_a_key_is_redacted_in_any_text(name: str) -> None:
    redactor, keys = Redactor(), FORMED[name]
    assert {key: {found.what for found in redactor.find(key)} for key in keys} == {key: {name} for key in keys}
    texts = ["a {} b, {}", json.dumps({"key": "{}"}).replace("{", "{{", 1)[:-1] + "}}", "line\n{}\nnext"]
    for text in texts:
        expected = text.format(REDACTED, REDACTED)
        assert {key: redactor.json(text.format(key, key)) for key in keys} == dict.fromkeys(keys, expected)
        assert [key for key in keys if not redactor.suspects(json.dumps(text.format(key, key)))] == []


def test_what_has_the_form_of_a_key_by_what_is_beside_it_is_redacted() -> None:
    for before, key, after in WITHIN:
        assert Redactor().json(before + key + after) == before + REDACTED + after


def test_each_form_has_an_example_and_the_security_page_lists_all() -> None:
    examples = ["".join(row) for row in WITHIN] + [key for keys in FORMED.values() for key in keys]
    makers = [form for form in FORMS if form.name.startswith("a key of ")]
    assert [hint for form in makers for hint in form.hints if not any(hint in text for text in examples)] == []
    found = {what.what for text in examples for what in Redactor().find(text)}
    assert found == {form.name for form in FORMS}
    named = sorted({form.name.removeprefix("a key of ") for form in makers}, key=str.lower)
    page = " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text("utf-8").split())
    assert f"Keys of these makers: {', '.join(named)}." in page


def cpu_s(text: str) -> float:
    redactor, before = Redactor(), time.process_time()
    redactor.json({"text": text})
    redactor.find({"text": text})
    return time.process_time() - before


def repeated(part: str, length: int = 40_000) -> str:
    return part * (length // len(part))


@pytest.fixture(scope="module")
def ordinary_s() -> float:
    return min(cpu_s(repeated("Bearer abc, and api-key: none \n")) for _ in range(3))


@pytest.mark.parametrize("name", sorted({form.name for form in FORMS}))
def test_no_form_is_slow(name: str, ordinary_s: float) -> None:
    keys = FORMED.get(name) or ["".join(row[:2])[-60:] for row in WITHIN]
    parts = {hint for form in FORMS if form.name == name for hint in form.hints}
    parts |= {part for key in keys[-3:] for part in (key[: len(key) // 2], key[: len(key) // 2] + "\n")}
    assert {part for part in parts if cpu_s(repeated(part)) > 10 * ordinary_s} == set()


@pytest.mark.parametrize("part", ["-----BEGIN PRIVATE KEY-----", "authorization=", "api_key=", "xoxp-1-aB3dE5fG7h\n"])
def test_a_long_text_of_what_begins_as_a_key_takes_no_more_than_ordinary_text(part: str, ordinary_s: float) -> None:
    assert cpu_s(repeated(part, 800_000)) < 10 * 20 * ordinary_s


def test_texts_of_cases_stay_as_they_are() -> None:
    assert [text for text in TABLES["no forms"] if Redactor().json(text) != text] == []
    for name, value, text in TABLES["plain values"]:
        redactor = Redactor({name: value})
        assert (redactor.json(text), redactor.text(text)) == (text, text)


@given(secret=secrets, before=st.binary(max_size=7), after=st.binary(max_size=7))
def test_no_secret_remains_in_base64_hexadecimal_or_a_url(secret: str, before: bytes, after: bytes) -> None:
    data = secret.encode()
    redactor = Redactor({"TOKEN": secret})
    whole = before + data + after
    for encode in (b64encode, urlsafe_b64encode):
        redacted = redactor.json(encode(whole).decode())
        assert REDACTED in redacted
        assert max(map(len, redacted.split(REDACTED))) <= 12
    basic = b64encode(b"user:" + data).decode()
    assert redactor.text(f"Authorization: Basic {basic}") == f"Authorization: Basic {REDACTED}"
    for text in (data.hex(), data.hex().upper(), quote(secret, safe=""), quote(secret), quote_plus(secret)):
        assert redactor.json(f"a {text} b") == f"a {REDACTED} b"


@given(secret=secrets, cut=st.integers(1, 6), indent=st.sampled_from(["", "  ", "> ", "    | ", "E   "]))
def test_a_secret_that_a_line_break_cuts_is_found(secret: str, cut: int, indent: str) -> None:
    redactor = Redactor({"TOKEN": secret})
    for form in (secret, b64encode(secret.encode()).decode(), secret.encode().hex()):
        text = f"{form[:cut]}\n{indent}{form[cut:]}"
        if form[cut - 1] in EDGES or form[cut] in EDGES:
            continue
        for written in (text, text.replace("\n", "\r\n"), json.dumps(text, ensure_ascii=False)[1:-1]):
            assert redactor.suspects(json.dumps(written))
            assert form[cut:] not in redactor.json(f"a {written} b")


def test_a_key_that_a_line_break_cuts_takes_no_word_with_it() -> None:
    redactor, key = Redactor(), f"sk-proj-{RANDOM}"
    assert redactor.json(f"{key}\nNext line") == f"{REDACTED}\nNext line"
    assert redactor.json(f"{key}\nand_more: 1") == f"{REDACTED}\nand_more: 1"
    assert redactor.json(f"{key[:20]}\n  {key[20:]} end") == f"{REDACTED} end"
    assert redactor.json(f"{key}\n  x7Yz8 end") == f"{REDACTED} end"


def test_secrets_are_found_with_their_names_and_places() -> None:
    redactor = Redactor({"SOME_KEY": SECRET}, ["optional-1"])
    value = {"a/b": [1, f"x {SECRET}"], "optional-1": {"c": "AKIAIOSFODNN7EXAMPLE"}}
    assert [(found.what, found.pointer, found.is_known) for found in redactor.find(value)] == [
        ("a value of an option or a header", "", True),
        ("the value of SOME_KEY", "/a~1b/1", True),
        ("a key of AWS", "/optional-1/c", False),
    ]


def test_variables_that_are_set_later_are_found_after_a_refresh() -> None:
    environment: dict[str, str] = {}
    redactor = Redactor(environment, ["optional-1"])
    environment["LATE_KEY"] = SECRET
    assert redactor.text(SECRET) == SECRET
    redactor.refresh()
    assert redactor.text(f"{SECRET} optional-1") == f"{REDACTED} {REDACTED}"


def test_the_beginning_of_a_secret_of_a_result_is_redacted_in_messages_about_it() -> None:
    redactor = Redactor({"SOME_KEY": SECRET})
    found = redactor.find(f"it is {SECRET}")
    assert redactor.text(f"got {SECRET[:10]}..., {SECRET.upper()[:9]}, {SECRET[:7]}", found) == (
        f"got {REDACTED}..., {REDACTED}, {SECRET[:7]}"
    )


def test_secrets_of_a_target_are_those_of_its_options_and_its_address() -> None:
    assert secrets_of_target("cmd:agent --api-key abc -H 'Authorization: Bearer def'") == ["abc", "Bearer def", "def"]
    assert secrets_of_target("cmd:agent 'x") == []
    assert secrets_of_target("http://me:p%2Fw@host/?a=1&token=t%2B1") == ["p/w", "bWU6cC93", "me", "t%2B1", "t+1"]
    assert secrets_of_target("http://token@host/") == ["token"]
    assert secrets_of_target("module:attr") == secrets_of_target("http://[bad/") == []


def test_long_words_without_a_digit_cost_no_search() -> None:
    redactor = Redactor({})
    assert not redactor.suspects('{"hook": "tariff.essential_character", "rule": "non-discriminatory_treatment"}')
    assert redactor.suspects("sk-abcdefghijklmnopqrstuvwxyz1")


@pytest.mark.parametrize(("run", "length"), [(" ", 100), ("-", 4000), ("-a", 2000), ("-eyJ0123456789", 400)])
def test_a_long_run_of_the_same_characters_takes_no_more_than_its_length(run: str, length: int) -> None:
    redactor = Redactor({})

    def cpu_s(times: int) -> float:
        text, before = f"x{run * times}x\nsk-abcdefghijklmnopqrstuvwxyz1", time.process_time()
        assert REDACTED in redactor.text(text)
        return time.process_time() - before

    few, many = (min(cpu_s(times) for _ in range(3)) for times in (length, 8 * length))
    # with the square, it would be 64 times as much
    assert many < 30 * max(few, 0.001)


def test_a_token_with_a_long_header_is_redacted_wherever_it_begins() -> None:
    token = f"eyJ{'a1' * 4000}.eyJ{'b2' * 40}.{'c3' * 20}"
    for before in ("", "token=", "x-", "\\n", "%0A", "\x1b[0m"):
        assert Redactor({}).text(f"{before}{token}") == f"{before}{REDACTED}", before
    assert Redactor({}).text("eyJ0123456789.eyJ0123456789") == "eyJ0123456789.eyJ0123456789"


PRINTED = [
    ({"DB_PASSWORD": "48291537"}, 48291537),
    ({"DB_PASSWORD": "4829.1537"}, 4829.1537),
    ({"CARD_PIN": "4821"}, 4821),
]


@pytest.mark.parametrize(("environment", "number"), PRINTED)
def test_a_number_that_prints_as_a_secret_is_one_wherever_it_stands(environment: dict[str, str], number: float) -> None:
    redactor = Redactor(environment)
    value = {"a": [number, 1, True, None], "b": {str(number): {"c": number}}}
    assert redactor.suspects(json.dumps(value))
    assert redactor.json(value) == {"a": [REDACTED, 1, True, None], "b": {REDACTED: {"c": REDACTED}}}
    assert [found.pointer for found in redactor.find(value)] == ["/a/0", "/b", f"/b/{number}/c"]
    assert all(found.is_known for found in redactor.find(value))


def test_variables_that_are_named_are_secret_whatever_they_look_like() -> None:
    environment = {"CITY": "swordfish", "FLAG": "true", "STREET": "main street 1", "PACKBENCH_SECRETS": "CITY, FLAG"}
    value = {"city": "swordfish", "flag": True, "street": "main street 1"}
    assert Redactor(environment).json(value) == value | {"city": REDACTED, "flag": REDACTED}
    assert Redactor(environment, names="STREET").json(value) == dict.fromkeys(value, REDACTED)
    assert Redactor(environment).json("CITY, FLAG") == "CITY, FLAG"
