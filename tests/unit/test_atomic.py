"""Files that are replaced keep their mode and their group; others get those of new files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_packbench.commands import write_file
from pytest_packbench.files import replace_atomic, write_atomic


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_atomic(path, "new")
    assert (path.read_text("utf-8"), path.stat().st_mode & 0o777) == ("new", mode)


def test_a_draft_is_never_more_readable_than_its_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
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


def test_a_new_file_has_the_mode_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    write_atomic(tmp_path / "file", "new")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs names for open files")
def test_what_is_no_file_is_written_to_and_not_replaced() -> None:
    reading, writing = os.pipe()
    try:
        write_file(Path(f"/dev/fd/{writing}"), "text")
        assert os.read(reading, 9) == b"text"
    finally:
        os.close(reading)
        os.close(writing)
