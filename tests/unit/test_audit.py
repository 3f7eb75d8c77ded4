"""`packbench audit`: which suites have rules or cases that notice nothing, and what the command says of them."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.commands.audit import parts, ways_to_break
from pytest_packbench.testing import case, write_case, write_suite
from tests.unit import stored_runs
from tests.unit.run_builders import case_result, data

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

TARGET = """
from pytest_packbench import without_model


def echo(request):
    return request.input


def accept(value, expected, case_input):
    return 1.0


def same(value, expected, case_input):
    return float(value == expected["name"])


def ask(request, context):
    return context.llm.complete_sync(None)
"""
RESULTS = [{"queue": name, "text": f"about {name}", "labels": [name, "x"], "why": {"at": [1, 2.5]}} for name in "ab"]
WRONG = [
    (["nope"], 'unknown suite "nope"'),
    (["mine", "--count=0"], "expected --count and --cases of 1 or more"),
    (["mine", "--fail-under=1.1"], "--fail-under from 0 to 1"),
    (["mine", "--fail-under=nan"], "--fail-under from 0 to 1"),
    (["mine", "--fail-under=most"], "argument --fail-under: invalid float value: 'most'"),
    (["mine", "--pack=a:b"], "--pack: only with --run"),
    (["mine", "--run=nowhere"], "nowhere"),
    (["mine", "--run=nowhere", "--option=-q"], "--option: not with --run"),
    (["mine", "--option=--packbench-target=audited_target:nothing"], 'has no "nothing"'),
    (["mine", "--option=--packbench-target=audited_target:ask"], "no case passes"),
    (["mine", "--json=nowhere/audit.json"], "No such file or directory"),
]
SUITES: dict[str, dict[str, Any]] = data("audit.yaml")


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "audited_target", raising=False)
    (tmp_path / "audited_target.py").write_text(TARGET, encoding="utf-8")


def suite(row: dict[str, Any], target: str = "echo") -> None:
    cases = row.get("cases") or [
        {"expected": {key: result[key] for key in row.get("reads", ["queue"])}, "result": result} for result in RESULTS
    ]
    plain = [
        case(name, input=one["result"], expected=one["expected"], **one.get("more", {}))
        for name, one in zip(("one", "two"), cases, strict=True)
    ]
    rules = {"target": f"audited_target:{target}", **row["rules"]}
    write_suite(Path("storage/benchmarks/mine"), plain, pack="generic", rules=rules)


@pytest.mark.parametrize("name", SUITES)
def test_what_notices_nothing_is_found(capsys: pytest.CaptureFixture[str], name: str) -> None:
    row = SUITES[name]
    suite(row)
    status = main(["audit", "mine", "--json=audit.json", *row.get("options", [])])
    printed = capsys.readouterr()
    audit = json.loads(Path("audit.json").read_bytes())
    found = [f"{finding['kind']} {finding['name']}" for finding in audit["findings"]]
    assert (found, status, printed.err) == (row["findings"], int(bool(found)), "")
    assert row.get("shows", "") in printed.out
    assert all(finding["message"] in printed.out for finding in audit["findings"])
    assert "\x1b" not in printed.out


def test_the_same_seed_breaks_the_same_and_another_something_else(
    capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    suite(SUITES["every rule notices"])
    texts = []
    for seed in "001":
        assert main(["audit", "mine", "--count=4", f"--seed={seed}"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2].replace("--seed 1", "--seed 0")
    expected.check(texts[0])


def test_broken_results_that_pass_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    suite(SUITES["parts that no rule reads"])
    assert main(["audit", "mine", "--json=audit.json"]) == 0
    audit = json.loads(Path("audit.json").read_bytes())
    for each in audit["cases"]:
        assert {"/text: removed", "/why/at/1: changed", "/labels: that of another case"} <= set(each["passed"])
        assert not any(name.startswith(("/queue", "the result")) for name in each["passed"])
        assert each["tried"] == each["judged"] + 1
    assert "2 could not be read" in capsys.readouterr().out


def test_results_of_a_run_are_those_of_its_cases(capsys: pytest.CaptureFixture[str]) -> None:
    root = stored_runs.suite(Path(), criteria=[{"exact": "/said"}])
    for name in "ab":
        write_case(root / "toy", case(name, pack_id="generic", expected={"said": "x"}))
    (root / "toy" / "cases" / "c\x1b.json").write_text("{}", encoding="utf-8")
    folder = stored_runs.write(Path("out"), stored_runs.run_of(root), [case_result("a")], root)
    (line,) = stored_runs.read_jsonl(folder / "payloads.jsonl")
    right = {**line, "result": {"said": "x"}}
    stored_runs.write_jsonl(folder / "payloads.jsonl", [{**line, "test_id": "toy:plain:b"}, right])
    assert main(["audit", "toy", f"--run={folder}", "--root=storage"]) == 2
    assert "toy:plain:b is " in capsys.readouterr().err
    stored_runs.write_jsonl(folder / "payloads.jsonl", [right])
    assert main(["audit", "toy", f"--run={folder}", "--root=storage"]) == 0
    out = capsys.readouterr().out
    assert "3 cases; 1 passes with" in out
    assert "b.json: the run has no result of it" in out
    assert "its name has control characters" in out


@pytest.mark.parametrize(("arguments", "error"), WRONG)
def test_usage_errors_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], error: str) -> None:
    suite(SUITES["every rule notices"])
    with suppress(SystemExit):
        assert main(["audit", *arguments]) == 2
    assert error in capsys.readouterr().err.splitlines()[-1]


def test_a_broken_result_differs_and_leaves_the_right_one_as_it_was() -> None:
    result = {"text": "a1", "labels": ["x", {"deep": True}], "number": 1, "share": 0.5, "none": None, "void": []}
    text = json.dumps(result)
    ways = list(ways_to_break(result, [{**result, "text": "b", "labels": []}]))
    assert [way for way in ways if way.result(text) == result] == []
    assert json.dumps(result) == text
    assert {way.what for way in ways} == {
        "removed",
        "emptied",
        "of another type",
        "changed",
        "swapped",
        "shortened",
        "that of another case",
    }
    assert {way.location for way in ways} == {location for location, _ in parts(result)}
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    assert len(list(parts(deep))) < 200
