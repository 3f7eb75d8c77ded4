"""The report compared with the output of the original harness for the same input, if vectors are available."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_packbench.cli import main
from tests.parity.vectors import vectors

RunReport = Callable[..., tuple[int, bytes, bytes]]
VECTORS = vectors("eval_report.jsonl")
LOCATION = re.compile(r"in\.jsonl:\d+ |no records in .*in\.jsonl")


def _location(message: str) -> str:
    """Return the location in a message of the original harness; it names none for a file that is not UTF-8."""
    match = LOCATION.search(message)
    return match[0].replace("tmp/", "") if match else "in.jsonl"


@pytest.fixture
def run_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> RunReport:
    """Run `packbench report --strict` on records; return exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(records: str, *options: str) -> tuple[int, bytes, bytes]:
        Path("in.jsonl").write_bytes(records.encode())
        code = main(["report", "--strict", "in.jsonl", *options])
        return code, *capsysbinary.readouterr()

    return run


@pytest.mark.parametrize("vector", VECTORS)
def test_the_report_begins_with_the_lines_of_the_original(vector: dict[str, Any], run_report: RunReport) -> None:
    code, printed, errors = run_report(vector["input"])
    if vector["stdout"]:
        assert printed.startswith(vector["stdout"].encode())
        assert (code, errors) == (vector["rc"], vector["stderr"].encode())
    else:
        # the original harness uses one exit code for a failed gate and for an unreadable file
        assert (vector["rc"], code, printed) == (1, 2, b"")
        assert _location(vector["stderr"]) in errors.decode()


@pytest.mark.parametrize("vector", VECTORS)
def test_a_file_is_written_as_the_page_is_printed(vector: dict[str, Any], run_report: RunReport) -> None:
    code, printed, _ = run_report(vector["input"])
    file_code, file_printed, errors = run_report(vector["input"], "--out", "out.md")
    assert (file_code, file_printed) == (code, b"")
    if vector["stdout"]:
        assert errors == b"wrote report to out.md\n"
        assert Path("out.md").read_bytes() == printed
    else:
        assert not Path("out.md").exists()
