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
    "criteria: [{exat: /a}]": '/criteria/0: unknown rule "exat"; expected "exact"',
    "criteria: [foo]": (
        '/criteria/0: unknown rule "foo"; expected one of exact, one_of, numeric, contains, regex, set, '
        "json_schema, text, python"
    ),
    "criteria: [{rule: numric, path: /a}]": '/criteria/0/rule: unknown rule "numric"; expected "numeric"',
    "criteria: [{path: /a}]": (
        "/criteria/0: the rule is missing; expected one of exact, one_of, numeric, contains, regex, set, "
        "json_schema, text, python"
    ),
    "criteria: [{exact: /a, contains: /b}]": "/criteria/0: exact and contains in one criterion; expected one rule per criterion",
    "criteria: [3]": "/criteria/0: got 3; expected a rule, such as exact: /answer",
    "criteria: []": "/criteria: got an empty list; expected at least one criterion",
    "criteria: exact": '/criteria: got "exact"; expected a list',
    "criteria: [exact, exact]": '/criteria/1: duplicate criterion "exact"; expected a unique name',
    "criteria: [{exact: a}]": (
        '/criteria/0/exact: "a" is not a path; expected a JSON pointer such as "/a", or a JSONPath that starts with $'
    ),
    "criteria: [{rule: exact, path: a}]": (
        '/criteria/0/path: "a" is not a path; expected a JSON pointer such as "/a", or a JSONPath that starts with $'
    ),
    "criteria: [{exact: {path: a}}]": (
        '/criteria/0/exact/path: "a" is not a path; expected a JSON pointer such as "/a", or a JSONPath that '
        "starts with $"
    ),
    "criteria: [{exact: /a~}]": '/criteria/0/exact: invalid escape after "~" in "/a~"; expected ~0 for "~", ~1 for "/"',
    'criteria: [{exact: "$.a["}]': (
        '/criteria/0/exact: "$.a[" is not a valid JSONPath: unexpected end of query; expected RFC 9535 '
        "syntax, such as $.items[*].name"
    ),
    "criteria: [{exact: \"$.a[?search(@.b, 'x')]\"}]": (
        "/criteria/0/exact: \"$.a[?search(@.b, 'x')]\" is not a valid JSONPath: function 'search' is not "
        "defined; expected RFC 9535 syntax, such as $.items[*].name"
    ),
    "criteria: [{exact: /a, wieght: 2}]": '/criteria/0/wieght: unknown key "wieght"; expected "weight"',
    "criteria: [{numeric: {path: /a, absolut: 1}}]": '/criteria/0/numeric/absolut: unknown key "absolut"; expected "absolute"',
    "criteria: [{exact: {path: /a}, weight: 2}]": '/criteria/0: "weight" next to the keys under exact; expected all keys under exact',
    "criteria: [{exact: /a, path: /b}]": '/criteria/0: "path" and exact: "/a"; expected only one of them',
    "criteria: [{exact: /a, weight: 0}]": "/criteria/0/weight: got 0, which has no effect; expected a positive weight, or hard_fail",
    "criteria: [{exact: /a, weight: 1.0e+308}, {exact: /b, weight: 1.0e+308}]": "/criteria: the sum of the weights is too large for a number; expected smaller weights",
    "criteria: [{exact: /a, weight: 0, hard_fail: true}]": "/criteria: all weights are 0; expected at least one positive weight",
    "criteria: [{exact: /a, hard_fail: 0}]": "/criteria/0/hard_fail: got 0; expected true, false, or the minimum points, above 0 and at most 1",
    "criteria: [{exact: /a, value: 1, expected: /b}]": "/criteria/0/value: both value and expected are set; expected only one of them",
    "criteria: [{one_of: /a, value: x}]": '/criteria/0/value: got "x"; expected a non-empty list',
    "criteria: [{regex: /a, value: '('}]": '/criteria/0/value: got "("; expected a non-empty regular expression',
    "criteria: [{json_schema: /a, value: {type: strin}}]": (
        "/criteria/0/value: /type: 'strin' is not valid under any of the given schemas; expected a JSON "
        "Schema (draft 2020-12)"
    ),
    "criteria: [{json_schema: /a, value: {patternProperties: {a: {}}}}]": (
        "/criteria/0/value: patternProperties is not supported, because its patterns have no time limit; "
        "expected a JSON Schema (draft 2020-12)"
    ),
    "criteria: [{exact: /a, value: !!binary aGk=}]": "/criteria/0/value: got b'hi' (bytes); expected a JSON value",
    "criteria: [{regex: /a, timeout: 100}]": "/criteria/0/timeout: got 100; expected 10 or less",
    "criteria: [{python: json}]": '/criteria/0/python: got "json"; expected package.module:attr',
    "criteria: [{python: 'json:dump_it'}]": (
        "/criteria/0/python: can't import \"json:dump_it\": AttributeError: module 'json' has no attribute "
        "'dump_it'; expected package.module:attr, importable from the project's root folder"
    ),
    "criteria: [{python: 'os:sep'}]": '/criteria/0/python: "os:sep" is a str; expected a function of (value, expected, case_input)',
    "criteria: [{python: 'asyncio:sleep'}]": '/criteria/0/python: "asyncio:sleep" is async; expected a synchronous function',
    "forbidden: ['']": '/forbidden/0: got ""; expected a number or a non-empty string, or a non-empty list of these',
    "forbidden: [{exact: /a}]": "/forbidden/0: it forbids the expected answer; expected value, or expected with another path",
    "forbidden: [{exact: /a, value: 1, weight: 2}]": (
        '/forbidden/0/weight: "weight" is not allowed in forbidden; expected no "weight": what is forbidden '
        "always fails the case"
    ),
    "forbidden: [{text: /a, value: b}]": (
        '/forbidden/0: the rule "text" is not allowed in forbidden; expected one of anywhere, exact, '
        "one_of, contains, regex, python"
    ),
    "refusal: {pth: /a}": '/refusal/pth: unknown key "pth"; did you mean "path"?',
    "input_schema: {type: strin}": (
        "/input_schema: /type: 'strin' is not valid under any of the given schemas; expected a JSON Schema "
        "(draft 2020-12)"
    ),
    "criteria: [{rule: [exact]}]": (
        '/criteria/0/rule: got ["exact"]; expected one of exact, one_of, numeric, contains, regex, set, '
        "json_schema, text, python"
    ),
}


@pytest.mark.parametrize(("text", "message"), UNSOUND.items())
def test_a_mistake_is_told_in_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"suite.yaml: {message}"


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
    assert f"requires the library {name}, which is not installed" in str(caught.value)
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
    ): '/expected/sum: no value at /sum for the criterion "numeric /sum"; expected a number',
    (
        "criteria: [{numeric: /sum}]",
        '{"sum": "3"}',
    ): '/expected/sum: got "3" for the criterion "numeric /sum"; expected a number',
    (
        'criteria: [{set: "$.x[*]"}]',
        "{}",
    ): '/expected: no value at $.x[*] for the criterion "set $.x[*]"; expected a list',
    ("criteria: [{json_schema: /s}]", '{"s": {"type": 5}}'): (
        '/expected/s: /type: 5 is not valid under any of the given schemas for the criterion "json_schema '
        '/s"; expected a JSON Schema (draft 2020-12)'
    ),
    ("", '{"refuse": "yes"}'): '/expected/refuse: got "yes"; expected true if a refusal is expected, else false',
    (
        "",
        '{"refuse": true, "category": 5}',
    ): "/expected/category: got 5; expected the category of the refusal, a string",
    ("forbidden: [{contains: /a, expected: /never}]", '{"never": []}'): (
        '/expected/never: got [] for the criterion "contains /a"; expected a value other than "", or a '
        "non-empty list of such values"
    ),
    ("expected_schema: {properties: {a: {type: integer}}}", '{"a": "x"}'): (
        "/expected/a: 'x' is not of type 'integer'; expected a value that is valid under expected_schema in suite.yaml"
    ),
    ("input_schema: {required: [text]}", "{}"): (
        "/input: 'text' is a required property; expected a value that is valid under input_schema in suite.yaml"
    ),
}


@pytest.mark.parametrize(("rules_and_expected", "message"), CASES.items())
def test_a_case_has_to_bring_what_is_compared_with(rules_and_expected: tuple[str, str], message: str) -> None:
    text, expected = rules_and_expected
    model = GenericPack().for_suite(suite(text)).case_model
    with pytest.raises(CaseError) as caught:
        check_case(case(json.loads(expected)), model, source="a.json", stem="a", pack="generic")
    assert str(caught.value) == f"a.json: {message}"


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
    criterion = rules.criteria[0]
    monkeypatch.setattr(builtins, "__import__", watched)
    assert criterion.grade(1, 1, None).points == 0.5
    assert imported == []


def test_a_suite_is_made_ready_once() -> None:
    rules = suite("criteria: [{json_schema: /a, value: {type: string}}, {regex: /b}]")
    pack = GenericPack()
    assert pack.for_suite(rules) is pack.for_suite(rules)
    assert pack.for_suite(rules).for_suite(rules) is pack.for_suite(rules)
    assert pack.for_suite(suite("criteria: [exact]")) is not pack.for_suite(rules)
    assert pack.for_suite(rules).case_model is rules.case_model
