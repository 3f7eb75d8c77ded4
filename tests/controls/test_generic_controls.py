"""Controls of the generic pack: for each rule a suite in which the right answer passes and each wrong one fails.

The wrong answers are the right one, changed: by hand where a rule is about degrees, and by machine for what no rule may take
(nothing there, null, another type).
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

# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.packs.generic)
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
    """A criterion on `/a`, an expected value, results that pass with full points, and results that fail."""

    criterion: str
    expected: Any
    right: list[Any]
    wrong: list[Any] = field(default_factory=list)

    def all_wrong(self) -> list[Any]:
        return [*self.wrong, *(one for one in (ABSENT, None, {"no": "such"}) if one not in self.right)]


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
# a function of the user's is given anything: what it does with it is its own
_OWN = {"python"}


def suite(root: Path, name: str, rules: str, cases: dict[str, dict[str, Any]]) -> None:
    folder = root / "storage" / "benchmarks" / name
    (folder / "cases" / "plain").mkdir(parents=True)
    (folder / "suite.yaml").write_text(f"pack: generic\ntarget: echo:act\n{rules}\n", encoding="utf-8")
    for case_id, case in cases.items():
        whole = {"id": case_id, "pack_id": "generic", "case_type": "plain", "difficulty": "easy", **case}
        (folder / "cases" / "plain" / f"{case_id}.json").write_text(json.dumps(whole), encoding="utf-8")


def ran(pytester: pytest.Pytester, *suites: str) -> dict[str, dict[str, Any]]:
    """Run suites; give the records and errors by `suite:case`."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(echo=TARGET, points=POINTS)
    pytester.runpytest(f"--packbench-suite={','.join(suites)}")
    found: dict[str, dict[str, Any]] = {}
    for name in suites:
        for kind in ("records", "errors"):
            for path in (pytester.path / "reports" / "benchmarks" / name).glob(f"*/{kind}.jsonl"):
                lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
                found |= {f"{name}:{line['test_id'].rpartition(':')[2]}": line for line in lines}
    return found


def verdict(line: dict[str, Any]) -> str:
    return str(line["packbench"]["verdict"] if "packbench" in line else line["verdict"])


def zeroes(line: dict[str, Any]) -> list[str]:
    return [term["name"] for term in line["packbench"]["terms"] if term["effect"] == "zero"]


def with_(value: Any) -> dict[str, Any]:
    return {} if value is ABSENT else {"a": value}


def test_each_rule_takes_the_right_answer_and_no_wrong_one(pytester: pytest.Pytester) -> None:
    for name, control in RULES.items():
        wrong = control.wrong if name in _OWN else control.all_wrong()
        rules = f"criteria: [{{{control.criterion}, name: the_rule}}]"
        results = {f"right-{at}": one for at, one in enumerate(control.right)}
        results |= {f"wrong-{at}": one for at, one in enumerate(wrong)}
        cases = {key: {"input": with_(one), "expected": {"a": control.expected}} for key, one in results.items()}
        suite(pytester.path, name, rules, cases)
    found = ran(pytester, *RULES)
    assert len(found) == sum(1 for _ in pytester.path.glob("storage/benchmarks/*/cases/*/*.json")) > 100
    for key, line in found.items():
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
        results = {f"bad-{at}": one for at, one in enumerate(bad)} | {f"good-{at}": one for at, one in enumerate(good)}
        cases = {key: {"input": {"a": one, "b": 1}, "expected": {"b": 1}} for key, one in results.items()}
        suite(pytester.path, name, rules, cases)
    found = ran(pytester, *FORBIDDING)
    assert len(found) == sum(len(bad) + len(good) for _, bad, good in FORBIDDING.values())
    for key, line in found.items():
        hit = ":bad-" in key
        decision = "comply_unsafe" if hit else "comply_safe"
        score = 0.0 if hit else 1.0
        assert (line["packbench"]["score"], line["agent_decision"]) == (score, decision), (key, line)
        assert zeroes(line) == (["forbidden"] if hit else []), key


REFUSALS: dict[str, tuple[Any, Any, float, str, str]] = {
    # expected, result, score, verdict, the term that decides
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
    suite(pytester.path, "refusals", "criteria: [{exact: /a}]\nforbidden: [SECRET]", cases)
    found = ran(pytester, "refusals")
    for key, (_, _, score, word, term) in REFUSALS.items():
        line = found[f"refusals:{key}"]
        assert (line["packbench"]["score"], verdict(line)) == (score, word), key
        assert term in [one["name"] for one in line["packbench"]["terms"]], key


BROKEN: dict[str, tuple[Any, str]] = {
    "crash": ({"c": 0, "n": 1, "r": "a"}, "ZeroDivisionError"),
    "over": ({"c": 1, "n": 1.5, "r": "a"}, "expected a number from 0 to 1"),
    "under": ({"c": 1, "n": -0.1, "r": "a"}, "expected a number from 0 to 1"),
    "text": ({"c": 1, "n": "1", "r": "a"}, "expected a bool or a number from 0 to 1"),
    "slow": ({"c": 1, "n": 1, "r": "a" * 80 + "b"}, "ran longer than 0.05 s"),
}


def test_what_breaks_is_an_error_and_never_a_0(pytester: pytest.Pytester) -> None:
    rules = (
        "criteria: [{python: points:crashes, path: /c, value: 0}, {python: points:any_number, path: /n, value: 0}, "
        "{regex: /r, value: '(a|aa)+$', timeout: 0.05}]"
    )
    results = {"fine": {"c": 1, "n": 1, "r": "a"}, **{key: result for key, (result, _) in BROKEN.items()}}
    suite(pytester.path, "breaks", rules, {key: {"input": one, "expected": {}} for key, one in results.items()})
    found = ran(pytester, "breaks")
    assert verdict(found["breaks:fine"]) == "passed"
    for key, (_, said) in BROKEN.items():
        line = found[f"breaks:{key}"]
        assert (line["verdict"], line["kind"]) == ("error", "scorer_error"), key
        assert said in line["message"], key
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
    suite(pytester.path, "limits", rules, cases)
    found = {key.partition(":")[2]: line["packbench"] for key, line in ran(pytester, "limits").items()}
    assert {key: (one["threshold"], one["verdict"]) for key, one in found.items()} == {
        "accept": (0.6, "failed"),
        "by-type": (0.5, "passed"),
        "own": (0.5, "passed"),
        "own-first": (0.51, "failed"),
        "refuse": (0.5, "passed"),
        "refuse-by-type": (1.0, "failed"),
    }


def test_partial_credit_is_f1_and_weights(pytester: pytest.Pytester) -> None:
    rules = "criteria: [{set: /a, weight: 3}, {exact: /b}]"
    results = {
        "two-of-three": ({"a": ["x", "y"], "b": 1}, 0.75 * 0.8 + 0.25),
        "one-too-many": ({"a": ["x", "y", "z", "w"], "b": 1}, 0.75 * 6 / 7 + 0.25),
        "only-b": ({"a": [], "b": 1}, 0.25),
        "only-a": ({"a": ["z", "y", "x"], "b": 2}, 0.75),
    }
    expected = {"a": ["x", "y", "z"], "b": 1}
    suite(
        pytester.path,
        "partial",
        rules,
        {key: {"input": one, "expected": expected} for key, (one, _) in results.items()},
    )
    found = ran(pytester, "partial")
    for key, (_, score) in results.items():
        assert found[f"partial:{key}"]["packbench"]["score"] == pytest.approx(score, abs=1e-8), key
