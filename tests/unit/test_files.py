"""Files are written whole or not at all."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.atomic import write_atomic
from pytest_packbench.runs.folder import ensure_gitignore
from tests.unit.stored_runs import write_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_text_is_utf8_with_its_own_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    write_atomic(path, "ü\nb\r\n")
    assert path.read_bytes() == b"\xc3\xbc\nb\r\n"


def test_bytes_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_atomic(path, b"\xff\r\n")
    assert path.read_bytes() == b"\xff\r\n"


def test_an_older_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a long old text", encoding="utf-8")
    write_atomic(path, "new")
    assert path.read_text("utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_that_holds_the_old_file_keeps_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    with path.open(encoding="utf-8") as reader:
        write_atomic(path, "new")
        assert reader.read() == "old"


def test_a_writer_that_breaks_leaves_the_old_file(tmp_path: Path) -> None:
    def lines() -> Iterator[dict[str, Any]]:
        yield {"a": 1}
        raise RuntimeError("the disk is gone")

    path = tmp_path / "a.jsonl"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(RuntimeError, match="disk"):
        write_jsonl(path, lines())
    assert path.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomic(tmp_path / "a.txt", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none" / "a.txt", "x")


def test_jsonl_is_an_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    found: list[dict[str, Any]] = [{"b": "ü\n\u2028", "a": 1.5}, {"c": 2}]
    write_jsonl(path, iter(found))
    assert path.read_bytes() == '{"b":"ü\\n\u2028","a":1.5}\n{"c":2}\n'.encode()


def test_no_line_is_an_empty_file(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [])
    assert (tmp_path / "a.jsonl").read_bytes() == b""


def test_a_surrogate_is_written_as_its_escape(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_jsonl(path, [{"a": "x\ud800y"}])
    assert json.loads(path.read_bytes()) == {"a": "x\ud800y"}
    write_atomic(path, "x\udc80y")
    assert path.read_bytes() == rb"x\udc80y"


@pytest.mark.parametrize("line", [{"a": float("nan")}, {"a": float("inf")}, {"a": [-float("inf")], "b": "\ud800"}])
def test_what_is_no_line_of_json_is_refused(tmp_path: Path, line: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_jsonl(tmp_path / "a.jsonl", [line])
    assert list(tmp_path.iterdir()) == []


def test_a_gitignore_hides_the_folder_and_is_never_changed(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "benchmarks"
    ensure_gitignore(folder)
    path = folder / ".gitignore"
    assert path.read_text("utf-8").splitlines()[-1] == "*"
    path.write_text("mine", encoding="utf-8")
    ensure_gitignore(folder)
    assert path.read_text("utf-8") == "mine"
