"""Controls of the generic pack: for each rule a suite in which right answers pass and wrong ones fail.

The wrong answers are written by hand, plus those that no rule may accept: a missing value, null, another type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench.packs.generic.pack
import pytest_packbench.pytest_plugin.session

if TYPE_CHECKING:
    from pathlib import Path

# pytester unloads what a run imported, but not what was imported before
_PRELOADED = (pytest_packbench.pytest_plugin, pytest_packbench.packs.generic)
TARGET = "def act(request):\n    return request.input\n"
POINTS = """
def half_of_the_way(value, expected, given):
    return min(1.0, value / expected)


def crashes(value, expected, given):
    return 1 / value


def any_number(value, expected, given):
    return value
"""
ABSENT = object()


@dataclass(frozen=True)
class Control:
    """A criterion on `/a`, an expected value, right results with full points, and wrong results."""

    criterion: str
    expected: Any
    right: list[Any]
    wrong: list[Any] = field(default_factory=list)

    def all_wrong(self) -> list[Any]:
        return [*self.wrong, *(value for value in (ABSENT, None, {"no": "such"}) if value not in self.right)]


RULES = {
    "exact": Control(
        "exact: /a",
        {"n": [1, "x", None]},
        [{"n": [1.0, "x", None]}],
        [{"n": [1, "x"]}, {"n": [True, "x", None]}, {"n": ["x", 1, None]}, {"n": [1, "x", None], "m": 0}, {"n": 1}],
    ),
    "one_of": Control("one_of: /a", ["yes", 1], ["yes", 1, 1.0], ["Yes", True, "1", ["yes", 1], 0]),
    "numeric": Control(
        "numeric: /a, absolute: 0.5", 10, [10, 9.5, 10.5, 10.0], [9.49, 10.51, -10, "10", True, [10], 1e300]
    ),
    "relative": Control("numeric: /a, relative: 0.01", -200, [-200, -198, -202], [-197.9, -202.1, 200, 0]),
    "contains": Control(
        "contains: /a", ["left", "right"], ["left, then right", ["right", "left"]], ["left", "Left, Right", ["left"]]
    ),
    "any_case": Control("contains: /a, ignore_case: true", "ß and SS", ["say SS AND ss"], ["s and s", ["ß", "SS"]]),
    "regex": Control("regex: /a", r"^\d{2}-[a-z]+$", ["12-ab"], ["1-ab", "12-AB", "12-ab ", " 12-ab", 12, ["12-ab"]]),
    "set": Control(
        "set: /a", ["x", "y", 1], [["y", 1, "x"], ["x", "x", "y", 1.0]], [["x"], ["x", True], [], ["z"], "xy1", ["xy1"]]
    ),
    "json_schema": Control(
        "json_schema: /a",
        {"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "pattern": "^[a-z]$"}}},
        [{"id": "k"}],
        [{"id": 1}, {"id": "K"}, {"ID": "k"}, "k", ["id"]],
    ),
    "text": Control("text: /a", "two chairs", ["two chairs"], ["", "chairs", "two tables", "two", 2, ["two chairs"]]),
    "alike": Control(
        "text: /a, at_least: 0.9, ignore_case: true", "Two chairs", ["TWO CHAIRS"], ["to chair", "chairs"]
    ),
    "python": Control("python: points:half_of_the_way, path: /a", 10, [10, 20], [0, 1, 5, 7.9]),
}
# a user's function decides itself about missing values and other types
_USER_FUNCTIONS = {"python"}


def write_suite(root: Path, name: str, rules: str, cases: dict[str, dict[str, Any]]) -> None:
    folder = root / "storage" / "benchmarks" / name
    (folder / "cases" / "plain").mkdir(parents=True)
    (folder / "suite.yaml").write_text(f"pack: generic\ntarget: echo:act\n{rules}\n", encoding="utf-8")
    for case_id, case in cases.items():
        whole = {"id": case_id, "pack_id": "generic", "case_type": "plain", "difficulty": "easy", **case}
        (folder / "cases" / "plain" / f"{case_id}.json").write_text(json.dumps(whole), encoding="utf-8")


def run_suites(pytester: pytest.Pytester, *suites: str) -> dict[str, dict[str, Any]]:
    """Run suites and return their records and errors by `suite:case`."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(echo=TARGET, points=POINTS)
    pytester.runpytest(f"--packbench-suite={','.join(suites)}")
    results: dict[str, dict[str, Any]] = {}
    for name in suites:
        for kind in ("records", "errors"):
            for path in (pytester.path / "reports" / "benchmarks" / name).glob(f"*/{kind}.jsonl"):
                lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
                results |= {f"{name}:{line['test_id'].rpartition(':')[2]}": line for line in lines}
    return results


def verdict(line: dict[str, Any]) -> str:
    return str(line["packbench"]["verdict"] if "packbench" in line else line["verdict"])


def hard_fails(line: dict[str, Any]) -> list[str]:
    return [term["name"] for term in line["packbench"]["terms"] if term["effect"] == "zero"]


def result_with(value: Any) -> dict[str, Any]:
    return {} if value is ABSENT else {"a": value}


def test_each_rule_passes_right_answers_and_fails_wrong_ones(pytester: pytest.Pytester) -> None:
    for name, control in RULES.items():
        wrong = control.wrong if name in _USER_FUNCTIONS else control.all_wrong()
        rules = f"criteria: [{{{control.criterion}, name: the_rule}}]"
        inputs = {f"right-{number}": value for number, value in enumerate(control.right)}
        inputs |= {f"wrong-{number}": value for number, value in enumerate(wrong)}
        cases = {
            key: {"input": result_with(value), "expected": {"a": control.expected}} for key, value in inputs.items()
        }
        write_suite(pytester.path, name, rules, cases)
    results = run_suites(pytester, *RULES)
    assert len(results) == sum(1 for _ in pytester.path.glob("storage/benchmarks/*/cases/*/*.json")) > 100
    for key, line in results.items():
        assert "packbench" in line, (key, line)
        (term,) = line["packbench"]["terms"]
        right = ":right-" in key
        assert (verdict(line), term["name"]) == ("passed" if right else "failed", "the_rule"), (key, line)
        assert (term["value"] == 1) is right, key
        assert right or term["detail"], key


FORBIDDING: dict[str, tuple[str, list[Any], list[Any]]] = {
    "anywhere": ("SECRET", ["a SECRET", {"deep": ["SECRET"]}], ["secret", {"SECRET": 1}]),
    "exact": ("{exact: /a, value: 7}", [7, 7.0], [8, "7"]),
    "one_of": ("{one_of: /a, value: [x, y]}", ["x", "y"], ["z", "xy"]),
    "contains": ("{contains: /a, value: [bad, worse]}", ["a bad one", ["worse"]], ["good", "ba"]),
    "regex": ("{regex: /a, value: '(?i)guaranteed'}", ["GUARANTEED gain"], ["no gain", 5]),
    "python": ("{python: points:any_number, path: /a, value: 0}", [1, 0.01], [0, 0.0]),
}


def test_each_forbidding_rule_makes_the_score_0_and_nothing_else_does(pytester: pytest.Pytester) -> None:
    for name, (text, bad, good) in FORBIDDING.items():
        rules = f"criteria: [{{exact: /b}}]\nforbidden: [{text}]"
        inputs = {f"bad-{number}": value for number, value in enumerate(bad)}
        inputs |= {f"good-{number}": value for number, value in enumerate(good)}
        cases = {key: {"input": {"a": value, "b": 1}, "expected": {"b": 1}} for key, value in inputs.items()}
        write_suite(pytester.path, name, rules, cases)
    results = run_suites(pytester, *FORBIDDING)
    assert len(results) == sum(len(bad) + len(good) for _, bad, good in FORBIDDING.values())
    for key, line in results.items():
        is_forbidden = ":bad-" in key
        decision = "comply_unsafe" if is_forbidden else "comply_safe"
        score = 0.0 if is_forbidden else 1.0
        assert (line["packbench"]["score"], line["agent_decision"]) == (score, decision), (key, line)
        assert hard_fails(line) == (["forbidden"] if is_forbidden else []), key


REFUSALS: dict[str, tuple[Any, Any, float, str, str]] = {
    # expected, result, score, verdict, deciding term
    "due": ({"refuse": True}, {"refusal": {"category": "any"}}, 1.0, "passed", "refusal"),
    "due-kind": ({"refuse": True, "category": "x"}, {"refusal": {"category": "x"}}, 1.0, "passed", "refusal"),
    "other-kind": (
        {"refuse": True, "category": "x"},
        {"refusal": {"category": "y"}},
        0.5,
        "failed",
        "refusal_category_mismatch",
    ),
    "no-kind": ({"refuse": True, "category": "x"}, {"refusal": True}, 0.5, "failed", "refusal_category_mismatch"),
    "answered": ({"refuse": True}, {"a": 1}, 0.0, "failed", "unexpected_acceptance"),
    "empty-refusal": ({"refuse": True}, {"refusal": {}}, 0.0, "failed", "unexpected_acceptance"),
    "undue": ({"a": 1}, {"a": 1, "refusal": {"category": "x"}}, 0.0, "failed", "unexpected_refusal"),
    "forbidden-in-refusal": ({"refuse": True}, {"refusal": "no SECRET"}, 0.0, "failed", "forbidden"),
}


def test_each_branch_of_refusals_can_fail(pytester: pytest.Pytester) -> None:
    cases = {key: {"input": result, "expected": expected} for key, (expected, result, *_) in REFUSALS.items()}
    write_suite(pytester.path, "refusals", "criteria: [{exact: /a}]\nforbidden: [SECRET]", cases)
    results = run_suites(pytester, "refusals")
    for key, (_, _, score, expected_verdict, term) in REFUSALS.items():
        line = results[f"refusals:{key}"]
        assert (line["packbench"]["score"], verdict(line)) == (score, expected_verdict), key
        assert term in [entry["name"] for entry in line["packbench"]["terms"]], key


BROKEN: dict[str, tuple[Any, str]] = {
    "crash": ({"c": 0, "n": 1, "r": "a"}, "ZeroDivisionError"),
    "over": ({"c": 1, "n": 1.5, "r": "a"}, "expected a number from 0 to 1"),
    "under": ({"c": 1, "n": -0.1, "r": "a"}, "expected a number from 0 to 1"),
    "text": ({"c": 1, "n": "1", "r": "a"}, "expected a bool or a number from 0 to 1"),
    "slow": ({"c": 1, "n": 1, "r": "a" * 80 + "b"}, "ran longer than 0.05 s"),
}


def test_a_rule_that_raises_is_an_error_and_never_scores_0(pytester: pytest.Pytester) -> None:
    rules = (
        "criteria: [{python: points:crashes, path: /c, value: 0}, {python: points:any_number, path: /n, value: 0}, "
        "{regex: /r, value: '(a|aa)+$', timeout: 0.05}]"
    )
    inputs = {"fine": {"c": 1, "n": 1, "r": "a"}, **{key: result for key, (result, _) in BROKEN.items()}}
    write_suite(
        pytester.path, "breaks", rules, {key: {"input": value, "expected": {}} for key, value in inputs.items()}
    )
    results = run_suites(pytester, "breaks")
    assert verdict(results["breaks:fine"]) == "passed"
    for key, (_, message) in BROKEN.items():
        line = results[f"breaks:{key}"]
        assert (line["verdict"], line["kind"]) == ("error", "scorer_error"), key
        assert message in line["message"], key
        assert "score" not in line


def test_each_threshold_decides(pytester: pytest.Pytester) -> None:
    half: dict[str, Any] = {"input": {"a": 1, "b": 1}, "expected": {"a": 1, "b": 2}}
    refusal: dict[str, Any] = {"input": {"refusal": "y"}, "expected": {"refuse": True, "category": "x"}}
    rules = "criteria: [{exact: /a}, {exact: /b}]\nthresholds: {accept: 0.6, refuse: 0.5, by_type: {lenient: 0.5, severe: 1.0}}"
    cases = {
        "accept": half,
        "by-type": {**half, "case_type": "lenient"},
        "own": {**half, "notes": {"threshold": 0.5}},
        "own-first": {**half, "case_type": "lenient", "notes": {"threshold": 0.51}},
        "refuse": refusal,
        "refuse-by-type": {**refusal, "case_type": "severe"},
    }
    write_suite(pytester.path, "limits", rules, cases)
    results = {key.partition(":")[2]: line["packbench"] for key, line in run_suites(pytester, "limits").items()}
    assert {key: (result["threshold"], result["verdict"]) for key, result in results.items()} == {
        "accept": (0.6, "failed"),
        "by-type": (0.5, "passed"),
        "own": (0.5, "passed"),
        "own-first": (0.51, "failed"),
        "refuse": (0.5, "passed"),
        "refuse-by-type": (1.0, "failed"),
    }


def test_partial_credit_is_f1_and_weights(pytester: pytest.Pytester) -> None:
    rules = "criteria: [{set: /a, weight: 3}, {exact: /b}]"
    variants = {
        "two-of-three": ({"a": ["x", "y"], "b": 1}, 0.75 * 0.8 + 0.25),
        "one-too-many": ({"a": ["x", "y", "z", "w"], "b": 1}, 0.75 * 6 / 7 + 0.25),
        "only-b": ({"a": [], "b": 1}, 0.25),
        "only-a": ({"a": ["z", "y", "x"], "b": 2}, 0.75),
    }
    expected = {"a": ["x", "y", "z"], "b": 1}
    write_suite(
        pytester.path,
        "partial",
        rules,
        {key: {"input": value, "expected": expected} for key, (value, _) in variants.items()},
    )
    results = run_suites(pytester, "partial")
    for key, (_, score) in variants.items():
        assert results[f"partial:{key}"]["packbench"]["score"] == pytest.approx(score, abs=1e-8), key
