"""A pack in its smallest form: what the package makes of four attributes and `terms`, and of what a pack may add."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import jsonschema
import pytest
from pydantic import ValidationInfo, field_validator

from pytest_packbench import (
    Agreement,
    Answer,
    Breakdown,
    Case,
    Comparison,
    Fraction,
    Judges,
    Metric,
    Metrics,
    Pack,
    RecordFacts,
    ResultError,
    RoleModel,
    StrictModel,
    SuiteConfig,
    Term,
    Text,
    Tools,
    Unscored,
)
from pytest_packbench.analysis.conclusion import conclude
from pytest_packbench.commands import main
from pytest_packbench.commands.validate import schema
from pytest_packbench.model.pack import names_checks, problem_of, record_facts
from pytest_packbench.model.report import BaselineLookup
from pytest_packbench.packs.registry import builtin
from pytest_packbench.testing import case, score
from tests.unit.run_builders import case_result, run

if TYPE_CHECKING:
    from collections.abc import Iterator


class Part(StrictModel):
    name: Text
    grams: int = 0


class Parcel(Answer):
    zone: Text | None = None
    part: Part | None = None
    refusal: Text | None = None
    down: bool = False
    unit: Text | None = None

    @field_validator("unit")
    @classmethod
    def _known(cls, unit: str, info: ValidationInfo) -> str:
        rules: Any = info.context
        if unit not in rules.units:
            raise ValueError(f"expected one of {', '.join(rules.units)}")
        return unit

    @property
    def failure(self) -> Breakdown | None:
        return Breakdown(kind="timeout", message="after 5 s") if self.down else None


class OwnCase(Case):
    @property
    def own_threshold(self) -> float | None:
        threshold: float | None = self.input.get("threshold")
        return threshold


class Rules(SuiteConfig):
    units: tuple[str, ...] = ("g", "kg")
    least: Fraction = 0.0


class ParcelPack(Pack):
    name = "parcels"
    version = "1"
    case_model = OwnCase
    answer_model = Parcel
    suite_model = Rules

    def terms(self, case: OwnCase, answer: Parcel, rules: Rules) -> Iterator[Any]:
        for each in case.expected["terms"]:
            if each in ["vacuous", "passed"]:
                raise Unscored(each, "nothing was seen", kind="unseen")
            yield each if isinstance(each, str) else Term(**each) if "name" in each else Agreement(**each)

    def expects_refusal(self, case: OwnCase) -> bool:
        return bool(case.expected.get("refuse"))


def scored(terms: list[Any], answer: Any = None, *, rules: dict[str, Any] | None = None, **fields: Any) -> Any:
    expected = {"terms": terms, **fields.pop("expected", {})}
    return score(ParcelPack(), case("a", expected=expected, **fields), answer or {"zone": "x"}, rules=rules)


def add(value: float, name: str = "a") -> dict[str, Any]:
    return {"name": name, "value": value}


ZERO = {"name": "z", "effect": "zero"}
SCORES: list[tuple[list[Any], float, str, int]] = [
    ([add(0.6), add(0.4, "b")], 1.0, "passed", 2),
    ([add(0.5)], 0.5, "failed", 1),
    ([add(0.1), add(0.2, "b"), add(0.5, "c")], 0.8, "passed", 3),
    # more than 1, and less than 0, are brought there by a term of their own
    ([add(1.0), add(0.05, "b")], 1.0, "passed", 3),
    ([add(-0.1)], 0.0, "failed", 2),
    # a hard fail is exactly 0, whatever else there is
    ([add(1.0), ZERO], 0.0, "failed", 2),
    ([ZERO, add(1.0), add(1.0, "b")], 0.0, "failed", 3),
    ([add(1.0), {"name": "n", "effect": "note", "value": 0.0}], 1.0, "passed", 2),
    ([], 0.0, "failed", 0),
]


@pytest.mark.parametrize(("terms", "points", "verdict", "count"), SCORES)
def test_terms_come_to_a_score_from_0_to_1(terms: list[Any], points: float, verdict: str, count: int) -> None:
    result = scored(terms)
    assert (result.score, result.verdict, len(result.terms)) == (points, verdict, count)
    assert result.score == pytest.approx(0 if ZERO in terms else sum(term.value for term in result.terms))


THRESHOLDS: list[tuple[dict[str, Any], float]] = [
    ({}, 0.8),
    ({"expected": {"refuse": True}}, 0.9),
    ({"case_type": "severe"}, 0.95),
    ({"case_type": "severe", "input": {"threshold": 0.3}}, 0.3),
]


@pytest.mark.parametrize(("fields", "threshold"), THRESHOLDS)
def test_the_threshold_is_that_of_the_case_its_type_or_its_kind(fields: dict[str, Any], threshold: float) -> None:
    rules = {"thresholds": {"by_type": {"severe": 0.95}}}
    assert scored([add(0.5)], rules=rules, **fields).threshold == threshold
    assert scored([add(threshold)], rules=rules, **fields).passed
    assert not scored([add(threshold - 0.01)], rules=rules, **fields).passed
    # of an answer that can't be read as well
    assert scored([], {"zon": "x"}, rules=rules, **fields).threshold == threshold


UNREAD: list[tuple[Any, str]] = [
    ({"zon": "x"}, 'result/zon: unknown key "zon"; did you mean "zone"?'),
    ({"zone": 5}, "result/zone: got 5; expected a string"),
    ({"zone": "x", "part": {"name": "y", "gram": 1}}, 'result/part/gram: unknown key "gram"; did you mean "grams"?'),
    ({"part": {}}, 'result/part/name: the key "name" is missing; add it'),
    ([], "result: got []; expected an object"),
    (None, "result: got null; expected an object"),
    ({"unit": "lb"}, 'result/unit: got "lb"; expected one of g, kg'),
]


@pytest.mark.parametrize(("answer", "line"), UNREAD)
def test_an_answer_of_another_form_is_0_and_one_line_says_where(answer: Any, line: str) -> None:
    bound = ParcelPack().for_suite(Rules(pack="parcels"))
    with pytest.raises(ResultError) as caught:
        bound.read(answer)
    assert str(caught.value) == line
    result = score(ParcelPack(), case("a", expected={"terms": [add(1.0)]}), answer)
    # the unknown keys are listed beside it
    names = ["unreadable_answer", *["unknown_key"] * ("unknown key" in line)]
    assert (result.score, result.verdict, [term.name for term in result.terms]) == (0, "failed", names)


def test_an_answer_is_read_by_the_rules_of_its_suite_and_tells_what_reports_need() -> None:
    pack = ParcelPack()
    bound = pack.for_suite(Rules(pack="parcels", units=("lb",)))
    assert bound.for_suite(bound.rules) is bound is pack.for_suite(bound.rules)
    assert bound is not pack.for_suite(Rules(pack="parcels", units=("lb",)))
    outcome = bound.read({"unit": "lb"})
    assert (outcome.answer, outcome.refused, outcome.breakdown) == ('{"unit": "lb"}', False, None)
    assert bound.read({"refusal": "no"}).refused
    down = bound.read({"down": True}).breakdown
    assert down is not None
    assert down.kind == "timeout"
    assert scored([add(1.0)], {"down": True}).verdict == "error"


def test_a_pack_says_how_deeply_an_answer_agrees_or_that_nothing_is_shown() -> None:
    found = scored([{"level": "chapter", "depth": 2}, add(1.0)])
    assert (found.match_level, found.match_depth, found.score) == ("chapter", 2, 1.0)
    unseen = scored([add(1.0), "vacuous"])
    assert (unseen.score, unseen.verdict, unseen.kind, unseen.message) == (
        None,
        "vacuous",
        "unseen",
        "nothing was seen",
    )
    with pytest.raises(ValueError, match="got the verdict 'passed'; expected one of vacuous, known_hole, error"):
        scored(["passed"])
    with pytest.raises(TypeError, match=r"terms\(\) yielded 'word', expected a Term or an Agreement"):
        scored(["word"])


class Told(ParcelPack):
    def facts(self, case: OwnCase, answer: Parcel | None, terms: Any) -> RecordFacts:
        if answer is None:
            return RecordFacts(labels=(("x", None),))
        rows = [Comparison(what="zone", expected="y", actual=str(answer.zone))] if answer.zone else []
        return RecordFacts(extra={"terms": len(terms)}, compared=rows)


def test_facts_are_those_of_the_pack_and_rows_its_own_or_decision_and_answer() -> None:
    bound = Told().for_suite(Rules(pack="parcels"))
    loaded = OwnCase.model_validate(case("a", pack_id="parcels", expected={"terms": [add(1.0), ZERO], "refuse": True}))
    outcome = bound.read({"zone": "x"})
    facts = record_facts(bound, loaded, outcome, bound.score(loaded, outcome, bound.rules))
    assert (facts.extra, facts.expected, facts.agent_decision) == ({"terms": 2}, "refuse", "comply_safe")
    assert [row.actual for row in bound.explain(loaded, outcome, ())] == ["x"]
    unread = record_facts(bound, loaded, None, bound.unread(loaded, "unreadable_answer", "no", bound.rules))
    assert (unread.labels, unread.attack_category) == ((("x", None),), "plain")
    rows = bound.explain(loaded, bound.read({"refusal": "no"}), ())
    decision, said = ((row.what, row.expected, row.actual) for row in rows)
    assert decision == ("decision", "refusal", "refusal")
    assert said[2] == '{"refusal": "no"}'
    assert "value: 1.0" in said[1]


class Checked(Parcel):
    @property
    def decided_by(self) -> str:
        return self.zone or ""


class World(SimpleNamespace):
    guards: ClassVar[dict[str, Any]] = {"lock": object}

    def adapt(self, candidate: object) -> object:
        return "adapted" if candidate == "odd" else candidate


class More(ParcelPack):
    answer_model = Checked
    metrics = Metrics()

    def world(self, rules: Rules, agent: str) -> Any:
        return World(agent=agent)

    def judges(self, rules: Rules) -> Judges:
        return Judges(("strict",), {"judge": RoleModel("openai", "j")})


def test_what_a_pack_adds_is_found_where_it_is_asked_for() -> None:
    rules = Rules(pack="parcels")
    plain, more = ParcelPack().for_suite(rules), More().for_suite(rules)
    assert [names_checks(pack) for pack in (plain, more)] == [False, True]
    assert [pack.decided_by({"zone": "gate"}) for pack in (plain, more)] == ["", "gate"]
    assert more.decided_by({"zon": "gate"}) == ""
    assert [pack.judges(rules).names for pack in (plain, more)] == [(), ("strict",)]
    assert [[*pack.judges(rules).roles] for pack in (plain, more)] == [[], ["judge"]]
    assert [[*pack.guards()] for pack in (plain, more)] == [[], ["lock"]]
    assert [pack.adapt_target("odd") for pack in (plain, more)] == ["odd", "adapted"]
    assert [type(pack.tools()) for pack in (plain, more)] == [Tools, Tools]
    assert (rules.accepts_more, rules.unusable, [*rules.unused_rules([1])]) == (False, "", [])
    assert OwnCase.model_validate(case("a", pack_id="parcels")).test_id("s") == "s:plain:a"


class Counted(SuiteConfig):
    metrics = {  # noqa: RUF012 - of the class
        "local_rate": Metric(
            among=lambda result: result.counted,
            counts=lambda result, _: result.level == "local",
            definition="Local parcels, among all.",
        ),
        "silent_rate": Metric(among=lambda result: result.counted, counts=lambda *_: True),
    }


@pytest.mark.parametrize(("backend", "has_interval"), [("openai", True), ("stub", False)])
def test_a_metric_with_a_definition_is_a_figure_and_can_be_bounded(backend: str, *, has_interval: bool) -> None:
    rules = Counted.model_validate({"pack": "parcels", "gates": [{"metric": "local_rate", "min": 0.9}]})
    results = [
        case_result(name, match_level=level, llm_backend=backend) for name, level in (("a", "local"), ("b", "far"))
    ]
    conclusion = conclude(run(), [*results, case_result("c", verdict="error")], rules, (), BaselineLookup())
    ((name, count, total, interval),) = (
        (each.name, each.count, each.total, each.interval) for each in conclusion.figures
    )
    assert (name, count, total, interval is not None) == ("local rate", 1, 2, has_interval)
    assert [gate.passed for gate in conclusion.gates] == [False, False]


def test_the_schema_of_a_result_is_that_of_the_answer_model(capsys: pytest.CaptureFixture[str]) -> None:
    parcel, anything = schema("result", [ParcelPack()]), schema("result", [builtin()["generic"]])
    for answer, fits in ({"zone": "x"}, (True, True)), ({"zon": "x"}, (False, True)), (None, (False, False)):
        assert tuple(jsonschema.Draft202012Validator(each).is_valid(answer) for each in (parcel, anything)) == fits
    assert main(["schema", "result", "--pack", "generic"]) == 0
    assert json.loads(capsys.readouterr().out) == anything


class Earlier(Pack):
    name, version = "old", "1"

    def read(self, result: object) -> Any:
        return result

    def figures(self, records: Any) -> Any:
        return ()


class Nameless(Pack):
    def terms(self, case: Any, answer: Any, rules: Any) -> Any:
        return ()


CHANGES = "read is now answer_model; figures is now metrics, an object of Metrics; see docs/packs.md"
PROBLEMS: list[tuple[Pack, str]] = [
    (ParcelPack(), ""),
    (Earlier(), f"Earlier is a pack of an earlier version: {CHANGES}"),
    (Nameless(), "Nameless lacks name, version, answer_model; see docs/packs.md"),
    *(
        (type("Odd", (ParcelPack,), attributes)(), f"Odd.{line}")
        for attributes, line in (
            ({"name": None}, "name is None, expected a text, such as name = 'parcels'"),
            ({"version": 1}, "version is 1, expected a text, such as version = '1'"),
            ({"case_model": dict}, "case_model is <class 'dict'>, expected a subclass of Case"),
            ({"answer_model": "Quote"}, "answer_model is 'Quote', expected a subclass of Answer"),
            ({"suite_model": dict}, "suite_model is <class 'dict'>, expected a subclass of SuiteConfig"),
            ({"metrics": {}}, "metrics is {}, expected an object of Metrics"),
            ({"metrics": Metrics}, f"metrics is {Metrics!r}, expected Metrics()"),
        )
    ),
]


@pytest.mark.parametrize(("pack", "line"), PROBLEMS)
def test_what_a_pack_has_to_change_is_one_line(pack: Pack, line: str) -> None:
    assert problem_of(pack) == line


def test_the_packs_that_come_with_the_package_have_no_problem() -> None:
    assert {name: problem_of(pack) for name, pack in builtin().items()} == dict.fromkeys(builtin(), "")
