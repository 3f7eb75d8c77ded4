"""The committed JSON Schemas are what the models say, and they say the same of every file."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_packbench.cli import main
from pytest_packbench.commands.schema import KINDS, schema

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "storage" / "benchmarks" / "tariff"


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_schema_is_the_one_that_is_made(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", kind]) == 0
    made = capsys.readouterr().out
    assert (ROOT / "docs" / "schemas" / f"{kind}.schema.json").read_text("utf-8") == made
    jsonschema.Draft202012Validator.check_schema(json.loads(made))


def test_every_case_and_cassette_of_ours_is_of_its_schema() -> None:
    for kind, pattern in (("case", "cases/*/*.json"), ("cassette", "fixtures/*.json")):
        validator = jsonschema.Draft202012Validator(schema(kind))
        found = sorted(SUITE.glob(pattern))
        assert found
        for path in found:
            assert validator.is_valid(json.loads(path.read_text("utf-8"))), path


@pytest.mark.parametrize("own", [False, True])
def test_what_the_report_is_measured_on_is_of_the_schema(tmp_path: Path, *, own: bool) -> None:
    path = tmp_path / "records.jsonl"
    write_records = runpy.run_path(str(ROOT / "benchmarks" / "report.py"))["write_records"]
    write_records(path, 20, own=own)
    validator = jsonschema.Draft202012Validator(schema("record"))
    for line in path.read_text("utf-8").splitlines():
        validator.validate(json.loads(line))


@pytest.mark.parametrize(
    "change",
    [
        {"prefered_hts": []},
        {"expected_refusal_category": "null"},
        {"preferred_hts": ["6"]},
        {"expected_accept": "yes"},
        {"threshold": 2},
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(change: dict[str, Any]) -> None:
    path = next(SUITE.glob("cases/positive/*.json"))
    case = json.loads(path.read_text("utf-8"))
    case["expected"].update(change)
    assert not jsonschema.Draft202012Validator(schema("case", "tariff")).is_valid(case)


def test_an_unknown_pack_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "case", "--pack", "none"]) == 2
    assert 'unknown pack "none"' in capsys.readouterr().err
