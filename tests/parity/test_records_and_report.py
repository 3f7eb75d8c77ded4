"""Records and the report compared with the original harness for the same input, if vectors are available."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import main
from pytest_packbench.model.record import EvalRecord, RecordError
from tests.parity.vectors import vectors

if TYPE_CHECKING:
    import pytest

LOCATION = re.compile(r"in\.jsonl:\d+ |no records in .*in\.jsonl")


def verdict_of(line: str | bytes) -> tuple[str, str | None]:
    try:
        return "OK", EvalRecord.from_json_line(line).to_json_line()
    except RecordError:
        return "ERR", None


def test_a_record_line_is_accepted_rejected_and_written_as_by_the_original() -> None:
    for vector in vectors("eval_record_edges.jsonl"):
        expected = (vector["verdict"], vector.get("output"))
        lines = [vector["input"], vector["input"].encode()] if "input" in vector else []
        for line in lines or [base64.b64decode(vector["input_b64"])]:
            assert verdict_of(line) == expected, vector["id"]


def location_of(message: str) -> str:
    """Return the location in a message of the original harness; it names none for a file that is not UTF-8."""
    match = LOCATION.search(message)
    return match[0].replace("tmp/", "") if match else "in.jsonl"


def test_the_report_begins_with_the_lines_of_the_original_on_screen_and_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    for vector in vectors("eval_report.jsonl"):
        Path("in.jsonl").write_bytes(vector["input"].encode())
        Path("out.md").unlink(missing_ok=True)
        code = main(["report", "--strict", "in.jsonl"])
        printed, errors = capsysbinary.readouterr()
        assert main(["report", "--strict", "in.jsonl", "--out", "out.md"]) == code, vector["id"]
        file_printed, file_errors = capsysbinary.readouterr()
        assert file_printed == b""
        if vector["stdout"]:
            assert printed.startswith(vector["stdout"].encode()), vector["id"]
            assert (code, errors) == (vector["rc"], vector["stderr"].encode()), vector["id"]
            assert (file_errors, Path("out.md").read_bytes()) == (b"wrote report to out.md\n", printed)
        else:
            # the original harness uses one exit code for a failed gate and for an unreadable file
            assert (vector["rc"], code, printed) == (1, 2, b""), vector["id"]
            assert location_of(vector["stderr"]) in errors.decode()
            assert not Path("out.md").exists()
