"""What a change of the acceptance policy is called, and what is tighter: policies as values, without files."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest

from pytest_packbench import policy as policies
from pytest_packbench.cases.finder import CaseLocation
from pytest_packbench.model.report import same
from pytest_packbench.policy import Policy, PolicyCase, differences, policy_changes

TEST_ID = "toy:plain:a"
CASE = PolicyCase("cases/a.json", "a" * 64)
RUN = {"mode": "fixture", "target": "toy", "trials": 1}


def policy(**changes: Any) -> Policy:
    named = ("files", "code", "hooks", "suites", "settings", "pipeline")
    parts: Policy = {name: {} for name in ("config", "recordings", "cases", *named)}
    return {**parts, "baseline": None, **changes}


@pytest.fixture(autouse=True)
def _contents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "read_located", lambda location: location.path.encode())


def lines(base: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [change.line for change in policy_changes(policy(**base), policy(**now))]


def baseline(case: Any = None, **changes: Any) -> dict[str, Any]:
    cases = {} if case is None else {TEST_ID: case}
    return {"cases": {"a": CASE}, "baseline": {"run": RUN, "cases": cases}, **changes}


PASSED = {"verdict": "passed", "score": 0.9, "sha256": "a" * 64}
FAILED = {"verdict": "failed", "score": 0.4, "sha256": "a" * 64}
ERROR = {"verdict": "error", "kind": "timeout"}
PLACE = f"baseline.json: baseline.json /cases/{TEST_ID}"
BASELINES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "the same": (baseline(PASSED), baseline(PASSED), []),
    "a new baseline": ({}, baseline(PASSED), []),
    "removed": (
        baseline(),
        {"cases": {"a": CASE}},
        ["baseline changed: baseline.json: baseline.json: sha256:* -> absent"],
    ),
    "a case more": (baseline(), baseline(PASSED), []),
    "a case removed with its entry": (
        baseline(PASSED),
        baseline(None, cases={}),
        ["case removed: cases/a.json (case a): present -> removed"],
    ),
    "a case removed, its entry kept": (
        baseline(PASSED),
        baseline(FAILED, cases={}),
        ["case removed: cases/a.json (case a): present -> removed"],
    ),
    "an entry removed": (
        baseline(PASSED),
        baseline(),
        [f"baseline loosened: {PLACE} (case a): sha256:* -> absent"],
    ),
    "a hash that is none": (
        baseline(PASSED),
        baseline({**PASSED, "sha256": [1]}),
        [f"baseline loosened: {PLACE}/sha256 (case a): that of the case -> [[]1]"],
    ),
    "an entry that is none": (
        baseline(PASSED),
        baseline("yes"),
        [f"baseline loosened: {PLACE} (case a): sha256:* -> yes"],
    ),
    "better": (baseline(FAILED), baseline(PASSED), []),
    "judged now": (
        baseline(ERROR),
        baseline(FAILED),
        [f"baseline loosened: {PLACE}/verdict (case a): error -> failed"],
    ),
    "another hash than that of the case": (
        baseline(PASSED),
        baseline({**PASSED, "sha256": "b" * 64}),
        [f"baseline loosened: {PLACE}/sha256 (case a): that of the case -> sha256:*"],
    ),
    "no hash": (
        baseline(PASSED),
        baseline({**PASSED, "sha256": None}),
        [f"baseline loosened: {PLACE}/sha256 (case a): that of the case -> absent"],
    ),
    "a text that stands for a hash": (
        baseline(PASSED),
        baseline({**PASSED, "sha256": "that of the case"}),
        [f"baseline loosened: {PLACE}/sha256 (case a): that of the case -> that of the case, as a text"],
    ),
    "cases that are none": (
        baseline(PASSED),
        {**baseline(PASSED), "baseline": {"run": RUN, "cases": []}},
        [f"baseline loosened: {PLACE} (case a): sha256:* -> absent"],
    ),
    "cases of the base that are none": (
        {**baseline(PASSED), "baseline": {"run": RUN, "cases": []}},
        baseline(PASSED),
        ["baseline loosened: baseline.json: baseline.json /cases: [[]] -> sha256:*"],
    ),
    "the hash of the case": (baseline({**PASSED, "sha256": "b" * 64}), baseline(PASSED), []),
    "an error now": (
        baseline(FAILED),
        baseline(ERROR),
        [
            f"baseline loosened: {PLACE}/verdict (case a): failed -> error",
            f"baseline loosened: {PLACE}/score (case a): 0.4 -> absent",
            f"baseline loosened: {PLACE}/sha256 (case a): that of the case -> absent",
            f"baseline loosened: {PLACE}/kind (case a): absent -> timeout",
        ],
    ),
    "more trials passed": (baseline({"passed": 1}), baseline({"passed": 2}), []),
    "fewer trials passed": (
        baseline({"passed": 2}),
        baseline({"passed": 1}),
        [f"baseline loosened: {PLACE}/passed (case a): 2 -> 1"],
    ),
    "another rule of its trials": (
        baseline(baseline={"run": {**RUN, "trials_rule": {"at_least": 4}}, "cases": {}}),
        baseline(baseline={"run": {**RUN, "trials_rule": {"at_least": 1}}, "cases": {}}),
        ["baseline changed: baseline.json: baseline.json /run/trials_rule/at_least: 4 -> 1"],
    ),
    "another mode": (
        baseline(),
        baseline(baseline={"run": {**RUN, "mode": "live"}, "cases": {}}),
        ["baseline changed: baseline.json: baseline.json /run/mode: fixture -> live"],
    ),
}


@pytest.mark.parametrize("name", BASELINES)
def test_a_committed_baseline_may_get_better_and_nothing_else(name: str) -> None:
    base, now, expected = BASELINES[name]
    found = lines(base, now)
    assert len(found) == len(expected)
    assert all(map(fnmatchcase, found, expected)), found


def config(**keys: Any) -> dict[str, Any]:
    return {"config": keys}


def thresholds(accept: Any, refuse: Any = 0.9, **by_type: Any) -> dict[str, Any]:
    return config(thresholds={"accept": accept, "refuse": refuse, "by_type": by_type})


def settings(**values: Any) -> dict[str, Any]:
    return {"settings": {"file": "pytest.ini", **values}}


def gates(*rules: dict[str, Any]) -> dict[str, Any]:
    return config(gates=list(rules))


def case(**data: Any) -> dict[str, Any]:
    whole = {"id": "a", "expected": {"code": "1"}, **data}
    # the place of a file stands for its content
    location = CaseLocation(json.dumps(whole), "a")
    known = PolicyCase(CASE.file, str(sorted(data.items(), key=str)), location)
    return {"cases": {"a": known}}


RATE = {"metric": "pass_rate", "min": 0.8}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # settings
    "a setting by default": (settings(), settings(gate="suite"), []),
    "gates decide": (
        settings(gate="case"),
        settings(gate="suite"),
        ["setting softened: pytest.ini: setting gate: case -> suite"],
    ),
    "cases decide": (settings(gate="suite"), settings(gate="case"), []),
    "a stale recording warns": (
        settings(stale="error"),
        settings(stale="warn"),
        ["setting softened: pytest.ini: setting stale: error -> warn"],
    ),
    "a baseline where there was none": (settings(baseline="none"), settings(baseline="committed"), []),
    "another baseline": (
        settings(baseline="committed"),
        settings(baseline="latest"),
        ["setting softened: pytest.ini: setting baseline: committed -> latest"],
    ),
    "another target": (
        settings(target="a:run"),
        settings(target="b:run"),
        ["pipeline changed: pytest.ini: setting target: a:run -> b:run"],
    ),
    "one more condition": (settings(fail_on=["regressed>0"]), settings(fail_on=["regressed>0", "mean<0"]), []),
    "one condition less": (
        settings(fail_on=["regressed>0", "mean<0"]),
        settings(fail_on=["mean<0"]),
        ['setting softened: pytest.ini: setting fail_on: ["regressed>0", "mean<0"] -> ["mean<0"]'],
    ),
    # the suite
    "thresholds where there were none": (
        config(),
        thresholds(0.8),
        ['threshold added: suite.yaml: /thresholds: absent -> {"accept": 0.8, "refuse": 0.9, "by_type": {}}'],
    ),
    "a suite removed": (
        {"suites": {"a": "present", "b": "present"}},
        {"suites": {"b": "present"}},
        ["suite removed: a/suite.yaml: suite a: present -> absent"],
    ),
    "a description": (config(description="x"), config(description="y"), []),
    "a constant": (config(weight=1), config(weight=True), ["scoring changed: suite.yaml: /weight: 1 -> true"]),
    "a guard of the suite": (
        config(guards=[]),
        config(guards=["x"]),
        ['pipeline changed: suite.yaml: /guards: [] -> ["x"]'],
    ),
    "no trials rule": (
        config(trials="all"),
        config(trials="any"),
        ["trials rule changed: suite.yaml: /trials: all -> any"],
    ),
    "all trials": (config(trials="any"), config(trials="all"), []),
    "fewer trials": (
        config(trials={"at_least": 3}),
        config(trials={"at_least": 2}),
        ["trials rule changed: suite.yaml: /trials/at_least: 3 -> 2"],
    ),
    "any to the mean": (
        config(trials="any"),
        config(trials="mean"),
        ["trials rule changed: suite.yaml: /trials: any -> mean"],
    ),
    "another file is ignored": (
        config(ignore=["a", "b"]),
        config(ignore=["b", "c"]),
        ['ignored: suite.yaml: /ignore: ["a", "b"] -> ["b", "c"]'],
    ),
    "files are ignored": (config(), config(ignore=["c"]), ['ignored: suite.yaml: /ignore: absent -> ["c"]']),
    "fewer files are ignored": (config(ignore=["a", "c"]), config(ignore=["c"]), []),
    "a header is ignored": (
        config(recording={"ignore_headers": ["a"]}),
        config(recording={"ignore_headers": ["a", "x-*"]}),
        ['ignored: suite.yaml: /recording/ignore_headers: ["a"] -> ["a", "x-*"]'],
    ),
    "headers of a base that knows no such rule": (
        config(),
        config(recording={"ignore_headers": ["b"]}),
        ['scoring changed: suite.yaml: /recording: absent -> {"ignore_headers": ["b"]}'],
    ),
    "fewer headers are ignored": (
        config(recording={"ignore_headers": ["a"]}),
        config(recording={"ignore_headers": []}),
        [],
    ),
    "a pass is allowed": (
        config(allow_pass=None),
        {"config": {"allow_pass": "why"}},
        ["scoring changed: suite.yaml: /allow_pass: null -> why"],
    ),
    # thresholds
    "higher": (thresholds(0.8), thresholds(0.85), []),
    "lower": (thresholds(0.8), thresholds(0.75), ["threshold changed: suite.yaml: /thresholds/accept: 0.8 -> 0.75"]),
    "a type more": (
        thresholds(0.8),
        thresholds(0.8, x=0.85),
        ["threshold added: suite.yaml: /thresholds/by_type/x: absent -> 0.85"],
    ),
    "types that are a list": (
        config(thresholds={"accept": 0.8, "refuse": 0.9, "by_type": [1]}),
        thresholds(0.8),
        ["*: suite.yaml: /thresholds/by_type*"],
    ),
    "a type no more": (
        thresholds(0.8, x=0.85),
        thresholds(0.8),
        ["threshold removed: suite.yaml: /thresholds/by_type/x: 0.85 -> absent"],
    ),
    "a threshold that is none": (
        thresholds(0.8),
        thresholds("low"),
        ["threshold changed: suite.yaml: /thresholds/accept: 0.8 -> low"],
    ),
    # gates
    "a bound as before": (gates(RATE), gates({**RATE, "min": 0.8}), []),
    "a higher bound": (gates(RATE), gates({**RATE, "min": 0.9}), []),
    "a lower bound": (
        gates(RATE),
        gates({**RATE, "min": 0.7}),
        ["gate loosened: suite.yaml: /gates/pass_rate/min: 0.8 -> 0.7"],
    ),
    "a bound beyond all numbers": (
        gates({"metric": "asr", "max": 10**400}),
        gates({"metric": "asr", "max": 0.5}),
        [],
    ),
    "a higher maximum": (
        gates({"metric": "asr", "max": 0.1}),
        gates({"metric": "asr", "max": 0.2}),
        ["gate loosened: suite.yaml: /gates/asr/max: 0.1 -> 0.2"],
    ),
    "a bound more": (gates(RATE), gates({**RATE, "max": 0.9}), []),
    "a bound less": (
        gates({**RATE, "confidence": 0.95}),
        gates(RATE),
        ["gate loosened: suite.yaml: /gates/pass_rate/confidence: 0.95 -> absent"],
    ),
    "a gate more": (gates(RATE), gates({"metric": "asr", "max": 0.1}, RATE), []),
    "a gate less": (
        gates({"metric": "asr", "max": 0.1, "by": "x"}, RATE),
        gates(RATE),
        ['gate removed: suite.yaml: /gates/asr by x: {"metric": "asr", "max": 0.1, "by": "x"} -> absent'],
    ),
    "other groups": (
        gates({**RATE, "by": "x"}),
        gates({**RATE, "by": "y"}),
        ['gate removed: suite.yaml: /gates/pass_rate by x: {"metric": "pass_rate", "min": 0.8, "by": "x"} -> absent'],
    ),
    "a case more has to pass": (gates({"must_pass": ["a"]}), gates({"must_pass": ["b", "a"]}), []),
    "a case less has to pass": (
        gates({"must_pass": ["a", "b"]}),
        gates({"must_pass": ["b"]}),
        ['gate loosened: suite.yaml: /gates/must_pass/must_pass: ["a", "b"] -> ["b"]'],
    ),
    # the pack, other files, hooks, recordings
    "another version": (
        {"pipeline": {"pack version": "1"}},
        {"pipeline": {"pack version": "2"}},
        ["pack changed: this run: pack version of the run: 1 -> 2"],
    ),
    "another pack": ({"code": {"p.py": "1"}}, {"code": {"p.py": "2"}}, ["pack changed: p.py: pack code p.py: 1 -> 2"]),
    "a file": (
        {"files": {"t.csv": "1", "u.csv": "1"}},
        {"files": {"t.csv": "2", "new.csv": "3", "new.py": "4"}},
        [
            "file changed: t.csv: file t.csv: 1 -> 2",
            "file changed: u.csv: file u.csv: 1 -> absent",
            "file changed: new.py: file new.py: absent -> 4",
        ],
    ),
    "a hook": ({"hooks": {}}, {"hooks": {"c.py": "1"}}, ["hook changed: c.py: hook c.py: absent -> 1"]),
    "another model of the run": (
        {"pipeline": {"model": "a"}},
        {"pipeline": {"model": "b", "target": "t"}},
        ["pipeline changed: this run: model of the run: a -> b"],
    ),
    "recordings": (
        {"recordings": {"a": "1", "b": "1", "gone": "1", "controls/x": "1"}, "cases": {"a": CASE, "gone": CASE}},
        {"recordings": {"a": "2", "new": "1", "controls/y": "1"}, "cases": {"a": CASE}},
        [
            "case removed: cases/a.json (case gone): present -> removed",
            "recording changed: fixtures/a.json: recording (case a): 1 -> 2",
            "recording removed: fixtures/b.json: recording b: 1 -> absent",
            "control removed: fixtures/controls/x.json: recording controls/x: 1 -> absent",
        ],
    ),
    "a recording added": (
        {"cases": {"a": CASE}},
        {"cases": {"a": CASE}, "recordings": {"a": "1"}},
        ["recording added: fixtures/a.json: recording (case a): absent -> 1"],
    ),
    # cases
    "an input": (
        case(input="x"),
        case(input="y"),
        ["case changed: cases/a.json: /input (case a): sha256:* -> sha256:*"],
    ),
    "an input removed": (
        case(input="x"),
        case(),
        ["case changed: cases/a.json: /input (case a): sha256:* -> absent"],
    ),
    "a schema": (case(**{"$schema": "1"}), case(**{"$schema": "2"}), []),
    "an expectation": (
        case(),
        case(expected={"code": "2"}),
        ["expectation changed: cases/a.json: /expected/code (case a): 1 -> 2"],
    ),
    "a difficulty": (
        case(difficulty="easy"),
        case(difficulty="hard"),
        ["case changed: cases/a.json: /difficulty (case a): easy -> hard"],
    ),
    "any other key": (case(tags=["x"]), case(tags=[]), ['case changed: cases/a.json: /tags (case a): ["x"] -> []']),
    "where it comes from": (case(), case(notes={"source": "x", "date": "2026-01-01", "reviews": [{"by": "x"}]}), []),
    "a source inside another note": (
        case(),
        case(notes={"more": {"source": "x"}}),
        ['case changed: cases/a.json: /notes/more (case a): absent -> {"source": "x"}'],
    ),
    "a quarantine": (
        case(),
        case(notes={"skip": "why"}),
        ["case quarantined: cases/a.json: /notes/skip (case a): absent -> why"],
    ),
    "another reason": (
        case(notes={"skip": "why"}),
        case(notes={"skip": "because"}),
        ["case quarantined: cases/a.json: /notes/skip (case a): why -> because"],
    ),
    "a quarantine ended": (case(notes={"skip": "why"}), case(notes={}), []),
    "a threshold of its own": (
        case(),
        case(expected={"code": "1", "threshold": 1.0}),
        ["threshold added: cases/a.json: /expected/threshold (case a): absent -> 1.0"],
    ),
    "a higher threshold": (
        case(expected={"code": "1", "threshold": 0.8}),
        case(expected={"code": "1", "threshold": 1.0}),
        [],
    ),
    "a lower threshold": (
        case(expected={"code": "1", "threshold": 0.9}),
        case(expected={"code": "1", "threshold": 0.8}),
        ["threshold changed: cases/a.json: /expected/threshold (case a): 0.9 -> 0.8"],
    ),
    "a case that could not be read": (
        {"cases": {"a": CASE._replace(sha256=None)}},
        case(),
        [],
    ),
    "only hashes": (
        {"cases": {"a": CASE._replace(sha256="1")}},
        {"cases": {"a": CASE._replace(sha256="2")}},
        ["case changed: cases/a.json: case (case a): 1 -> 2"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_not_known_to_be_tighter_is_one_line(name: str) -> None:
    base, now, expected = CHANGES[name]
    found = lines(base, now)
    assert len(found) == len(expected), found
    assert all(map(fnmatchcase, found, [line.replace("[", "[[]") for line in expected])), found
    assert lines(base, base) == lines(now, now) == []


def test_lists_of_as_many_objects_are_compared_object_by_object_and_others_as_a_whole() -> None:
    old = [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    at: tuple[str | int, ...] = ("x",)
    assert list(differences(old, [old[0], {"id": 2, "v": 7}], at)) == [(("x", 1, "v"), 2, 7)]
    for other in ([{"id": 0}, *old], old[1:], [], [1, 2], [old[0], 2]):
        assert list(differences(old, other, at)) == [(at, old, other)]
        assert list(differences(other, old, at)) == [(at, other, old)]
    assert list(differences([1, 2], [1, 3], at)) == [(at, [1, 2], [1, 3])]


def test_gates_on_the_same_are_told_apart_by_their_number() -> None:
    old = gates(RATE, {**RATE, "min": 0.9}, {"must_pass": ["b"]}, {"must_pass": ["a"]})
    assert lines(old, gates({"must_pass": ["b"]}, RATE, {**RATE, "min": 0.9}, {"must_pass": ["a"]})) == []
    assert lines(old, gates({**RATE, "min": 0.85}, {**RATE, "min": 0.7}, *old["config"]["gates"][2:])) == [
        "gate loosened: suite.yaml: /gates/pass_rate (2)/min: 0.9 -> 0.7"
    ]
    # a gate takes the number of the one before it
    assert lines(old, gates({**RATE, "min": 0.9}, *old["config"]["gates"][2:])) == [
        'gate removed: suite.yaml: /gates/pass_rate (2): {"metric": "pass_rate", "min": 0.9} -> absent'
    ]
    assert lines(gates({"metric": "accuracy", "depth": 2, "min": 0.5}), gates()) == [
        'gate removed: suite.yaml: /gates/accuracy depth 2: {"metric": "accuracy", "depth": 2, "min": 0.5} -> absent'
    ]


def test_a_whole_number_is_the_same_as_a_decimal_and_no_truth_value() -> None:
    assert same({"a": [0, 1.0]}, {"a": [0.0, 1]})
    assert not same([1], [True])
    assert not same({"a": None}, {})
