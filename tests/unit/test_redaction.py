"""No planted value survives in any text or JSON value, and nothing else is touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.redaction import REDACTED, Redactor, redact_options
from pytest_packbench.model.request import ModelAnswer, ToolCall

# printable and without the characters of the mark that takes their place
secret_texts = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=("Z", "C"), exclude_characters="[]"),
    min_size=8,
    max_size=40,
)
plain = st.text(max_size=20)


@st.composite
def planted(draw: st.DrawFn) -> tuple[str, Any]:
    secret = draw(secret_texts)
    text = st.builds(lambda before, after: before + secret + after, plain, plain) | plain
    leaf = st.none() | st.booleans() | st.integers() | text
    value = st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
    )
    return secret, draw(value)


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [one for pair in value.items() for part in pair for one in texts(part)]
    if isinstance(value, list):
        return [one for item in value for one in texts(item)]
    return []


@given(planted())
def test_no_planted_value_survives_in_a_json_value(given_: tuple[str, Any]) -> None:
    secret, value = given_
    secrets = Redactor({"SOME_API_KEY": secret})
    hidden = secrets.json(value)
    assert not [text for text in texts(hidden) if secret in text]
    assert Redactor({"SOME_API_KEY": "nowhere-to-be-found"}).json(value) == value


@given(secret=secret_texts, before=plain, after=plain)
def test_no_planted_value_survives_in_text_in_whatever_form(secret: str, before: str, after: str) -> None:
    hide = Redactor({"TOKEN": secret}).text
    for form in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        hidden = hide(before + form + after)
        assert secret not in hidden
        assert form[1:-1] not in hidden


@given(one=secret_texts, more=secret_texts)
def test_a_secret_within_another_hides_both(one: str, more: str) -> None:
    hidden = Redactor({"A_KEY": one, "B_KEY": one + more}).text(f"x {one + more} y {one} z")
    assert one not in hidden
    assert more not in hidden or more in one


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "PGPASSWORD",
        "MYSQL_PWD",
        "DB_PASS",
        "MYAPIKEY",
        "SERVICE_CREDENTIALS",
        "GITHUB_PAT",
        "SIGNING_PASSPHRASE",
        "PROXY_AUTHORIZATION",
        "openai_api_key",
    ],
)
def test_names_that_hold_secrets(name: str) -> None:
    assert Redactor({name: "planted-value-1"}).text("a planted-value-1 b") == f"a {REDACTED} b"


@pytest.mark.parametrize(
    "name",
    ["PWD", "OLDPWD", "PATH", "HOME", "LANG", "MODEL", "PASSAGE", "COMPASS_HOME", "GIT_AUTHOR_NAME", "AUTHORS"],
)
def test_names_that_hold_none(name: str) -> None:
    assert Redactor({name: "/home/anybody"}).text("in /home/anybody") == "in /home/anybody"


def test_short_values_are_words() -> None:
    assert Redactor({"API_KEY": "none"}).text("none of them") == "none of them"


def test_lines_of_headers_and_files_are_secrets_of_their_own() -> None:
    headers = "X-Api-Key: header-secret-1\nOther: header-secret-2"
    account = json.dumps({"type": "service", "private_key": "-----BEGIN-----\nabcdefghijkl\n-----END-----\n"})
    hide = Redactor({"EXTRA_HEADERS": headers, "SERVICE_CREDENTIALS": account}).text
    assert hide("got header-secret-2") == f"got {REDACTED}"
    assert "abcdefghijkl" not in hide("line abcdefghijkl of a key")
    assert hide("type service") == "type service"


def test_authorization_is_hidden_although_nobody_named_it() -> None:
    hide = Redactor({}).text
    assert hide("Authorization: Bearer abc.DEF-123_45") == f"Authorization: Bearer {REDACTED}"
    assert "swordfish" not in hide("can't reach postgres://me:swordfish@db/x")
    assert hide("see http://localhost:8080/a@b") == "see http://localhost:8080/a@b"


def test_a_models_echo_is_hidden_in_every_part_of_an_answer() -> None:
    secret = "planted-value-1"  # noqa: S105 - planted to be looked for
    answer = ModelAnswer(
        content={secret: [secret]},
        refusal=f"no {secret}",
        tool_calls=(ToolCall(id=secret, name=f"x{secret}", arguments={"a": secret}),),
    )
    assert secret not in repr(Redactor({"KEY": secret}).answer(answer))


def test_what_the_clients_take_from_the_environment_is_secret() -> None:
    environment = {
        "OPENAI_API_KEY": " local-key-of-mine\n",
        "MY_PASSWORD": "short",
        "OPENAI_CUSTOM_HEADERS": "X-Gateway: planted-value\nX-More: another-value",
        "SOME_TOKEN": "local-key-of-mine-and-more",
        "HOME_TOWN": "Rotterdam",
    }
    text = Redactor(environment).text
    assert text("local-key-of-mine planted-value another-value") == " ".join([REDACTED] * 3)
    assert text("local-key-of-mine-and-more") == REDACTED
    assert text("short in Rotterdam") == "short in Rotterdam"


# names that only one of the former redactors recognized
@pytest.mark.parametrize(
    "name",
    [
        "MYTOKENS",
        "KEYRING",
        "MASTERKEYFILE",
        "XPASSWX",
        "MYCREDENTIALS",
        "OAUTH2",
        "EXTRAHEADERS",
        "A_PAT_B",
        "PATS",
        "DB_PASS_1",
        "PASSPHRASE",
        "MYPASS",
        "SMTP_PWD",
        "MY_SECRETS",
    ],
)
def test_every_former_pattern_of_names_is_recognized(name: str) -> None:
    redactor = Redactor({name: "planted-value-1"})
    assert redactor.text("a planted-value-1 b") == f"a {REDACTED} b"
    assert redactor.json({"planted-value-1": ["planted-value-1"]}) == {REDACTED: [REDACTED]}


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Bearer abc.def-123456", "Bearer [redacted]"),
        ("bearer abc*ef", "bearer [redacted]"),
        ("authorization: Basic dXNlcjpwdw==", "authorization: Basic [redacted]"),
        ("Proxy-Authorization: hunter2", "Proxy-Authorization: [redacted]"),
        ("{'x-api-key': 'abcdef'}", "{'x-api-key': '[redacted]'}"),
        ("api-key=abcdef", "api-key=[redacted]"),
        ("key sk-proj-abc***xyz is wrong", "key [redacted] is wrong"),
        ("at https://me:pw@host/v1", "at https://[redacted]@host/v1"),
        ("at https://:pw@host/v1", "at https://[redacted]@host/v1"),
        ("at https://token@host/v1", "at https://[redacted]@host/v1"),
        ("no key here: task-force, risk-free", "no key here: task-force, risk-free"),
    ],
)
def test_what_has_the_form_of_a_secret_is_redacted(text: str, safe: str) -> None:
    assert Redactor({}).text(text) == safe


def test_values_given_to_a_target_are_redacted_in_text_from_four_characters_in_results_from_eight() -> None:
    redactor = Redactor({}, ["a/b", "abcd", "swordfish/1"])
    assert redactor.text("a/b a%2Fb xabcdx swordfish%2F1") == f"a/b {REDACTED} x{REDACTED}x {REDACTED}"
    assert redactor.json(["abcd", "xswordfish/1"]) == ["abcd", f"x{REDACTED}"]


def test_a_secret_of_several_lines_is_redacted_line_by_line() -> None:
    redactor = Redactor({"SOME_KEY": "-----BEGIN KEY-----\nabcdefghijklmnop\n-----END KEY-----"})
    assert redactor.text("tail: ijk, abcdefghijklmnop") == f"tail: ijk, {REDACTED}"


def test_an_excerpt_is_redacted_before_it_is_cut() -> None:
    redactor = Redactor({"API_KEY": "planted-value-1"})
    assert redactor.excerpt("ab\n planted-value-1 cd", 8) == "ab [red…"
    assert redactor.excerpt("a\n b") == "a b"


@pytest.mark.parametrize(
    ("words", "shown", "secrets"),
    [
        ("agent --api-key abc --model m", "agent --api-key [redacted] --model m", ["abc"]),
        ("env API_KEY=abc agent --token=def", "env API_KEY=[redacted] agent --token=[redacted]", ["abc", "def"]),
        ("agent --secret --passwd x", "agent --secret --passwd [redacted]", ["x"]),
        ("agent --tokenizer bpe --author me key", "agent --tokenizer bpe --author me key", []),
    ],
)
def test_values_of_secret_options_are_redacted(words: str, shown: str, secrets: list[str]) -> None:
    assert redact_options(words.split()) == (shown.split(), secrets)
