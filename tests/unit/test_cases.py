"""Reading cases and suite rules: every mistake is one line with the file, the location and what to do."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import field_validator

from pytest_packbench.analysis.tally import Tally
from pytest_packbench.cases.load import JsonError, check_case, load_cassette, parse_case, parse_json, read_config
from pytest_packbench.model.case import Case, LoadedCase, canonical_sha256
from pytest_packbench.model.errors import CaseError, CassetteError, SuiteError, json_pointer
from pytest_packbench.model.metric import GENERAL_METRICS, Metric
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from tests.cassettes import authored_cassette

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import ExpectedTexts

DATA = Path(__file__).parent / "data"
GOOD: dict[str, Any] = {
    "id": "pos_64_shoe",
    "pack_id": "tariff",
    "case_type": "positive",
    "difficulty": "easy",
    "input": {"input": "a shoe", "options": {"max_iters": 4}, "evidence": []},
    "expected": {
        "preferred_hts": ["6404.11.9020"],
        "allowed_hts": [],
        "must_not_hts": [],
        "expected_accept": True,
        "expected_refusal_category": None,
        "no_savings_expected": False,
        "duty_delta_range": [-0.01, 0.01],
    },
    "notes": {"source": "ruling:N123", "tags": ["chapter_64", "gri_1"]},
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def changed_case(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the good case with other values at JSON pointers."""
    case: Any = copy.deepcopy(GOOD)
    for pointer, value in changes.items():
        *parents, last = [int(step) if step.isdecimal() else step for step in pointer.split("/")[1:]]
        target = case
        for step in parents:
            target = target[step]
        if value == "<removed>":
            del target[last]
        else:
            target[last] = value
    return dict(case)


def loaded(data: object) -> LoadedCase:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return parse_case(raw, TariffCase, source="c.json", stem="pos_64_shoe", pack="tariff")


def rules(folder: Path, text: str) -> SuiteConfig:
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return read_config(folder, {"tariff": TariffSuiteConfig, "toy": SuiteConfig}, source="suite.yaml")


def test_a_case_is_read_with_the_model_of_its_pack() -> None:
    case = loaded(GOOD).case
    assert (case.expected.preferred_hts, case.input.options.max_iters) == (("6404.11.9020",), 4)
    outline = check_case({**GOOD, "expected": 1, "input": [1], "notes": {}}, Case, source="c", stem=None, pack=None)
    assert outline.case.expected == 1


def test_a_mistake_in_a_case_is_one_line(expected: ExpectedTexts) -> None:
    lines = []
    for name, changes in yaml.safe_load((DATA / "case_mistakes.yaml").read_text("utf-8")).items():
        with pytest.raises(CaseError) as caught:
            loaded(changed_case(changes))
        lines.append(f"{name}: {caught.value}\n")
    expected.check("".join(lines))


def test_a_mistake_in_suite_rules_is_one_line(expected: ExpectedTexts, tmp_path: Path) -> None:
    lines = []
    for name, text in yaml.safe_load((DATA / "suite_mistakes.yaml").read_text("utf-8")).items():
        with pytest.raises(SuiteError) as caught:
            rules(tmp_path, text)
        lines.append(f"{name}: {caught.value}\n")
    expected.check("".join(lines))


def test_an_exception_of_the_packs_model_is_an_error_of_the_file() -> None:
    class Fragile(Case):
        @field_validator("expected", mode="before")
        @classmethod
        def divide(cls, value: Any) -> Any:
            return 1 / value["n"]

    with pytest.raises(CaseError) as caught:
        check_case({**GOOD, "expected": {"n": 0}}, Fragile, source="c.json", stem=None, pack=None)
    assert str(caught.value) == (
        "c.json: the pack's Fragile raised ZeroDivisionError: division by zero; "
        "expected the model to accept the file or raise a ValidationError"
    )


def test_what_is_not_json_is_named_with_its_location(expected: ExpectedTexts) -> None:
    texts = yaml.safe_load((DATA / "json_mistakes.yaml").read_text("utf-8"))
    lines = []
    for name, raw in {
        **{name: text.encode("latin-1") for name, text in texts.items()},
        "a hundred thousand levels": b"[" * 100_000,
        "thousands of digits": b"1" * 5000,
    }.items():
        with pytest.raises(CaseError) as caught:
            loaded(raw)
        lines.append(f"{name}: {caught.value}\n")
    expected.check("".join(lines))
    with pytest.raises(JsonError) as without_file:
        parse_json(b"[,]")
    assert str(without_file.value) == "line 1 column 2: not JSON: Expecting value; expected JSON"


def test_hashes_follow_the_meaning_of_a_case() -> None:
    same = b"\xef\xbb\xbf" + json.dumps({"$schema": "x.json", **GOOD}, indent=2).encode()
    other_tags = changed_case({"/notes/tags": []})
    other_input = changed_case({"/input/input": ""})
    hashes = [(case.sha256, case.input_sha256) for case in map(loaded, (GOOD, same, other_tags, other_input))]
    assert hashes[0] == hashes[1]
    assert [len({row[column] for row in hashes}) for column in (0, 1)] == [3, 2]
    assert hashes[0][1] == hashes[2][1]


@given(json_values)
def test_the_canonical_hash_ignores_spacing_and_order(value: Any) -> None:
    def backwards(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: backwards(part[key]) for key in reversed(part)}
        return [backwards(item) for item in part] if isinstance(part, list) else part

    assert canonical_sha256(backwards(value)) == canonical_sha256(value)
    assert parse_json(json.dumps(value, indent=3).encode()) == value


@given(json_values)
def test_any_json_value_is_a_case_or_an_error_of_one_line(value: Any) -> None:
    try:
        check_case(value, TariffCase, source="c", stem=None, pack=None)
    except CaseError as error:
        assert "\n" not in str(error)


@given(st.lists(st.text() | st.integers(min_value=0)))
def test_json_pointers_lead_back_to_their_steps(steps: list[str | int]) -> None:
    parts = json_pointer(steps).split("/")[1:]
    assert [part.replace("~1", "/").replace("~0", "~") for part in parts] == [str(step) for step in steps]


def test_suite_rules_are_read_with_the_model_of_their_pack(tmp_path: Path) -> None:
    text = "{pack: tariff, scored_code: baseline, scoring: {allowed: 0.85}, thresholds: {by_type: {adversarial: 0.9}}}"
    config = rules(tmp_path, text)
    assert isinstance(config, TariffSuiteConfig)
    assert (config.scored_code, config.scoring.allowed) == ("baseline", 0.85)
    assert config.thresholds.by_type == {"adversarial": 0.9}
    assert [gate.metric for gate in config.all_gates()] == ["completeness"]


class Speedy(SuiteConfig):
    metrics: ClassVar[Mapping[str, Metric]] = {
        "fast": Metric(among=lambda result: result.counted, counts=lambda result, _: result.depth == 1, safety=True)
    }


def test_a_gate_may_name_a_metric_of_its_pack_which_replaces_no_general_one() -> None:
    assert Speedy.model_validate({"pack": "toy", "gates": [{"metric": "fast", "min": 1}]}).gates[0].metric == "fast"
    tally = Tally(metrics={"pass_rate": Speedy.metrics["fast"], **Speedy.metrics})
    assert tally.metrics["pass_rate"] == GENERAL_METRICS["pass_rate"]
    assert tally.metrics["fast"] == Speedy.metrics["fast"]


@pytest.mark.parametrize(
    ("version", "shown"), [(True, "true"), (False, "false"), (1.0, "1.0"), ("1", '"1"'), (2, "2"), (None, "null")]
)
def test_a_cassette_of_another_version_is_refused(tmp_path: Path, version: object, shown: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(authored_cassette("a", 1, [], cassette_version=version)), encoding="utf-8")
    with pytest.raises(CassetteError) as caught:
        load_cassette(path, source="f")
    assert str(caught.value) == f"f: /cassette_version: got {shown}; expected 1"
    path.write_text(json.dumps(authored_cassette("a", 1, [])), encoding="utf-8")
    assert load_cassette(path, source="f")[0].case_id == "a"
