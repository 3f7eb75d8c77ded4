"""What a generic `suite.yaml` may contain, in which forms, and the errors of its mistakes."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from pytest_packbench.api import load_suite
from pytest_packbench.commands.schema import schema
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import CaseError, SuiteError
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.generic.values import MISSING, compile_path
from tests.unit.generic_suites import load, suite

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

MISTAKES = (Path(__file__).parent / "data" / "generic_mistakes.txt").read_text("utf-8").splitlines()[1:]
FORMS = (
    "criteria: [{exact: /a, weight: 2, name: x}]",
    "criteria: [{exact: {path: /a, weight: 2, name: x}}]",
    "criteria: [{rule: exact, path: /a, weight: 2, name: x}]",
)
VALID = (
    *FORMS,
    "criteria: [exact]",
    'criteria: [{python: "json:dumps"}]',
    'criteria: [{python: {call: "json:dumps", path: /a}}]',
    "criteria: [{numeric: /a, absolute: 0.1, value: 3, hard_fail: 0.5}]",
    "criteria: [{exact: /a, weight: 0, hard_fail: 1}, {regex: /b, timeout: 10}]",
    "forbidden: [SECRET, 5, {anywhere: /a, value: [x, 1]}, {one_of: /a, expected: /never}]",
    "refusal: {path: /status, value: refused}\nthresholds: {by_type: {hard: 0.5}}\ninput_schema: {type: object}",
)


def suite_error(folder: Path, text: str) -> str:
    (folder / "suite.yaml").write_text(f"pack: generic\n{text}", encoding="utf-8")
    with pytest.raises(SuiteError) as caught:
        load_suite(folder)
    return str(caught.value).removeprefix(f"{folder / 'suite.yaml'}: ")


def test_each_mistake_is_one_line_with_its_location(tmp_path: Path, expected: ExpectedTexts) -> None:
    errors = [(text, suite_error(tmp_path, text)) for text in MISTAKES]
    assert not [error for _, error in errors if "\n" in error]
    expected.check("".join(f"{text}\n    {error}\n" for text, error in errors))


@pytest.mark.parametrize("text", VALID)
def test_a_valid_suite_is_valid_under_its_schema(text: str) -> None:
    assert canonical_sha256(suite(text).model_dump(mode="json"))
    jsonschema.Draft202012Validator(schema("suite", "generic")).validate({"pack": "generic", **yaml.safe_load(text)})


@pytest.mark.parametrize(
    "forms", [FORMS, ("", "criteria: [exact]", "criteria: [{exact: ''}]", "criteria: [{exact: {}}]")]
)
def test_all_forms_mean_the_same(forms: tuple[str, ...]) -> None:
    first, *others = [suite(text).model_dump() for text in forms]
    assert all(other == first for other in others)


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
    error = suite_error(tmp_path, text)
    assert f"requires the library {module.partition('.')[0]}, which is not installed" in error
    assert error.endswith(f'the extra "{extra}": pip install "pytest-packbench[{extra}]"')


def test_a_suite_without_extras_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rapidfuzz", "rapidfuzz.distance", "regex", "jsonschema", "jsonpath"):
        monkeypatch.setitem(sys.modules, name, None)
    suite("criteria: [{exact: /a}, {numeric: /b}, {set: /c}, {contains: /d}, {one_of: /e}]\nforbidden: [x]")


DOCUMENT: dict[str, Any] = {"a": {"b/c": [1, None], "~": 2}, "": 3, "items": [{"n": "x"}, {"n": "y"}]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *(("", DOCUMENT), ("/a/b~1c/0", 1), ("/a/b~1c/1", None), ("/a/~0", 2), ("/", 3)),
        *((f"/a/b~1c/{index}", MISSING) for index in ("2", "-", "01", "-1")),
        *((path, MISSING) for path in ("/x", "/items/0/n/0", "$.items[5].n", "$.none[*]")),
        *(("$.items[*].n", ["x", "y"]), ("$.items[1].n", "y"), ("$", DOCUMENT)),
    ],
)
def test_the_value_at_a_path(path: str, value: Any) -> None:
    assert compile_path(path).find(DOCUMENT) == value


CASES: tuple[tuple[str, Any], ...] = (
    ("criteria: [{numeric: /sum}]", {}),
    ("criteria: [{numeric: /sum}]", {"sum": "3"}),
    ('criteria: [{set: "$.x[*]"}]', {}),
    ("criteria: [{json_schema: /s}]", {"s": {"type": 5}}),
    ("", {"refuse": "yes"}),
    ("", {"refuse": True, "category": 5}),
    ("forbidden: [{contains: /a, expected: /never}]", {"never": []}),
    ("expected_schema: {properties: {a: {type: integer}}}", {"a": "x"}),
    ("input_schema: {required: [text]}", {}),
)


def test_a_case_has_to_have_what_is_compared_with(expected: ExpectedTexts) -> None:
    lines = []
    for text, plain in CASES:
        with pytest.raises(CaseError) as caught:
            load(suite(text), plain)
        lines.append(f"{text or 'no rules'} and {json.dumps(plain)}\n    {caught.value}\n")
    expected.check("".join(lines))


def test_a_case_that_expects_a_refusal_needs_no_other_value() -> None:
    assert load(suite("criteria: [{numeric: /sum}]"), {"refuse": True, "category": None})


def test_the_function_of_a_criterion_is_imported_with_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_points.py").write_text("def points(value, expected, given): return 0.5\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    criterion = suite('criteria: [{python: "my_points:points"}]').criteria[0]
    imported: list[str] = []
    original = builtins.__import__

    def spy(name: str, *arguments: Any, **more: Any) -> Any:
        imported.append(name)
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", spy)
    assert (criterion.grade(1, 1, None).points, imported) == (0.5, [])


def test_a_pack_is_prepared_once_per_suite() -> None:
    rules = suite("criteria: [{json_schema: /a, value: {type: string}}, {regex: /b}]")
    pack = GenericPack()
    prepared = pack.for_suite(rules)
    assert prepared is pack.for_suite(rules) is prepared.for_suite(rules)
    assert pack.for_suite(suite("criteria: [exact]")) is not prepared
    assert prepared.case_model is rules.case_model
