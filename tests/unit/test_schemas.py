"""The committed JSON Schemas are those of the models, and accept and refuse the same files."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import jsonschema
import pytest

from pytest_packbench.cli import main
from pytest_packbench.commands.schema import KINDS, schema

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "storage" / "benchmarks" / "tariff"
Validator = jsonschema.Draft202012Validator


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_schema_is_that_of_the_model(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", kind]) == 0
    printed = capsys.readouterr().out
    assert (ROOT / "docs" / "schemas" / f"{kind}.schema.json").read_text("utf-8") == printed
    Validator.check_schema(json.loads(printed))


@pytest.mark.parametrize(("kind", "files"), [("case", "cases/*/*.json"), ("cassette", "fixtures/*.json")])
def test_the_files_of_the_tariff_suite_are_valid(kind: str, files: str) -> None:
    validator, paths = Validator(schema(kind)), sorted(SUITE.glob(files))
    assert paths
    assert [path for path in paths if not validator.is_valid(json.loads(path.read_text("utf-8")))] == []


@pytest.mark.parametrize("own", [False, True])
def test_the_records_of_the_report_benchmark_are_valid(tmp_path: Path, own: bool) -> None:
    path = tmp_path / "records.jsonl"
    runpy.run_path(str(ROOT / "benchmarks" / "report.py"))["write_records"](path, 20, own=own)
    validator = Validator(schema("record"))
    for line in path.read_text("utf-8").splitlines():
        validator.validate(json.loads(line))


def test_the_schema_of_a_case_refuses_what_the_model_refuses() -> None:
    case = json.loads(next(SUITE.glob("cases/positive/*.json")).read_text("utf-8"))
    validator = Validator(schema("case", "tariff"))
    assert validator.is_valid(case)
    for key, value in [
        ("prefered_hts", []),
        ("expected_refusal_category", "null"),
        ("preferred_hts", ["6"]),
        ("expected_accept", "yes"),
        ("threshold", 2),
    ]:
        assert not validator.is_valid(case | {"expected": case["expected"] | {key: value}}), key


def test_an_unknown_pack_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "case", "--pack", "none"]) == 2
    assert 'unknown pack "none"' in capsys.readouterr().err
