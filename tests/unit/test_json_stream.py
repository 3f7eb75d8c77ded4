"""Reading JSON in chunks gives what reading it at once gives."""

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
sizes = st.integers(1, 7)
spaces = st.sampled_from([None, 0, 3])


def stream(text: str, size: int = 3) -> JsonStream:
    return JsonStream(io.StringIO(text, newline=""), chunk_size=size)


def read(at: JsonStream) -> Any:
    """Read a value by walking wherever that can be done."""
    if at.starts_with("{"):
        return {key: read(at) for key in at.members()}
    if at.starts_with("["):
        return [read(at) for _ in at.items()]
    return at.value()


@given(values, sizes, spaces)
def test_a_document_read_in_chunks_is_the_document_read(value: Any, size: int, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    for way in (read, JsonStream.value):
        at = stream(text + "\r\n ", size)
        assert way(at) == value
        at.end()


@given(st.dictionaries(texts, values, max_size=5), sizes, st.randoms(use_true_random=False))
def test_what_is_skipped_changes_nothing_of_the_rest(found: dict[str, Any], size: int, chance: Any) -> None:
    at = stream(json.dumps(found), size)
    kept = {}
    for key in at.members():
        if chance.random() < 0.5:
            kept[key] = at.value()
        else:
            at.skip()
    at.end()
    assert kept == {key: found[key] for key in kept}


@given(values, st.data(), sizes)
def test_what_is_no_json_is_refused(value: Any, data: st.DataObject, size: int) -> None:
    text = json.dumps(value)
    place = data.draw(st.integers(0, len(text)))
    spoilt = text[:place] + data.draw(st.sampled_from(["", "x", "}", ",", '"', "1"])) + text[place + 1 :]
    try:
        expected, fine = json.loads(spoilt), True
    except ValueError:
        expected, fine = None, False
    at = stream(spoilt, size)
    try:
        found = read(at)
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
        ("9" * 5000, "A number with thousands of digits at character 1"),
    ],
)
def test_the_place_is_told(text: str, said: str) -> None:
    def whole() -> None:
        at = stream(text)
        read(at)
        at.end()

    with pytest.raises(JsonStreamError) as caught:
        whole()
    assert str(caught.value) == said


def test_a_large_array_is_never_held() -> None:
    row = json.dumps({"text": "x" * 100})

    text = io.StringIO(f'{{"tests":[{",".join([row] * 5000)}],"last":1}}', newline="")
    at = JsonStream(text, chunk_size=1000)
    for key in at.members():
        if key == "tests":
            at.skip()
            # consumed text is discarded: only a few chunks are buffered
            assert len(at._buffer) < 5000
        else:
            assert at.value() == 1
