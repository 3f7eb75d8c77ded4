"""`--packbench-baseline` as `committed`, `passed`, `latest` or a run id, and `packbench baseline`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main
from tests.integration.conftest import ended

if TYPE_CHECKING:
    from tests.integration.conftest import Project

COMMITTED, BY_GATES = "--packbench-baseline=committed", "--packbench-gate=suite"


def python(points: str = "float(os.environ['POINTS'])") -> str:
    return f"import os; order['points'] = {points}"


@pytest.fixture
def suite(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A suite with a gate, and a pack that commands find; the points of one case come from the environment."""
    monkeypatch.syspath_prepend(project.root)
    project.write("toypack.py", (project.root / "conftest.py").read_text("utf-8"))
    project.suite(
        text="pack: toy\ngates: [{metric: pass_rate, min: 0.5}, {metric: mean_score, max_ratio_to_baseline: 1.0}]\n"
    )
    project.case("a")
    project.case("b", python=python())
    monkeypatch.setenv("POINTS", "1.0")
    return project


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["baseline", *words, "--pack=toypack:Toy"])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_a_regression_against_the_committed_baseline_fails_on_a_machine_without_runs(
    suite: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = suite.run_toy(COMMITTED)
    assert missing.ret == pytest.ExitCode.TESTS_FAILED
    missing.stdout.fnmatch_lines(
        ["baseline: the suite has no baseline.json; run the suite, then packbench baseline*: FAIL"]
    )
    assert call(capsys, "set", "toy/latest", "--reason", "first of all")[0] == 0
    first = suite.left()
    path = suite.root / "storage/benchmarks/toy/baseline.json"
    assert len(path.read_text("utf-8").splitlines()) == 11
    (suite.root / "reports").rename(suite.root / "elsewhere")
    monkeypatch.setenv("POINTS", "0.4")
    result = suite.run_toy(COMMITTED, BY_GATES, "--packbench-fail-on=regressed>0")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "  mean_score *0.70 x the baseline's 2.00 / 2 = 1.00 <= max 1.00 x*: PASS",
            f"baseline: 1 new failure since run {first.name} of * UTC (diff.md)",
        ]
    )
    # the file says nothing about terms
    page = (suite.left() / "diff.md").read_text("utf-8")
    assert "| toy:plain:b | passed | failed: 0.4 (expected 1.0) | 1.00 to 0.40 (-0.60) |\n" in page
    assert "added" not in page.partition("## New failures")[2].partition("##")[0]
    # commands compare with the file as well
    assert main(["compare", f"--baseline={path}", f"--current={suite.left()}", "--out=-", "--fail-on=regressed>0"]) == 1
    assert main(["validate", str(path)]) == 0
    assert "baseline.json: committed baseline, version 1, 2 cases\n" in capsys.readouterr().out
    suite.suite(text="pack: toy\nthresholds: {accept: 0.1}\n")
    lowered = suite.run_toy(COMMITTED)
    assert lowered.ret == pytest.ExitCode.TESTS_FAILED
    lowered.stdout.fnmatch_lines([f"baseline: not compared with {first.name}: scoring rules: *: FAIL"])


def test_set_shows_what_is_looser_and_keeps_the_reasons(
    suite: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.case("c")
    suite.case("d")
    suite.run_toy()
    assert call(capsys, "set", "toy/latest", "--reason", "first\n of all")[0] == 0
    monkeypatch.setenv("POINTS", "0.4")
    suite.case("c", points=0.9)
    (suite.root / "storage/benchmarks/toy/cases/plain/d.json").unlink()
    suite.run_toy()
    code, output = call(capsys, "set", "toy/latest", "--reason", "b is worth it")
    assert code == 0
    old, new = (folder.name for folder in suite.folders())
    assert output.splitlines() == [
        f"3 points looser than the baseline of {old}",
        "toy:plain:b: passed before, failed now; score 1.00 before, 0.40 now",
        "toy:plain:c: score 1.00 before, 0.90 now; the case was edited",
        "toy:plain:d: removed (passed)",
        f"note: the run {new} failed",
        f"wrote {_file(suite)}: 3 cases, 2 passed, mean score 0.77",
    ]
    code, output = call(capsys, "show", "toy")
    assert code == 0
    assert [re.sub(r"^\S+Z ", "", line) for line in output.splitlines()[-2:]] == [
        f"run {new} (3 points looser): b is worth it",
        f"run {old}: first of all",
    ]
    assert "fixture mode, target hook:act" in output
    suite.suite(text="pack: toy\nthresholds: {accept: 0.1}\n")
    assert "the scoring rules have changed since" in call(capsys, "show", "toy")[1]


def _file(suite: Project) -> str:
    return (suite.root / "storage" / "benchmarks" / "toy" / "baseline.json").as_posix()


def test_a_run_that_can_t_be_a_baseline_is_refused(suite: Project, capsys: pytest.CaptureFixture[str]) -> None:
    suite.run_toy()
    assert call(capsys, "set", "toy/latest")[1].startswith("packbench: baseline set: expected --reason TEXT")
    assert call(capsys, "show", "toy")[0] == 2
    path = suite.root / "storage/benchmarks/toy/baseline.json"
    set_latest = ("set", "toy/latest", "--reason", "x")
    path.write_text("{", encoding="utf-8")
    code, output = call(capsys, *set_latest)
    assert (code, "baseline.json: not a committed baseline: " in output, path.read_text()) == (2, True, "{")
    path.unlink()
    suite.run_toy("-k", "a.json")
    code, output = call(capsys, "set", f"toy/{suite.left().name}", "--reason", "x")
    assert (code, "is partial (1 of 2 cases selected); expected a complete run" in output) == (2, True)
    suite.suite(text="pack: toy\nthresholds: {accept: 0.1}\n")
    code, output = call(capsys, *set_latest)
    assert (code, "used other scoring rules than suite.yaml has now" in output) == (2, True)


DAMAGED = {
    "/cases/toy:plain:a/score: got 7*; expected a number*": ('"score": 1.0', '"score": 7'),
    '*the key "toy:plain:a" occurs twice*': ("toy:plain:b", "toy:plain:a"),
    "/baseline_version: got 2; *": ('"baseline_version": 1', '"baseline_version": 2'),
    "not a committed baseline: *": ("{", "\ufffd{"),
}


def test_a_damaged_baseline_fails_the_run_in_one_line(suite: Project, capsys: pytest.CaptureFixture[str]) -> None:
    suite.run_toy()
    call(capsys, "set", "toy/latest", "--reason", "first")
    path = suite.root / "storage/benchmarks/toy/baseline.json"
    text = path.read_text("utf-8")
    for message, (old, new) in DAMAGED.items():
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        ended(suite.run_toy(COMMITTED), 1, f"baseline: not compared: *baseline.json: {message}: FAIL")
        assert main(["validate", str(path)]) == 2
    # one of another target is compared, and it is said
    target = json.dumps(json.loads(text)["run"]["target"])
    path.write_text(text.replace(target, '"elsewhere:other"'), encoding="utf-8")
    other = f"baseline: the baseline * is of another target: elsewhere:other before, {target[1:-1]} now"
    ended(suite.run_toy(COMMITTED), 0, other)
    assert "is of another target" in suite.text()


def test_passed_is_the_last_run_whose_gates_held_and_latest_warns(
    suite: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = "gates: [{metric: pass_rate, min: 1.0}]\n"
    suite.suite(text=f"pack: toy\n{gates}")
    passed = "--packbench-baseline=passed"
    missing = "baseline: there is no earlier complete run of the same mode and target*: FAIL"
    ended(suite.run_toy(passed), 1, missing)
    held = suite.left().name
    # neither a failed run, nor a part, nor a run of another target is the last one that passed
    monkeypatch.setenv("POINTS", "0.4")
    suite.run_toy(BY_GATES)
    failed = suite.left().name
    suite.run_toy("-k", "a.json")
    # nor is one that could not be compared
    suite.suite(text=f"pack: toy\nthresholds: {{accept: 0.3}}\n{gates}")
    suite.run_toy(passed)
    suite.suite(text=f"pack: toy\n{gates}")
    suite.prepare()
    suite.run_toy("--packbench-target=pipeline:leak_error")
    since = f"baseline: * since run {held} of * UTC (diff.md)"
    for name in ("passed", held):
        ended(suite.run_toy(f"--packbench-baseline={name}", BY_GATES), 1, since)
    (suite.root / "reports/benchmarks/toy/latest").write_text(failed)
    warned = (f"baseline: the baseline {failed} is a run that failed", "baseline: no score changed since *")
    ended(suite.run_toy("--packbench-baseline=latest", BY_GATES), 1, *warned)
    unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    absent = f"baseline: there is no run {unknown} of suite toy here: FAIL"
    ended(suite.run_toy(f"--packbench-baseline={unknown}"), 1, absent)


def test_a_run_that_met_a_condition_is_not_one_that_passed(suite: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.suite(text="pack: toy\ngates: [{metric: pass_rate, min: 0.1}]\n")
    suite.run_toy()
    monkeypatch.setenv("POINTS", "0.4")
    for _ in range(2):
        ended(suite.run_toy("--packbench-baseline=passed", "--packbench-fail-on=regressed>0", BY_GATES), 1)
        assert suite.document()["comparison"]["baseline"] == suite.folders()[0].name
