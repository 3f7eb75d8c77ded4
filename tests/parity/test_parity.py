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

from pytest_packbench.api import score
from pytest_packbench.commands import main
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.record import EvalRecord, RecordError
from pytest_packbench.packs.tariff.scoring import CONTRADICTORY
from tests.parity.departures import DEPARTURES, READINGS, UNREADABLE, ledger_of, ours_of, predict
from tests.unit.tariff_cases import case, result_of

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


def our_score(plain: Json, result: Json) -> Score | None:
    """Score a result; None if the case is rejected, with an error of one line."""
    try:
        return score(plain, result, pack="tariff")
    except CaseError as error:
        assert "\n" not in str(error)
        return None


def disagreement(vector: Json) -> str:
    """Describe where the prediction, or our score without a difference, is not the original's; empty if nowhere."""
    (prediction, names), original = predict(vector["case"], vector["result"]), vector["score"]
    if any(original[key] != value for key, value in prediction.items()):
        return f"predicted {prediction}, the original has {original}"
    ours = our_score(vector["case"], vector["result"])
    if ours is None or ours.score is None:
        wanted = READINGS if ours is None else ["unreachable_model_is_out_of_scope", "caught_crash_is_a_refusal"]
        return "" if set(wanted) & set(names) else f"rejected without a reading: {ours}"
    if UNREADABLE in names:
        is_zero = (ours.score, ours.terms[0].name) == (0, UNREADABLE)
        return "" if is_zero and set(READINGS) & set(names) else "rejected without a reading, or not 0"
    if CONTRADICTORY in names and UNREADABLE not in names and (ours.score, ours.terms[0].name) != (0, CONTRADICTORY):
        return "contradictory, but not 0"
    if abs(ours.score - ours_of(ledger_of(ours))) > 1e-9:
        return f"{ours.score} is not the sum of our terms"
    is_same = (round(ours.score, 4), ours.passed) == (original["score"], original["passed"])
    return "" if names or is_same else f"{ours.score} without a difference"


def test_the_original_is_predicted_and_without_a_difference_ours_is_the_original() -> None:
    rows = vectors("tariff_scoring.jsonl.gz")
    assert {row["n"]: problem for row in rows if (problem := disagreement(row))} == {}


def test_a_result_on_which_the_original_raises_has_a_score_or_one_error() -> None:
    for vector in vectors("tariff_malformed.jsonl.gz"):
        ours = our_score(vector["case"], vector["result"])
        assert ours is None or (ours.score is None) == (ours.verdict == "error"), vector["n"]


def test_every_difference_has_examples_and_a_row_in_the_documents() -> None:
    assert tuple(EXAMPLES) == DEPARTURES
    for name, row in [(name, row) for name, rows in EXAMPLES.items() for row in rows]:
        plain, result = case(**row.get("case", {})), result_of(row.get("result", {}))
        (prediction, names), ours = predict(plain, result), our_score(plain, result)
        assert (ours and ours.score, prediction["score"], name in names) == (row["ours"], row["original"], True), row
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
