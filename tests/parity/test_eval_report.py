"""Our report against what the original prints for the same input, where such vectors are at hand."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_packbench.cli import main

FOLDER = Path(os.environ.get("PACKBENCH_PARITY", Path(__file__).parents[2].parent / "shared" / "parity"))
REPORTS = FOLDER / "eval_report.jsonl"
PLACE = re.compile(r"in\.jsonl:\d+ |no records in .*in\.jsonl")


def _vectors() -> list[Any]:
    if not REPORTS.is_file():
        reason = f"no {REPORTS.name} in {FOLDER} (PACKBENCH_PARITY)"
        return [pytest.param({}, id="absent", marks=pytest.mark.skip(reason=reason))]
    lines = REPORTS.read_text(encoding="utf-8").split("\n")
    return [pytest.param(vector, id=vector["id"]) for vector in map(json.loads, filter(None, lines))]


def _place(message: str) -> str:
    """Where the original says the trouble is; it doesn't say for a file that is not UTF-8."""
    found = PLACE.search(message)
    return found[0].replace("tmp/", "") if found else "in.jsonl"


@pytest.mark.parametrize("vector", _vectors())
def test_the_report_begins_with_the_originals_lines(
    vector: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_bytes(vector["input"].encode())
    code = main(["report", "--strict", "in.jsonl"])
    printed, said = capsysbinary.readouterr()
    if vector["stdout"]:
        assert printed.startswith(vector["stdout"].encode())
        assert (code, said) == (vector["rc"], vector["stderr"].encode())
    else:
        # the original's exit code for a failed gate is also its code for what it can't read
        assert (vector["rc"], code, printed) == (1, 2, b"")
        assert _place(vector["stderr"]) in said.decode()


@pytest.mark.parametrize("vector", _vectors())
def test_a_file_is_written_as_the_page_is_printed(
    vector: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_bytes(vector["input"].encode())
    code = main(["report", "--strict", "in.jsonl"])
    printed, _ = capsysbinary.readouterr()
    assert main(["report", "--strict", "in.jsonl", "--out", "out.md"]) == code
    nothing, said = capsysbinary.readouterr()
    assert nothing == b""
    if vector["stdout"]:
        assert said == b"wrote report to out.md\n"
        assert Path("out.md").read_bytes() == printed
    else:
        assert not Path("out.md").exists()
