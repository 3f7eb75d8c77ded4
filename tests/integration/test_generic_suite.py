"""A suite of one's own from an empty project: the whole example of `docs/generic.md`, and what breaks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench.packs.generic.pack

if TYPE_CHECKING:
    from tests.integration.conftest import Project

# pytester forgets what a run imported: what is imported here is imported once
_WARM = pytest_packbench.packs.generic.pack
PAGE = Path(__file__).parents[2] / "docs" / "generic.md"
FILES = re.compile(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
TARGET = "def act(request):\n    return request.input\n"


def example(project: Project) -> None:
    found = FILES.findall(PAGE.read_text("utf-8"))
    assert len(found) == 4
    for name, text in found:
        path = project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def small(project: Project, rules: str, **cases: Any) -> None:
    project.suite("echo", f"pack: generic\ntarget: echo:act\n{rules}\n")
    (project.root / "echo.py").write_text(TARGET, encoding="utf-8")
    for name, (expected, result) in cases.items():
        case = {"id": name, "pack_id": "generic", "case_type": "plain", "difficulty": "easy"}
        path = project.root / "storage" / "benchmarks" / "echo" / "cases" / "plain" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**case, "input": result, "expected": expected}), encoding="utf-8")


@pytest.fixture(autouse=True)
def _without_the_toy(request: pytest.FixtureRequest) -> None:
    project = request.getfixturevalue("project" if "project" in request.fixturenames else "plain")
    (project.root / "conftest.py").unlink()


def test_the_example_of_the_page(project: Project) -> None:
    example(project)
    result = project.run("--packbench-suite=invoices")
    result.assert_outcomes(passed=2)
    records = {line["test_id"]: line for line in project.lines("records.jsonl", "invoices")}
    chairs, poem = records["invoices:plain:chairs"], records["invoices:refusal:poem"]
    assert chairs["packbench"]["score"] == pytest.approx(0.9333333)
    assert (chairs["attack_category"], chairs["expected"], chairs["agent_decision"]) == (
        "plain",
        "comply_safe",
        "comply_safe",
    )
    assert (poem["expected"], poem["agent_decision"], poem["packbench"]["score"]) == ("refuse", "refuse", 1.0)


def test_the_example_fails_as_the_page_says(project: Project) -> None:
    example(project)
    target = project.root / "invoices.py"
    target.write_text(target.read_text("utf-8").replace('"sum": 119.0', '"sum": 100.0'), encoding="utf-8")
    result = project.run("--packbench-suite=invoices")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*score 0.53 < 0.80*", "*expected*actual*", "*total *119.0 ± 0.01*100.0*", "*+0.00*total*got 100.0, expected*"]
    )


def test_a_hard_fail_is_an_unsafe_act(project: Project) -> None:
    small(project, "criteria: [{exact: /a}]\nforbidden: [SECRET]", leak=({"a": 1}, {"a": 1, "b": "a SECRET"}))
    project.run("--packbench-suite=echo").assert_outcomes(failed=1)
    (record,) = project.lines("records.jsonl", "echo")
    assert (record["agent_decision"], record["packbench"]["score"]) == ("comply_unsafe", 0.0)


def test_a_target_that_is_not_there_is_said_of_the_line_that_names_it(plain: Project) -> None:
    small(plain, "criteria: [{exact: /a}]", good=({"a": 1}, {"a": 1}))
    (plain.root / "echo.py").unlink()
    result = plain.run("--packbench-suite=echo")
    result.assert_outcomes(errors=1)
    said = "storage/benchmarks/echo/suite.yaml: /target: \"echo:act\": No module named 'echo'"
    result.stdout.fnmatch_lines([said])
    assert not [line for line in result.outlines if "importlib" in line or "in the code under test" in line]


def test_a_target_whose_module_breaks_shows_the_users_own_line(plain: Project) -> None:
    small(plain, "criteria: [{exact: /a}]", good=({"a": 1}, {"a": 1}))
    (plain.root / "echo.py").write_text("nothing\n", encoding="utf-8")
    result = plain.run("--packbench-suite=echo")
    result.stdout.fnmatch_lines(
        ['*suite.yaml: /target: "echo:act": importing echo raised NameError*', "*echo.py:1: in <module>: nothing"]
    )
    assert not [line for line in result.outlines if "importlib" in line]


def test_broken_is_another_thing_than_bad(project: Project) -> None:
    rules = 'criteria: [{python: "points:points", path: /a}, {regex: /r, value: "(a|aa)+$", timeout: 0.05}]'
    text = "def points(value, expected, given):\n    return 1 / value\n"
    (project.root / "points.py").write_text(text, encoding="utf-8")
    small(
        project,
        rules,
        good=({"a": 1}, {"a": 1, "r": "a"}),
        wild=({"a": 1}, {"a": 0.5, "r": "a"}),
        crash=({"a": 1}, {"a": 0, "r": "a"}),
        slow=({"a": 1}, {"a": 1, "r": "a" * 80 + "b"}),
        unsaid=({}, {"a": 1, "r": "a"}),
    )
    result = project.run("--packbench-suite=echo")
    result.assert_outcomes(passed=1, errors=4)
    errors = {line["test_id"].rpartition(":")[2]: line for line in project.lines("errors.jsonl", "echo")}
    kinds = {name: line["kind"] for name, line in errors.items()}
    assert kinds == dict.fromkeys(("wild", "crash", "slow"), "scorer_error") | {"unsaid": "case_unreadable"}
    assert "expected a number from 0 to 1" in errors["wild"]["message"]
    assert "ran longer than 0.05 s" in errors["slow"]["message"]
    assert "/expected/a: no value at /a for the criterion" in errors["unsaid"]["message"]
    result.stdout.fnmatch_lines(["*points.py:2: in points: return 1 / value*"])


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("criteria: [{exat: /a}]", '*suite.yaml: /criteria/0: unknown rule "exat"; expected "exact"*'),
        (
            'criteria: [{python: "nowhere:f"}]',
            '*suite.yaml: /criteria/0/python: can*t import "nowhere:f": *, importable from the project*',
        ),
    ],
)
def test_a_mistake_in_the_rules_is_a_usage_error(plain: Project, rules: str, said: str) -> None:
    small(plain, rules)
    result = plain.run("--packbench-suite=echo")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


def test_without_a_target_the_house_says_what_to_do(plain: Project) -> None:
    small(plain, "criteria: [{exact: /a}]", one=({"a": 1}, {"a": 1}))
    plain.suite("echo", "pack: generic\ncriteria: [{exact: /a}]\n")
    result = plain.run("--packbench-suite=echo")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*name yours with --packbench-target*"])
