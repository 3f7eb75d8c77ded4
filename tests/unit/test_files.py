"""Files are written whole or not at all, and JSON is read in chunks as at once."""

from __future__ import annotations

import io
import json
import os
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.atomic import write_atomic
from pytest_packbench.runs.folder import ensure_gitignore
from pytest_packbench.runs.json_stream import JsonStream, JsonStreamError
from pytest_packbench.runs.lines import open_jsonl

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator
    from pathlib import Path

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


def write_jsonl(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    with open_jsonl(path) as write_line:
        for line in lines:
            write_line(line)


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("ü\nb\r\n", b"\xc3\xbc\nb\r\n"),
        (b"\xff\r\n", b"\xff\r\n"),
        # half of a UTF-16 pair
        ("x\udc80y", rb"x\udc80y"),
    ],
)
def test_a_file_is_replaced_by_exactly_the_text_or_bytes(tmp_path: Path, content: str | bytes, written: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a long old text", encoding="utf-8")
    with path.open(encoding="utf-8") as reader:
        write_atomic(path, content)
        # whoever has the old file open keeps it whole
        assert reader.read() == "a long old text"
    assert path.read_bytes() == written
    if sys.platform != "win32":
        before = os.umask(0o022)
        os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o666 & ~before
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    def lines() -> Iterator[dict[str, Any]]:
        yield {"a": 1}
        raise RuntimeError("the disk is gone")

    path = tmp_path / "a.jsonl"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(RuntimeError, match="disk"):
        write_jsonl(path, lines())
    assert path.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none" / "a.txt", "x")


def test_json_lines_are_one_object_per_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_jsonl(path, [{"b": "ü\n\u2028", "a": 1.5}, {"c": 2}, {"a": "x\ud800y"}])
    first, second, third = path.read_bytes().splitlines()
    assert (first, second) == ('{"b":"ü\\n\u2028","a":1.5}'.encode(), b'{"c":2}')
    assert json.loads(third) == {"a": "x\ud800y"}
    write_jsonl(path, [])
    assert path.read_bytes() == b""


@pytest.mark.parametrize("line", [{"a": float("nan")}, {"a": float("inf")}, {"a": [-float("inf")], "b": "\ud800"}])
def test_numbers_that_json_lacks_are_refused(tmp_path: Path, line: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_jsonl(tmp_path / "a.jsonl", [line])
    assert list(tmp_path.iterdir()) == []


def test_a_gitignore_hides_the_folder_of_runs_and_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "benchmarks" / ".gitignore"
    ensure_gitignore(path.parent)
    assert path.read_text("utf-8").splitlines()[-1] == "*"
    path.write_text("mine", encoding="utf-8")
    ensure_gitignore(path.parent)
    assert path.read_text("utf-8") == "mine"
