"""Scores, records and the report compared with the original harness, whose vectors may be in a folder.

Without vectors, an example of each named difference from the original scorer still shows its effect.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.commands import main
from pytest_packbench.model.record import EvalRecord, RecordError
from tests.packs.tariff.cases import case
from tests.parity.departures import CASE, DEPARTURES, UNREACHED, UNREADABLE, ours_of, predict

if TYPE_CHECKING:
    from pytest_packbench.model.result import Score


FOLDER = Path(os.environ.get("PACKBENCH_PARITY", Path(__file__).parents[2].parent / "shared" / "parity"))


def vectors(name: str) -> list[dict[str, Any]]:
    """Return the lines of a file, compressed or not; skip the test if there is no such file."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"no {name} in {FOLDER} (PACKBENCH_PARITY)")
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.split("\n") if line]


Json = dict[str, Any]
DOCUMENT = Path(__file__).parents[2] / "docs" / "scoring-departures.md"
EXAMPLES: dict[str, list[Json]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "departures.yaml").read_text("utf-8")
)


def original_result(
    code: str = "6404.11.9020",
    rate: Any = 20.0,
    *,
    optimized: tuple[Any, ...] = (),
    raw: Json | None = None,
    **changes: Any,
) -> Json:
    """A result as the original writes it."""
    if raw is not None:
        return raw
    best = dict(zip(("hts_code", "duty_rate_pct"), optimized, strict=False)) or None
    iteration = {"accepted": True, "rejected_because": [], **changes.pop("iteration", {})}
    dossier = {"baseline": {"hts_code": code, "duty_rate_pct": rate}, "optimized": best, **changes.pop("dossier", {})}
    gate = {"citation_gate_result": {"ok": True}}
    return {"status": "verified", "iterations": [iteration], "tariff_dossier": dossier, **gate, **changes}


def is_original(ours: Score | None, original: Json) -> bool:
    """Return whether our score and verdict are the original's."""
    if ours is None or ours.score is None:
        return False
    return (round(ours.score, 4), ours.passed) == (original["score"], original["passed"])


def test_the_original_is_predicted_and_without_a_difference_ours_is_the_original() -> None:
    rows, wrong, equal = vectors("tariff_scoring.jsonl.gz"), {}, 0
    for row in rows:
        predicted, names = predict(row["case"], row["result"])
        is_equal = is_original(ours_of(row["case"], row["result"]), row["score"])
        equal += is_equal
        if predicted not in {None, row["score"]["score"]} or not (names or is_equal):
            wrong[row["n"]] = (predicted, names)
    assert wrong == {}
    assert equal >= 470


def test_a_result_on_which_the_original_raises_has_a_score_or_one_error() -> None:
    for vector in vectors("tariff_malformed.jsonl.gz"):
        ours = ours_of(vector["case"], vector["result"])
        assert ours is None or (ours.score is None) == (ours.verdict == "error"), vector["n"]


def test_every_difference_has_examples_and_a_row_in_the_documents() -> None:
    assert tuple(EXAMPLES) == DEPARTURES
    assert len(DEPARTURES) <= 13
    for name, row in [(name, row) for name, rows in EXAMPLES.items() for row in rows]:
        plain, result = case(**row.get("case", {})), original_result(**row.get("result", {}))
        (prediction, names), ours = predict(plain, result), ours_of(plain, result)
        wanted = None if name in {CASE, UNREADABLE, UNREACHED} else row["original"]
        assert (ours and ours.score, prediction, name in names) == (row["ours"], wanted, True), (row, names)
    assert tuple(re.findall(r"^\| `([a-z_0-9]+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)) == DEPARTURES


LOCATION = re.compile(r"in\.jsonl:\d+ |no records in .*in\.jsonl")


def test_a_record_line_is_accepted_rejected_and_written_as_by_the_original() -> None:
    for vector in vectors("eval_record_edges.jsonl"):
        lines = [vector["input"], vector["input"].encode()] if "input" in vector else []
        for line in lines or [base64.b64decode(vector["input_b64"])]:
            if vector["verdict"] == "OK":
                assert EvalRecord.from_json_line(line).to_json_line() == vector["output"], vector["id"]
            else:
                with pytest.raises(RecordError):
                    EvalRecord.from_json_line(line)


def location_of(message: str) -> str:
    """Return the location in a message of the original harness; it names none for a file that is not UTF-8."""
    match = LOCATION.search(message)
    return match[0].replace("tmp/", "").rstrip() if match else "in.jsonl"


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
