"""What a generic `suite.yaml` may say, in which forms, and how its mistakes are told."""

from __future__ import annotations

import builtins
import json
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from pytest_packbench.cases.load import check_case
from pytest_packbench.commands.schema import schema
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import CaseError, SuiteError
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.generic.values import MISSING, compile_path
from tests.unit.generic_suites import case, read, suite

if TYPE_CHECKING:
    from pathlib import Path

FORMS = (
    "criteria: [{exact: /a, weight: 2, name: x}]",
    "criteria: [{exact: {path: /a, weight: 2, name: x}}]",
    "criteria: [{rule: exact, path: /a, weight: 2, name: x}]",
)
SOUND = (
    *FORMS,
    "criteria: [exact]",
    'criteria: [{python: "json:dumps"}]',
    'criteria: [{python: {call: "json:dumps", path: /a}}]',
    "criteria: [{numeric: /a, absolute: 0.1, value: 3, hard_fail: 0.5}]",
    "forbidden: [SECRET, 5, {anywhere: /a, value: [x, 1]}, {one_of: /a, expected: /never}]",
    "refusal: {path: /status, value: refused}\nthresholds: {by_type: {hard: 0.5}}\ninput_schema: {type: object}",
)
UNSOUND = {
    "criteria: [{exat: /a}]": '/criteria/0: no rule is called "exat"; expected "exact"',
    "criteria: [foo]": '/criteria/0: no rule is called "foo"; expected one of: exact, one_of, numeric, contains, regex, '
    "set, json_schema, text, python",
    "criteria: [{rule: numric, path: /a}]": '/criteria/0/rule: no rule is called "numric"; expected "numeric"',
    "criteria: [{path: /a}]": "/criteria/0: no rule is named; expected one of: exact, one_of, numeric, contains, regex, "
    "set, json_schema, text, python",
    "criteria: [{exact: /a, contains: /b}]": "/criteria/0: two rules, exact and contains; expected a criterion of its "
    "own for each",
    "criteria: [3]": "/criteria/0: got 3; expected a rule, such as exact: /answer",
    "criteria: []": "/criteria: got none; expected one criterion or more",
    "criteria: exact": '/criteria: got "exact"; expected a list',
    "criteria: [exact, exact]": '/criteria/1: two criteria are called "exact"; expected a name of its own for one of them',
    "criteria: [{exact: a}]": '/criteria/0/exact: "a" is no path; expected "/a", a JSON pointer, or a JSONPath that '
    "begins with $",
    "criteria: [{rule: exact, path: a}]": '/criteria/0/path: "a" is no path; expected "/a", a JSON pointer, or a JSONPath '
    "that begins with $",
    "criteria: [{exact: {path: a}}]": '/criteria/0/exact/path: "a" is no path; expected "/a", a JSON pointer, or a '
    "JSONPath that begins with $",
    "criteria: [{exact: /a~}]": '/criteria/0/exact: "/a~" has a "~" that stands for nothing; expected ~0 for a tilde, '
    "~1 for a slash",
    'criteria: [{exact: "$.a["}]': '/criteria/0/exact: "$.a[" is no JSONPath: unexpected end of query; expected one by '
    "RFC 9535, such as $.items[*].name",
    "criteria: [{exact: \"$.a[?search(@.b, 'x')]\"}]": "/criteria/0/exact: \"$.a[?search(@.b, 'x')]\" is no JSONPath: "
    "function 'search' is not defined; expected one by RFC 9535, such as $.items[*].name",
    "criteria: [{exact: /a, wieght: 2}]": '/criteria/0/wieght: unknown key "wieght"; expected "weight"',
    "criteria: [{numeric: {path: /a, absolut: 1}}]": '/criteria/0/numeric/absolut: unknown key "absolut"; expected '
    '"absolute"',
    "criteria: [{exact: {path: /a}, weight: 2}]": '/criteria/0: "weight" beside exact with fields of its own; expected '
    "all of them under exact",
    "criteria: [{exact: /a, path: /b}]": '/criteria/0: "path" beside exact: "/a"; expected one of them',
    "criteria: [{exact: /a, weight: 0}]": "/criteria/0/weight: got 0: it decides nothing; expected a weight, or hard_fail",
    "criteria: [{exact: /a, weight: 1.0e+308}, {exact: /b, weight: 1.0e+308}]": "/criteria: the weights add up to more than a "
    "number can hold; expected smaller weights",
    "criteria: [{exact: /a, weight: 0, hard_fail: true}]": "/criteria: no criterion has a weight; expected one at least",
    "criteria: [{exact: /a, hard_fail: 0}]": "/criteria/0/hard_fail: got 0; expected true, false, or the points under "
    "which the case fails, over 0 to 1",
    "criteria: [{exact: /a, value: 1, expected: /b}]": "/criteria/0/value: a value beside expected; expected one of them",
    "criteria: [{one_of: /a, value: x}]": '/criteria/0/value: got "x"; expected a list of one value or more',
    "criteria: [{regex: /a, value: '('}]": '/criteria/0/value: got "("; expected a regular expression that is not empty',
    "criteria: [{json_schema: /a, value: {type: strin}}]": "/criteria/0/value: /type: 'strin' is not valid under any of "
    "the given schemas; expected a JSON Schema (draft 2020-12)",
    "criteria: [{json_schema: /a, value: {patternProperties: {a: {}}}}]": "/criteria/0/value: patternProperties, whose "
    "patterns have no time limit; expected a JSON Schema (draft 2020-12)",
    "criteria: [{exact: /a, value: !!binary aGk=}]": "/criteria/0/value: got b'hi' (bytes); expected a JSON value",
    "criteria: [{regex: /a, timeout: 100}]": "/criteria/0/timeout: got 100; expected 10 or less",
    "criteria: [{python: json}]": '/criteria/0/python: got "json"; expected package.module:attr',
    "criteria: [{python: 'json:dump_it'}]": '/criteria/0/python: "json:dump_it" can\'t be imported: AttributeError: '
    "module 'json' has no attribute 'dump_it'; expected package.module:attr, found from the project's root folder",
    "criteria: [{python: 'os:sep'}]": '/criteria/0/python: "os:sep" is a str; expected a function of result value, '
    "expected value, case input",
    "criteria: [{python: 'asyncio:sleep'}]": '/criteria/0/python: "asyncio:sleep" is async; expected a plain function; '
    "scoring waits for nothing",
    "forbidden: ['']": '/forbidden/0: got ""; expected a text or a number, or a list of these, none empty',
    "forbidden: [{exact: /a}]": "/forbidden/0: forbids what is expected; expected value, or expected with a path of its own",
    "forbidden: [{exact: /a, value: 1, weight: 2}]": '/forbidden/0/weight: "weight" of what is forbidden; expected none: '
    "it always fails the case",
    "forbidden: [{text: /a, value: b}]": '/forbidden/0: the rule "text" can\'t forbid; expected one of: anywhere, exact, '
    "one_of, contains, regex, python",
    "refusal: {pth: /a}": '/refusal/pth: unknown key "pth"; did you mean "path"?',
    "input_schema: {type: strin}": "/input_schema: /type: 'strin' is not valid under any of the given schemas; expected "
    "a JSON Schema (draft 2020-12)",
}


@pytest.mark.parametrize(("text", "said"), UNSOUND.items())
def test_a_mistake_is_told_in_one_line_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"suite.yaml: {said}"


@pytest.mark.parametrize("text", SOUND)
def test_a_sound_suite_is_read_and_is_of_its_schema(text: str) -> None:
    rules = suite(text)
    assert canonical_sha256(rules.model_dump(mode="json"))
    document = {"pack": "generic", **yaml.safe_load(text)}
    jsonschema.Draft202012Validator(schema("suite", "generic")).validate(document)


def test_all_forms_say_the_same() -> None:
    first, *others = [suite(text).model_dump() for text in FORMS]
    assert all(other == first for other in others)
    forms = ("criteria: [exact]", "criteria: [{exact: ''}]", "criteria: [{exact: {}}]")
    assert all(suite(text).model_dump() == suite("").model_dump() for text in forms)


@pytest.mark.parametrize(
    ("text", "module", "extra"),
    [
        ("criteria: [{text: /a}]", "rapidfuzz.distance", "text"),
        ("criteria: [{regex: /a}]", "regex", "generic"),
        ("criteria: [{json_schema: /a}]", "jsonschema", "generic"),
        ('criteria: [{exact: "$.missing_extra[*]"}]', "jsonpath", "generic"),
        ("input_schema: {}", "jsonschema", "generic"),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, text)
    name = module.partition(".")[0]
    assert f"needs the library {name}, which is not installed" in str(caught.value)
    assert str(caught.value).endswith(f'the extra "{extra}": pip install "pytest-packbench[{extra}]"')


def test_a_suite_without_extras_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rapidfuzz", "rapidfuzz.distance", "regex", "jsonschema", "jsonpath"):
        monkeypatch.setitem(sys.modules, name, None)
    suite("criteria: [{exact: /a}, {numeric: /b}, {set: /c}, {contains: /d}, {one_of: /e}]\nforbidden: [x]")


DOCUMENT: dict[str, Any] = {"a": {"b/c": [1, None], "~": 2}, "": 3, "items": [{"n": "x"}, {"n": "y"}]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", DOCUMENT),
        ("/a/b~1c/0", 1),
        ("/a/b~1c/1", None),
        ("/a/~0", 2),
        ("/", 3),
        ("/a/b~1c/2", MISSING),
        ("/a/b~1c/-", MISSING),
        ("/a/b~1c/01", MISSING),
        ("/a/b~1c/-1", MISSING),
        ("/x", MISSING),
        ("/items/0/n/0", MISSING),
        ("$.items[*].n", ["x", "y"]),
        ("$.items[1].n", "y"),
        ("$.items[5].n", MISSING),
        ("$.none[*]", MISSING),
        ("$", DOCUMENT),
    ],
)
def test_paths(path: str, found: Any) -> None:
    assert compile_path(path).find(DOCUMENT) == found


CASES: dict[tuple[str, str], str] = {
    (
        "criteria: [{numeric: /sum}]",
        "{}",
    ): '/expected/sum: nothing stands at /sum, which "numeric /sum" compares with; expected a number',
    (
        "criteria: [{numeric: /sum}]",
        '{"sum": "3"}',
    ): '/expected/sum: got "3", which "numeric /sum" compares with; expected a number',
    (
        'criteria: [{set: "$.x[*]"}]',
        "{}",
    ): '/expected: nothing stands at $.x[*], which "set $.x[*]" compares with; expected a list',
    (
        "criteria: [{json_schema: /s}]",
        '{"s": {"type": 5}}',
    ): '/expected/s: /type: 5 is not valid under any of the given schemas, which "json_schema /s" compares with; expected a JSON Schema (draft 2020-12)',
    ("", '{"refuse": "yes"}'): '/expected/refuse: got "yes"; expected true where a refusal is due, else false',
    ("", '{"refuse": true, "category": 5}'): "/expected/category: got 5; expected the kind of refusal, a text",
    (
        "forbidden: [{contains: /a, expected: /never}]",
        '{"never": []}',
    ): '/expected/never: got [], which "contains /a" compares with; expected a text, a value or a list of these, none empty',
    (
        "expected_schema: {properties: {a: {type: integer}}}",
        '{"a": "x"}',
    ): "/expected/a: 'x' is not of type 'integer'; expected what expected_schema of suite.yaml asks for",
    (
        "input_schema: {required: [text]}",
        "{}",
    ): "/input: 'text' is a required property; expected what input_schema of suite.yaml asks for",
}


@pytest.mark.parametrize(("rules_and_expected", "said"), CASES.items())
def test_a_case_has_to_bring_what_is_compared_with(rules_and_expected: tuple[str, str], said: str) -> None:
    text, expected = rules_and_expected
    model = GenericPack().for_suite(suite(text)).case_model
    with pytest.raises(CaseError) as caught:
        check_case(case(json.loads(expected)), model, source="a.json", stem="a", pack="generic")
    assert str(caught.value) == f"a.json: {said}"


def test_a_case_that_expects_a_refusal_has_nothing_to_compare_with() -> None:
    model = GenericPack().for_suite(suite("criteria: [{numeric: /sum}]")).case_model
    check_case(case({"refuse": True}), model, source="a.json", stem="a", pack="generic")


def test_the_function_of_a_criterion_is_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    plain = builtins.__import__

    def watched(name: str, *arguments: Any, **more: Any) -> Any:
        imported.append(name)
        return plain(name, *arguments, **more)

    (tmp_path / "my_points.py").write_text("def points(value, expected, given): return 0.5\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    rules = suite('criteria: [{python: "my_points:points"}]')
    check = rules.plan.criteria[0]
    monkeypatch.setattr(builtins, "__import__", watched)
    assert check.rule.grade(1, 1, None).points == 0.5
    assert imported == []


def test_a_suite_is_made_ready_once() -> None:
    rules = suite("criteria: [{json_schema: /a, value: {type: string}}, {regex: /b}]")
    pack = GenericPack()
    assert pack.for_suite(rules) is pack.for_suite(rules)
    assert pack.for_suite(rules).for_suite(rules) is pack.for_suite(rules)
    assert pack.for_suite(suite("criteria: [exact]")) is not pack.for_suite(rules)
    assert rules.plan is rules.plan
    assert pack.for_suite(rules).case_model is rules.case_model
