"""Files: written whole or not at all; JSON read in chunks as at once, and records line by line."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.commands import write_file
from pytest_packbench.files import compact_json, finite_json, finite_line, replace_atomic, write_atomic
from pytest_packbench.model.errors import SkippedLines, StoredRunError
from pytest_packbench.runs.folder import (
    RecordSource,
    ensure_gitignore,
    read_errors,
    record_source,
)
from tests.unit.stored_runs import error, file_of, folder_of, line, read, record, write_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_file_is_replaced_by_exactly_the_text_or_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    # the last one has half of a UTF-16 pair
    for content, written in (("ü\nb\r\n", b"\xc3\xbc\nb\r\n"), (b"\xff\r\n", b"\xff\r\n"), ("x\udc80y", rb"x\udc80y")):
        path.write_text("a long old text", encoding="utf-8")
        with path.open(encoding="utf-8") as reader:
            write_atomic(path, content)
            # whoever has the old file open keeps it whole
            assert reader.read() == "a long old text"
        assert path.read_bytes() == written
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_replaced_keeps_its_mode_and_others_get_that_of_new_files(tmp_path: Path) -> None:
    path, usual = tmp_path / "file", tmp_path / "usual"
    usual.write_bytes(b"")
    write_atomic(path, "new")
    assert path.stat().st_mode == usual.stat().st_mode
    for mode in (0o600, 0o640, 0o644, 0o400, 0o755):
        path.chmod(mode)
        write_atomic(path, f"{mode}")
        assert (path.read_text("utf-8"), path.stat().st_mode & 0o777) == (f"{mode}", mode)
    # a draft is never more readable than its file
    path.chmod(0o600)
    usual.unlink()
    with replace_atomic(path):
        assert {each.stat().st_mode & 0o077 for each in tmp_path.iterdir()} == {0}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs the right to give files to groups")
def test_a_file_that_is_replaced_keeps_its_group_or_loses_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, -1, 1234)
    path.chmod(0o660)
    write_atomic(path, "new")
    assert (path.stat().st_gid, path.stat().st_mode & 0o777) == (1234, 0o660)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse)
    write_atomic(path, "newer")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs names for open files")
def test_what_is_no_file_is_written_to_and_not_replaced() -> None:
    reading, writing = os.pipe()
    try:
        write_file(Path(f"/dev/fd/{writing}"), "text")
        assert os.read(reading, 9) == b"text"
    finally:
        os.close(reading)
        os.close(writing)


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


def test_json_lines_are_one_object_per_line_without_numbers_that_json_lacks(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for wrong in ({"a": float("nan")}, {"a": float("inf")}, {"a": [-float("inf")], "b": "\ud800"}):
        with pytest.raises(ValueError, match="JSON compliant"):
            write_jsonl(path, [wrong])
        assert list(tmp_path.iterdir()) == []
    write_jsonl(path, [{"b": "ü\n\u2028", "a": 1.5}, {"c": 2}, {"a": "x\ud800y"}])
    first, second, third = path.read_bytes().splitlines()
    assert (first, second) == ('{"b":"ü\\n\u2028","a":1.5}'.encode(), b'{"c":2}')
    assert json.loads(third) == {"a": "x\ud800y"}
    write_jsonl(path, [])
    assert path.read_bytes() == b""


def test_a_gitignore_hides_the_folder_of_runs_and_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "benchmarks" / ".gitignore"
    ensure_gitignore(path.parent)
    assert path.read_text("utf-8").splitlines()[-1] == "*"
    path.write_text("mine", encoding="utf-8")
    ensure_gitignore(path.parent)
    assert path.read_text("utf-8") == "mine"


TEXTS = st.text(st.characters()) | st.sampled_from(["NaN", "-Infinity", "a NaN in a text"])
PLAIN = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(PLAIN | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20)


@given(VALUES)
def test_a_line_is_read_as_the_value_that_was_written_unless_a_number_is_not_finite(value: Any) -> None:
    line = finite_line(value)
    assert json.dumps(json.loads(line)) == json.dumps(finite_json(value))
    assert b"\n" not in line
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        with pytest.raises(ValueError, match="JSON compliant"):
            compact_json(value)
    else:
        assert compact_json(value) == line
        assert json.dumps(value) == json.dumps(finite_json(value))


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=9))
def test_the_bytes_are_those_of_the_standard_library(value: Any) -> None:
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert compact_json(value) == plain.encode("utf-8", "backslashreplace")


def test_any_nesting_is_written_and_a_value_that_is_no_json_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    assert compact_json(deep) == b"[" * 501 + b"]" * 501
    for value in (object(), {"a": object()}, {(1, 2): object()}):
        with pytest.raises(TypeError):
            compact_json(value)


LINE = line().rstrip()
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2005\u200a\u2028\u2029\u202f\u205f\u3000"
NO_WHITE_SPACE = "\x1c\x1d\x1e\x1f\u200b\u2060\ufeff\x00\x08"


def problem(folder: Path, content: bytes, **options: Any) -> str:
    path = file_of(folder, content)
    with pytest.raises(StoredRunError) as caught:
        read(path, **options)
    return str(caught.value).replace(f"{folder}/", "")


def test_lines_end_at_a_line_feed_and_white_space_is_what_rust_trims(tmp_path: Path) -> None:
    for end in (b"\n", b"\r\n", b"\n\n\n", b"\n \t\r\n", "\n\u3000\x85\n".encode(), b"\r\r\n"):
        assert read(file_of(tmp_path, end.join([LINE, LINE, LINE]))) == [record()] * 3
    for char in map(str.encode, WHITE_SPACE):
        assert read(file_of(tmp_path, char + LINE + char)) == [record()]
        assert read(file_of(tmp_path, char * 3)) == []
    for char in map(str.encode, NO_WHITE_SPACE):
        assert problem(tmp_path, line() + char + line()).startswith("in.jsonl:2: ")
        assert problem(tmp_path, char).startswith("in.jsonl:1: ")
    for char in map(str.encode, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"):
        assert problem(tmp_path, LINE + char + LINE).startswith("in.jsonl:1: ")


@settings(max_examples=30)
@given(st.lists(st.sampled_from([b"", b"\r", b" ", b"\xe2\x80\xa8", LINE, b"\r" + LINE + b" \r"]), max_size=6))
def test_line_numbers_count_every_line(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    content = b"\n".join([*parts, b"{"])
    assert problem(tmp_path_factory.getbasetemp(), content).startswith(f"in.jsonl:{len(parts) + 1}: ")


BAD_LINES = {
    b"{}": 'test_suite: the key "test_suite" is missing; add it',
    line().replace(b'"schema_version":1', b'"schema_version":2'): "schema_version: got 2; expected 1",
    LINE[:-1]: "column ",
    b"\xff" + LINE: "not UTF-8: invalid start byte at byte 1",
    b"\xef\xbb\xbf" + LINE: "column 1: not JSON: ",
}


def test_the_first_bad_line_stops_the_reading_or_all_are_counted(tmp_path: Path) -> None:
    for bad, reason in BAD_LINES.items():
        assert problem(tmp_path, line() + b"\n" + bad).startswith(f"in.jsonl:3: {reason}")
    skipped = SkippedLines()
    path = file_of(tmp_path, (b"{}\n\n" + line()) * 20)
    assert (len(read(path, skipped=skipped)), skipped.count) == (20, 20)
    assert [location.split()[0] for location in skipped.first] == [f"{path}:{3 * number + 1}:" for number in range(10)]


def test_strict_reading_keeps_a_sound_extension_and_leaves_out_a_bad_one(tmp_path: Path) -> None:
    assert 'test_suite: got "tariff"; expected one of' in problem(tmp_path, line(test_suite="tariff"), strict=True)
    extended = line(packbench={"trial": 1})
    assert read(file_of(tmp_path, extended), strict=True) == [record(packbench={"trial": 1})]
    bad = extended.replace(b'{"trial":1}', b'"a string"')
    assert read(file_of(tmp_path, bad), strict=True) == [record()]
    assert "packbench" in problem(tmp_path, bad)


def test_a_folder_has_errors_and_a_file_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "run", line(), error("vacuous"), error("error", kind="no_key"))
    source = record_source(folder)
    assert read(source.records) == [record()]
    assert [(each.verdict, each.kind) for each in read_errors(source)] == [("vacuous", "timeout"), ("error", "no_key")]
    file = record_source(f"{folder}/records.jsonl")
    assert (file.errors, list(read_errors(file))) == (None, [])
    assert list(read_errors(record_source(folder_of(tmp_path / "good", line())))) == []
    with pytest.raises(FileNotFoundError):
        read(str(tmp_path / "none.jsonl"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line() + b"{")))
    with pytest.raises(StoredRunError, match=r"<stdin>:2: "):
        read("-")


def test_a_bad_error_line_stops_the_reading_too(tmp_path: Path) -> None:
    strange = json.dumps(error("splendid")).encode()
    unpaired = json.dumps(error(kind="\ud800")).encode()
    early = json.dumps(error(trial=-1)).encode()
    for bad in (b"{", b"[]", b'{"run_id":"r"}', strange, unpaired, early, b"[" * 100_000, b"\xff"):
        source = RecordSource("-", file_of(tmp_path, json.dumps(error()).encode() + b"\n" + bad, "errors.jsonl"))
        with pytest.raises(StoredRunError, match=r"errors\.jsonl:2: "):
            list(read_errors(source))
        skipped = SkippedLines()
        assert (len(list(read_errors(source, skipped=skipped))), skipped.count) == (1, 1)
