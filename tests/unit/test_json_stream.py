"""Walking through JSON piece by piece gives what reading it whole gives."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.runs.json_stream import JsonStream, JsonStreamError

texts = st.text(st.sampled_from('ab"\\{}[]:, \n\u2028ü\U0001f600'), max_size=5)
numbers = st.integers() | st.floats(allow_nan=False) | st.integers(-(10**30), 10**30)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)
pieces = st.integers(1, 7)
spaces = st.sampled_from([None, 0, 3])


def walk(text: str, piece: int = 3) -> JsonStream:
    return JsonStream(io.StringIO(text, newline=""), piece=piece)


def walked(at: JsonStream) -> Any:
    """Read a value by walking wherever that can be done."""
    if at.begins("{"):
        return {key: walked(at) for key in at.members()}
    if at.begins("["):
        return [walked(at) for _ in at.items()]
    return at.value()


@given(values, pieces, spaces)
def test_a_document_walked_is_the_document_read(value: Any, piece: int, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    for way in (walked, JsonStream.value):
        at = walk(text + "\r\n ", piece)
        assert way(at) == value
        at.end()


@given(st.dictionaries(texts, values, max_size=5), pieces, st.randoms(use_true_random=False))
def test_what_is_skipped_changes_nothing_of_the_rest(found: dict[str, Any], piece: int, chance: Any) -> None:
    at = walk(json.dumps(found), piece)
    kept = {}
    for key in at.members():
        if chance.random() < 0.5:
            kept[key] = at.value()
        else:
            at.skip()
    at.end()
    assert kept == {key: found[key] for key in kept}


@given(values, st.data(), pieces)
def test_what_is_no_json_is_refused(value: Any, data: st.DataObject, piece: int) -> None:
    text = json.dumps(value)
    place = data.draw(st.integers(0, len(text)))
    spoilt = text[:place] + data.draw(st.sampled_from(["", "x", "}", ",", '"', "1"])) + text[place + 1 :]
    try:
        expected, fine = json.loads(spoilt), True
    except ValueError:
        expected, fine = None, False
    at = walk(spoilt, piece)
    try:
        found = walked(at)
        at.end()
    except JsonStreamError:
        assert not fine
    else:
        assert fine
        assert found == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value at character 1"),
        ("{} x", "Extra data at character 4"),
        ('{"a" 1}', "Expecting : at character 6"),
        ('{"a":1 "b"', "Expecting , or } at character 8"),
        ("{1:2}", "Expecting property name enclosed in double quotes at character 2"),
        ("9" * 5000, "A number of thousands of digits at character 1"),
    ],
)
def test_the_place_is_told(text: str, said: str) -> None:
    def whole() -> None:
        at = walk(text)
        walked(at)
        at.end()

    with pytest.raises(JsonStreamError) as caught:
        whole()
    assert str(caught.value) == said


def test_a_large_array_is_never_held() -> None:
    row = json.dumps({"text": "x" * 100})

    text = io.StringIO(f'{{"tests":[{",".join([row] * 5000)}],"last":1}}', newline="")
    at = JsonStream(text, piece=1000)
    for key in at.members():
        if key == "tests":
            at.skip()
            # what was passed is let go: no more than a few pieces are there
            assert len(at._text) < 5000
        else:
            assert at.value() == 1
