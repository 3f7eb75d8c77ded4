"""No planted value survives in any text or JSON value, and nothing else is touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.engine.secrets import HIDDEN, Secrets
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
    secrets = Secrets({"SOME_API_KEY": secret})
    hidden = secrets.hide_in(value)
    assert not [text for text in texts(hidden) if secret in text]
    assert Secrets({"SOME_API_KEY": "nowhere-to-be-found"}).hide_in(value) == value


@given(secret=secret_texts, before=plain, after=plain)
def test_no_planted_value_survives_in_text_in_whatever_form(secret: str, before: str, after: str) -> None:
    hide = Secrets({"TOKEN": secret}).hide
    for form in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        hidden = hide(before + form + after)
        assert secret not in hidden
        assert form[1:-1] not in hidden


@given(one=secret_texts, more=secret_texts)
def test_a_secret_within_another_hides_both(one: str, more: str) -> None:
    hidden = Secrets({"A_KEY": one, "B_KEY": one + more}).hide(f"x {one + more} y {one} z")
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
    assert Secrets({name: "planted-value-1"}).hide("a planted-value-1 b") == f"a {HIDDEN} b"


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "PATH", "HOME", "LANG", "KEYBOARD", "MODEL"])
def test_names_that_hold_none(name: str) -> None:
    assert Secrets({name: "/home/anybody"}).hide("in /home/anybody") == "in /home/anybody"


def test_short_values_are_words() -> None:
    assert Secrets({"API_KEY": "none"}).hide("none of them") == "none of them"


def test_lines_of_headers_and_files_are_secrets_of_their_own() -> None:
    headers = "X-Api-Key: header-secret-1\nOther: header-secret-2"
    account = json.dumps({"type": "service", "private_key": "-----BEGIN-----\nabcdefghijkl\n-----END-----\n"})
    hide = Secrets({"EXTRA_HEADERS": headers, "SERVICE_CREDENTIALS": account}).hide
    assert hide("got header-secret-2") == f"got {HIDDEN}"
    assert "abcdefghijkl" not in hide("line abcdefghijkl of a key")
    assert hide("type service") == "type service"


def test_authorization_is_hidden_although_nobody_named_it() -> None:
    hide = Secrets({}).hide
    assert hide("Authorization: Bearer abc.DEF-123_45") == f"Authorization: Bearer {HIDDEN}"
    assert "swordfish" not in hide("can't reach postgres://me:swordfish@db/x")
    assert hide("see http://localhost:8080/a@b") == "see http://localhost:8080/a@b"


def test_a_models_echo_is_hidden_in_every_part_of_an_answer() -> None:
    secret = "planted-value-1"  # noqa: S105 - planted to be looked for
    answer = ModelAnswer(
        content={secret: [secret]},
        refusal=f"no {secret}",
        tool_calls=(ToolCall(id=secret, name=f"x{secret}", arguments={"a": secret}),),
    )
    assert secret not in repr(Secrets({"KEY": secret}).hide_in_answer(answer))
