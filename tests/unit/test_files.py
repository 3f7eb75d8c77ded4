"""Files are written whole or not at all."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.atomic import write_atomic
from pytest_packbench.runs.folder import ensure_gitignore
from pytest_packbench.runs.lines import open_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_the_umask_applies_to_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomic(tmp_path / "a.txt", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644


def test_json_lines_are_one_object_per_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_jsonl(path, [{"b": "ü\n\u2028", "a": 1.5}, {"c": 2}])
    assert path.read_bytes() == '{"b":"ü\\n\u2028","a":1.5}\n{"c":2}\n'.encode()
    write_jsonl(path, [])
    assert path.read_bytes() == b""
    write_jsonl(path, [{"a": "x\ud800y"}])
    assert json.loads(path.read_bytes()) == {"a": "x\ud800y"}


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
