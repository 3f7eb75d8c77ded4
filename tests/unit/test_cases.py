"""Reading cases and suite rules: every mistake is one line with file, place, what is wrong, what to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import field_validator

from pytest_packbench.analysis.tally import Tally
from pytest_packbench.cases.load import check_case, parse_case, parse_json, read_config
from pytest_packbench.model.case import Case, canonical_sha256
from pytest_packbench.model.errors import CaseError, SuiteError, json_pointer
from pytest_packbench.model.metric import GENERAL_METRICS, Metric
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

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


def changed_case(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(GOOD))
    change(data)
    return data


def error_of(data: object) -> str:
    with pytest.raises(CaseError) as caught:
        parse_case(json.dumps(data).encode(), TariffCase, source="c.json", stem="pos_64_shoe", pack="tariff")
    return str(caught.value)


def test_a_model_that_breaks_is_said_of_the_file() -> None:
    class Fragile(Case):
        @field_validator("expected", mode="before")
        @classmethod
        def look(cls, value: Any) -> Any:
            return 1 / value["n"]

    data = {**GOOD, "pack_id": "own", "expected": {"n": 0}}
    with pytest.raises(CaseError) as caught:
        parse_case(json.dumps(data).encode(), Fragile, source="c.json", stem="pos_64_shoe", pack="own")
    said = "c.json: the pack's Fragile raised ZeroDivisionError: division by zero; expected the model to accept "
    assert str(caught.value).startswith(said)


def test_the_spec_example_is_read() -> None:
    loaded = parse_case(json.dumps(GOOD).encode(), TariffCase, source="c.json", stem="pos_64_shoe", pack="tariff")
    assert loaded.case.expected.preferred_hts == ("6404.11.9020",)
    assert loaded.case.input.options.max_iters == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda c: c["expected"].update(prefered_hts=[]),
            '/expected/prefered_hts: unknown key "prefered_hts"; did you mean "preferred_hts"?',
        ),
        (
            lambda c: c["expected"].update(expected_refusal_category="null"),
            '/expected/expected_refusal_category: got the word "null"; expected null without quotes',
        ),
        (
            lambda c: c["expected"].update(expected_refusal_category="unsure"),
            "/expected/expected_refusal_category: got \"unsure\"; expected 'insufficient_info', 'ambiguous', 'out_of_scope' or 'missing_evidence'",
        ),
        (
            lambda c: c.update(case_type="positiv"),
            "/case_type: got \"positiv\"; expected 'positive', 'negative', 'adversarial', 'no_savings' or 'savings_possible'",
        ),
        (
            lambda c: c["expected"].update(preferred_hts=[6404119020]),
            "/expected/preferred_hts/0: got 6404119020; expected a string",
        ),
        (
            lambda c: c["expected"].update(must_not_hts=["6"]),
            '/expected/must_not_hts/0: got "6"; expected a tariff code with at least two digits, such as 6404.11.9020',
        ),
        (
            lambda c: c["expected"].update(expected_accept="yes"),
            '/expected/expected_accept: got "yes"; expected true or false',
        ),
        (
            lambda c: c["expected"].update(duty_delta_range=[0.1, -0.1]),
            "/expected/duty_delta_range: got [0.1, -0.1]; expected two numbers in percentage points, the lower one first",
        ),
        (
            lambda c: c["expected"].pop("expected_accept"),
            '/expected/expected_accept: the key "expected_accept" is missing; add it',
        ),
        (
            lambda c: c["notes"].update(source="rulings:1"),
            '/notes/source: got "rulings:1"; expected expert, synthetic, internal or "ruling:<id>"',
        ),
        (lambda c: c.update(id="other"), '/id: got "other"; expected "pos_64_shoe", the name of the file'),
        (lambda c: c.update(pack_id="generic"), '/pack_id: got "generic"; expected "tariff", the pack of this suite'),
        (
            lambda c: c["input"].update(evidence=[{"text": "x"}]),
            '/input/evidence/0/source_id: the key "source_id" is missing; add it',
        ),
        (
            lambda c: c["expected"].update(threshold=1.5),
            "/expected/threshold: got 1.5; expected a number from 0 to 1, such as 0.95",
        ),
        (
            lambda c: c["expected"].update(threshold="0.9"),
            '/expected/threshold: got "0.9"; expected a number',
        ),
        (
            lambda c: c.update(id="mug no 1"),
            '/id: got "mug no 1"; expected letters, digits, _ and -, starting with a letter or digit',
        ),
        (
            lambda c: c["notes"].update(date="1.2.2026"),
            '/notes/date: got "1.2.2026"; expected a date as YYYY-MM-DD',
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(change: Callable[[dict[str, Any]], object], said: str) -> None:
    assert error_of(changed_case(change)) == f"c.json: {said}"


def test_more_mistakes_are_counted_and_placed() -> None:
    text = error_of(changed_case(lambda c: (c.pop("difficulty"), c["notes"].update(tag="x"))))
    assert text == 'c.json: /difficulty: the key "difficulty" is missing; add it (and 1 more: /notes/tag)'


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            b'{"id" 1}',
            "c.json: line 1 column 7: not JSON: Expecting ':' delimiter; expected one JSON object",
        ),
        (b'{"id": "a", "id": "b"}', 'c.json: duplicate key "id" in one object; keep one'),
        (b'{"id": NaN}', "c.json: NaN is not JSON; expected a finite number or null"),
        (b"\xff\xfe", "c.json: byte 0 is not UTF-8; save the file as UTF-8"),
        (b"[1]", "c.json: got [1]; expected an object"),
        (b"[" * 100_000, "c.json: nested too deeply; expected a JSON object of a few levels"),
    ],
)
def test_what_is_not_json_is_said_with_its_place(raw: bytes, said: str) -> None:
    with pytest.raises(CaseError) as caught:
        parse_case(raw, TariffCase, source="c.json", stem=None, pack=None)
    # the words of the standard library differ between versions of Python
    assert str(caught.value).split(": ")[:2] == said.split(": ")[:2]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"a": 1,}', "line 1 column 8: trailing comma; remove the comma before the closing bracket"),
        (b'{"a": [1,\n2 ,\n\n]}', "line 2 column 3: trailing comma; remove the comma before the closing bracket"),
        (b'{"a": 1, "b" 2}', "line 1 column 14: not JSON: Expecting ':' delimiter; expected JSON"),
        (b"[,]", "line 1 column 2: not JSON: Expecting value; expected JSON"),
        (b"a,]", "line 1 column 1: not JSON: Expecting value; expected one JSON object"),
        (b"{} {}", "line 1 column 4: not JSON: Extra data; expected one JSON object"),
        (b"", "line 1 column 1: not JSON: Expecting value; expected one JSON object"),
    ],
)
def test_a_comma_too_many_is_named(raw: bytes, said: str) -> None:
    with pytest.raises(ValueError, match="line") as caught:
        parse_json(raw)
    assert str(caught.value) == said


def test_a_byte_order_mark_and_a_schema_key_are_fine_and_do_not_change_the_hash() -> None:
    plain = check_case(GOOD, TariffCase, source="c", stem=None, pack=None)
    marked = parse_case(
        b"\xef\xbb\xbf" + json.dumps({"$schema": "x.json", **GOOD}).encode(),
        TariffCase,
        source="c",
        stem=None,
        pack=None,
    )
    assert marked.sha256 == plain.sha256
    assert marked.input_sha256 == plain.input_sha256


def test_hashes_follow_meaning() -> None:
    one = check_case(GOOD, TariffCase, source="c", stem=None, pack=None)
    other = check_case(changed_case(lambda c: c["notes"].update(tags=[])), TariffCase, source="c", stem=None, pack=None)
    blank = check_case(
        changed_case(lambda c: c["input"].update(input="")), TariffCase, source="c", stem=None, pack=None
    )
    assert one.sha256 != other.sha256
    assert one.input_sha256 == other.input_sha256 != blank.input_sha256


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_the_canonical_hash_ignores_spacing_and_order(value: Any) -> None:
    def backwards(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: backwards(part[key]) for key in reversed(part)}
        return [backwards(one) for one in part] if isinstance(part, list) else part

    assert canonical_sha256(backwards(value)) == canonical_sha256(value)
    assert parse_json(json.dumps(value, indent=3).encode()) == value


@given(json_values)
def test_no_json_value_breaks_the_reader(value: Any) -> None:
    try:
        check_case(value, TariffCase, source="c", stem=None, pack=None)
    except CaseError as error:
        assert "\n" not in str(error)


@given(st.lists(st.text() | st.integers(min_value=0)))
def test_pointers_can_be_followed_back(steps: list[str | int]) -> None:
    parts = json_pointer(steps).split("/")[1:]
    assert [part.replace("~1", "/").replace("~0", "~") for part in parts] == [str(step) for step in steps]


def rules(tmp_path: Path, text: str) -> SuiteConfig:
    (tmp_path / "suite.yaml").write_text(text, encoding="utf-8")
    return read_config(tmp_path, {"tariff": TariffSuiteConfig, "toy": SuiteConfig}, source="suite.yaml")


def test_suite_rules_are_read_with_the_packs_model(tmp_path: Path) -> None:
    config = rules(
        tmp_path,
        "pack: tariff\nscored_code: baseline\nscoring: {allowed: 0.85}\nthresholds: {by_type: {adversarial: 0.9}}\n",
    )
    assert isinstance(config, TariffSuiteConfig)
    assert (config.scored_code, config.scoring.allowed, config.thresholds.by_type) == (
        "baseline",
        0.85,
        {"adversarial": 0.9},
    )
    assert [gate.metric for gate in config.all_gates()] == ["completeness"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pack: tarif\n", '/pack: unknown pack "tarif"; did you mean "tariff"?'),
        ("description: x\n", '/pack: the key "pack" is missing; expected one of tariff, toy'),
        ("- a\n", '/pack: got ["a"]; expected one of tariff, toy'),
        ("pack: tariff\nscoring: {alowed: 1}\n", '/scoring/alowed: unknown key "alowed"; did you mean "allowed"?'),
        (
            "pack: tariff\nscoring: {gri_sequence: 0.1}\n",
            "/scoring/gri_sequence: got 0.1; expected 0 or less",
        ),
        (
            "pack: toy\ntarget: my_pipeline\n",
            '/target: got "my_pipeline"; expected package.module:attr, http://... or cmd:...',
        ),
        (
            "pack: toy\nbackend: My Own\n",
            '/backend: got "My Own"; expected lower-case letters, digits, _ and -, starting with a letter or digit',
        ),
        (
            "pack: toy\nthresholds: {accept: -0.1}\n",
            "/thresholds/accept: got -0.1; expected a number from 0 to 1, such as 0.95",
        ),
        (
            "pack: toy\nscoring: {}\n",
            (
                '/scoring: unknown key "scoring"; expected one of pack, description, thresholds, gates, target, backend, '
                "model, guards, prices, trials"
            ),
        ),
        (
            "pack: toy\ngates: [{metric: pass_rate}]\n",
            "/gates/0: a gate without a bound; expected min, max or both; or max_ratio_to_baseline; or must_pass",
        ),
        (
            "pack: toy\ngates: [{metric: accuracy, min: 1}]\n",
            "/gates/0: accuracy without depth; expected depth with accuracy",
        ),
        (
            "pack: toy\ngates: [{metric: mean_score, min: 1, confidence: 0.95}]\n",
            "/gates/0: confidence with mean_score; expected confidence with min or max of a rate over cases",
        ),
        (
            "pack: toy\ngates: [{must_pass: [a], min: 1}]\n",
            "/gates/0: must_pass with a metric or a bound; expected must_pass in a separate gate",
        ),
        (
            "pack: toy\ngates: [{must_pass: [a], by: tag}]\n",
            "/gates/0: must_pass with by; expected must_pass in a separate gate",
        ),
        ("pack: toy\ngates: [{min: 1}]\n", "/gates/0: a gate without a metric; expected metric, such as pass_rate"),
        (
            "pack: toy\ngates: [{metric: speed, min: 1}]\n",
            '/gates/0/metric: got "speed"; expected one of the metrics of pack toy: completeness, pass_rate, mean_score, over_refusal_rate, accuracy',
        ),
        (
            "pack: [\n",
            "line 2 column 1: not YAML: expected the node content, but found '<stream end>'; expected keys and values",
        ),
    ],
)
def test_a_mistake_in_suite_rules_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        rules(tmp_path, text)
    assert str(caught.value) == f"suite.yaml: {said}"


def test_the_outline_of_a_case_is_the_same_for_every_pack() -> None:
    loaded = check_case({**GOOD, "expected": 1, "input": [1], "notes": {}}, Case, source="c", stem=None, pack=None)
    assert loaded.case.expected == 1


class Speedy(SuiteConfig):
    metrics: ClassVar[Mapping[str, Metric]] = {
        "fast": Metric(among=lambda result: result.counted, counts=lambda result, _: result.depth == 1, safety=True)
    }


def test_a_gate_names_a_general_metric_or_one_of_its_pack(tmp_path: Path) -> None:
    assert Speedy.model_validate({"pack": "toy", "gates": [{"metric": "fast", "min": 1}]}).gates[0].metric == "fast"
    with pytest.raises(SuiteError) as caught:
        rules(tmp_path, "pack: tariff\ngates: [{metric: pass_rate, min: 1}, {metric: attack_success_rate, max: 0}]\n")
    assert str(caught.value) == (
        'suite.yaml: /gates/1/metric: got "attack_success_rate"; expected one of the metrics of pack tariff: '
        "completeness, pass_rate, mean_score, over_refusal_rate, accuracy"
    )


def test_a_pack_cannot_replace_a_general_metric() -> None:
    tally = Tally(metrics={"pass_rate": Speedy.metrics["fast"], **Speedy.metrics})
    assert (tally.metrics["pass_rate"], tally.metrics["fast"]) == (
        GENERAL_METRICS["pass_rate"],
        Speedy.metrics["fast"],
    )
