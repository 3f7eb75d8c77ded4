"""Reading JSON in chunks gives what reading it at once gives."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.runs.json_stream import JsonStream, JsonStreamError

if TYPE_CHECKING:
    import random

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


def read(source: JsonStream) -> Any:
    """Read a value part by part."""
    if source.starts_with("{"):
        return {key: read(source) for key in source.members()}
    if source.starts_with("["):
        return [read(source) for _ in source.items()]
    return source.value()


def read_all(source: JsonStream) -> Any:
    value = read(source)
    source.end()
    return value


@given(values, sizes, spaces)
def test_a_document_read_in_chunks_is_the_document_read(value: Any, size: int, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    for method in (read, JsonStream.value):
        source = stream(text + "\r\n ", size)
        assert method(source) == value
        source.end()


@settings(max_examples=40)
@given(st.dictionaries(texts, values, max_size=5), sizes, st.randoms(use_true_random=False))
def test_the_rest_of_an_object_is_read_where_members_are_skipped(
    document: dict[str, Any], size: int, chance: random.Random
) -> None:
    source = stream(json.dumps(document), size)
    members = {}
    for key in source.members():
        if chance.random() < 0.5:
            members[key] = source.value()
        else:
            source.skip()
    source.end()
    assert members == {key: document[key] for key in members}


@given(values, st.data(), sizes)
def test_the_reader_accepts_what_json_accepts(value: Any, data: st.DataObject, size: int) -> None:
    text = json.dumps(value)
    place = data.draw(st.integers(0, len(text)))
    changed = text[:place] + data.draw(st.sampled_from(["", "x", "}", ",", '"', "1"])) + text[place + 1 :]
    source = stream(changed, size)
    try:
        expected = json.loads(changed)
    except ValueError:
        with pytest.raises(JsonStreamError):
            read_all(source)
        return
    assert read_all(source) == expected


INVALID = {
    "": "Expecting value at character 1",
    "{} x": "Extra data at character 4",
    '{"a" 1}': "Expecting : at character 6",
    '{"a":1 "b"': "Expecting , or } at character 8",
    "[1 2]": "Expecting , or ] at character 4",
    "{1:2}": "Expecting property name enclosed in double quotes at character 2",
    "9" * 5000: "A number with thousands of digits at character 1",
}


@pytest.mark.parametrize(("text", "message"), INVALID.items(), ids=range(len(INVALID)))
def test_an_error_names_the_character(text: str, message: str) -> None:
    with pytest.raises(JsonStreamError) as error:
        read_all(stream(text))
    assert str(error.value) == message


def test_only_a_few_chunks_of_a_large_array_are_in_memory() -> None:
    row = json.dumps({"text": "x" * 100})
    source = JsonStream(io.StringIO(f'{{"tests":[{",".join([row] * 5000)}],"last":1}}', newline=""), chunk_size=1000)
    tracemalloc.start()
    try:
        for key in source.members():
            if key == "tests":
                source.skip()
            else:
                assert source.value() == 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000
