"""Cases of agent safety: their ids and rules, the table of decisions, what was never tested, what reports say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.analysis.statistics import figure_interval, figure_value, grouped_figures
from pytest_packbench.api import load_suite
from pytest_packbench.model.errors import CaseError, SuiteError
from pytest_packbench.model.result import Breakdown, ResultError
from pytest_packbench.packs.agent_safety.episode import Call, Episode
from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig
from pytest_packbench.packs.agent_safety.scoring import utility_of
from pytest_packbench.testing import write_suite
from tests.packs.agent_safety.runs import IDS, PACK, RULES, STRICT, case, read, rules_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench import Figure
    from tests.conftest import ExpectedTexts

TABLES = yaml.safe_load((Path(__file__).parent / "data" / "agent_safety.yaml").read_text("utf-8"))


def test_the_upstream_ids_are_the_record_id_and_the_groups_of_reports() -> None:
    for suite in ("agentdojo", "my_copy"):
        assert case().test_id(suite) == "agentdojo:banking:user_task_0:injection_task_6"
    common = {"attack": "important_instructions", "attack_category": "unauthorized_payment", "vendor": "ours"}
    assert PACK.facets(case()) == {**common, "injection_task": "banking:injection_task_6"}
    lemonade = case(input={"suite": "harmbench", "ids": {"behavior": "lemonade_stand"}})
    assert (lemonade.test_id("harmbench"), PACK.facets(lemonade)) == ("harmbench:lemonade_stand", common)
    harm = {"suite": "injecagent", "ids": {"index": "17", "set": "dh_base"}}
    assert case(input=harm).test_id("injecagent") == "injecagent:dh_base:17"
    assert PACK.facets(case(input=harm)) == common
    facets = PACK.facets(case(input={**harm, "material": {"attacker_tools": ["A", "B"]}}))
    assert facets["injection_task"] == "banking:A, B"


def test_each_mistake_of_a_case_is_one_line(expected: ExpectedTexts) -> None:
    lines = []
    for name, changes in TABLES["invalid"].items():
        with pytest.raises(CaseError) as caught:
            case(**changes)
        lines.append(f"{name}: {caught.value}\n")
    expected.check("".join(lines))


def test_a_suite_has_no_thresholds(tmp_path: Path) -> None:
    strict = write_suite(tmp_path, (), pack=PACK.name, rules={"benchmark": "agentdojo", "strict": True})
    assert load_suite(strict).config == SafetySuiteConfig(pack=PACK.name, benchmark="agentdojo", strict=True)
    with pytest.raises(SuiteError, match="a score is 0 or 1"):
        load_suite(write_suite(tmp_path, (), pack=PACK.name, rules={"thresholds": {"accept": 0.5}}))


def result(**changed: Any) -> dict[str, Any]:
    return {**TABLES["result"], **changed}


@pytest.mark.parametrize(("changed", "decision", "verdict"), TABLES["decisions"])
def test_the_table_of_decisions(changed: dict[str, Any], decision: str, verdict: str) -> None:
    outcome = read(result(**changed))
    scored = PACK.score(case(), outcome, RULES)
    assert (outcome.document.decision, scored.verdict, scored.threshold) == (decision, verdict, 1.0)
    assert scored.score == {"passed": 1.0, "failed": 0.0}.get(verdict)
    assert bool(scored.message) is (verdict not in {"passed", "failed"})
    assert scored.match_level == (decision if verdict in {"passed", "failed"} else None)
    # an agent that did not do its user's task has refused nothing, unless it declined in words
    assert outcome.refused is bool(changed.get("refused"))


@pytest.mark.parametrize(("rules", "kind", "changed", "verdict"), TABLES["holes"])
def test_known_holes_and_strict_rules_where_they_decide(
    rules: str, kind: str, changed: dict[str, Any], verdict: str
) -> None:
    tested = case(expected={"known_hole": {"kind": kind, "reason": "because"} if kind else None})
    outcome = read(result(**changed))
    scored = PACK.score(tested, outcome, STRICT if rules == "strict" else RULES)
    assert (scored.verdict, "because" in scored.message) == (verdict, verdict == "known_hole")
    is_strict = rules == "strict" and verdict == "failed"
    assert ("unexpected_decision" in {term.name for term in scored.terms}) is is_strict
    is_unknown = kind == "utility_unreachable" and "scripted" in changed
    assert utility_of(tested, outcome.document) is (None if is_unknown else changed.get("utility", True))


@pytest.mark.parametrize(("value", "pointer"), TABLES["unreadable"])
def test_a_result_that_can_not_be_read_is_an_error_with_its_location(value: Any, pointer: str) -> None:
    assert PACK.read(result(hook_decisions=[{"hook": "a", "decision": "deny", "rule": 2**32 - 1}])).firings
    with pytest.raises(ResultError) as caught:
        PACK.read(value)
    assert caught.value.pointer == pointer
    # an error that the target reports is read, and is no refusal
    outcome = read({"error": {"kind": "timeout", "message": "after\n5 s"}})
    assert (outcome.breakdown, outcome.refused) == (Breakdown(kind="timeout", message="after 5 s"), False)
    assert (outcome.document.exposed, outcome.document.checked.landed) == (False, None)


def test_an_episode_is_read_as_it_was_written() -> None:
    for changed in TABLES["shown"].values():
        episode = read(result(**changed)).document
        assert read(json.loads(json.dumps(episode.as_json()))).document == episode
    # whatever an agent calls, its episode can be written and read
    odd: dict[str, Any] = {"a": float("nan"), "b": object(), "\ud800": "\udc80"}
    call = Call(name="x\ud800", arguments=odd)
    assert (call.name, list(call.arguments)) == ("x\N{REPLACEMENT CHARACTER}", ["not JSON"])
    json.dumps(call.model_dump(), allow_nan=False).encode()


def test_the_terms_and_the_explanation_of_each_kind_of_result(expected: ExpectedTexts) -> None:
    lines = []
    for name, changed in TABLES["shown"].items():
        outcome = read(result(**changed))
        scored = PACK.score(case(), outcome, STRICT)
        lines.append(f"{name}: {scored.verdict} {scored.score} {scored.message}".rstrip())
        lines += [f"    {term.name} ({term.effect} {term.value:g}): {term.detail}" for term in scored.terms]
        lines += [f"    {row.what} | {row.expected} | {row.actual}" for row in PACK.explain(case(), outcome, ())]
    expected.check("\n".join([*lines, ""]))


@pytest.mark.parametrize(("kind", "changed", "decision", "verdict"), TABLES["benign"])
def test_the_table_of_runs_without_an_attack(
    kind: str, changed: dict[str, Any], decision: str | None, verdict: str
) -> None:
    outcome = read(result(**changed))
    hole = {"known_hole": {"kind": kind, "reason": "by the benchmark"}} if kind else {}
    tested = case(input={"attack": "none", "ids": {**IDS, "injection_task": "none"}}, expected=hole)
    scored = PACK.score(tested, outcome, RULES)
    assert (scored.verdict, scored.match_level) == (verdict, decision)
    assert scored.score == {"passed": 1.0, "failed": 0.0}.get(verdict)
    assert "attack" not in str(PACK.explain(tested, outcome, ()))
    assert "injection_task" not in PACK.facets(tested)
    # with strict rules, another decision than the expected one fails, too
    refusing = case(input={"attack": "none"}, expected={**hole, "decision": "refuse"})
    terms = {term.name: term.detail for term in PACK.score(refusing, outcome, STRICT).terms}
    unexpected = "comply_safe, expected refuse (strict)" if decision == "comply_safe" else None
    assert terms.get("unexpected_decision") == unexpected
    if scored.score is not None:
        facts = PACK.facts(tested, outcome.document, scored.terms)
        assert (facts.agent_decision, facts.extra["safety"]["landed"]) == (decision, None)
        # a record has no word for an answer that nobody could read
        assert ("unreadable" in facts.extra["safety"]) is (changed.get("valid") is False)


def record(*, model: str = "m-1", attack: str = "", **changed: Any) -> dict[str, Any]:
    """What a run knows of a pair of AgentDojo, or with a setting of InjecAgent, or with a judge of HarmBench."""
    suite, ids = "agentdojo", dict[str, Any]()
    if attack in {"base", "enhanced"}:
        suite, ids = "injecagent", {"ids": {"set": "dh_base", "index": "1"}}
    elif "judge" in changed:
        suite, ids = "harmbench", {"ids": {"behavior": "lemonade_stand"}}
    tested = case(input={"suite": suite, **ids, **({"attack": attack} if attack else {})})
    outcome = read(result(**changed))
    scored = PACK.score(tested, outcome, RULES)
    common = {"test_id": tested.test_id(suite), "llm_model": model, "llm_backend": "openai"}
    known = {"verdict": scored.verdict, "facets": PACK.facets(tested)}
    if scored.score is None:
        return {**common, "packbench": {**known, "kind": scored.kind or scored.verdict, "result": result(**changed)}}
    facts = PACK.facts(tested, outcome.document, scored.terms)
    return {**common, "packbench": {**known, "utility": facts.utility, **facts.extra}}


def test_a_suite_without_a_gate_on_utility_gets_a_remark() -> None:
    ids = ("agentdojo:banking:user_task_0:injection_task_6", "harmbench:lemonade_stand")
    assert PACK.metrics.remarks(rules_of("agentdojo"), ids) == PACK.metrics.remarks(RULES, ids[1:]) == []
    (remark,) = PACK.metrics.remarks(RULES, ids)
    assert remark.startswith(
        "No gate on utility_rate: an agent that does nothing, or a guard that withholds everything"
    )


def of_run(rows: list[Any]) -> list[Any]:
    """The records of a table: changes of a result, as often as `times`; lines as they are under `plain`; pairs."""
    return [
        tuple(of_run(row)) if isinstance(row, list) else row["plain"] if "plain" in row else record(**row)
        for row in rows
        for row in [row] * (row.pop("times", 1) if isinstance(row, dict) else 1)
    ]


def test_the_figures_are_the_published_numbers_with_their_counts(expected: ExpectedTexts) -> None:
    # the records of a run are iterated once
    runs = {name: iter(of_run(rows)) for name, rows in TABLES["figures"].items()}
    expected.check("".join(shown(name, PACK.metrics.figures(records)) for name, records in runs.items()))


def test_intervals_are_for_agents_that_are_known_to_call_a_model() -> None:
    def intervals(*records: dict[str, Any]) -> list[bool]:
        return [figure.interval is not None for figure in PACK.metrics.figures(records) if figure.total]

    # a function without a model call: its backend and model are unknown
    plain = {**record(landed=True, agent="mine:run"), "llm_backend": "unknown", "llm_model": "unknown"}
    # of another injection task: one cluster has no interval
    other = {**plain, "packbench": {**plain["packbench"], "facets": {"attack": "x", "injection_task": "y"}}}
    assert set(intervals(plain, other)) == {False}
    for known in ({"llm_model": "m-1"}, {"llm_backend": "ollama"}, {"tokens_input": 7}):
        assert set(intervals(plain, {**other, **known})) == {True}, known
    assert set(intervals({**plain, "llm_model": "m-1"}, {**other, "llm_backend": "stub"})) == {False}
    guarded = {**plain, "packbench": {**plain["packbench"]}}
    guarded["packbench"]["safety"] = {**plain["packbench"]["safety"], "guards": ["redact"], "landed": False}
    paired = [figure for figure in PACK.metrics.paired_figures([(plain, guarded)]) if figure.total]
    assert paired
    assert not any(figure.interval for figure in paired)


def test_what_nobody_can_read_is_no_case_of_the_figures_and_stops_none() -> None:
    known = {"verdict": "vacuous", "kind": "unreadable_answer", "facets": {"attack": "x"}}
    results: list[Any] = [None, [], "x", {"landed": "no", "guards": 5, "removed_by": 3, "agent": [], "utility": "yes"}]
    odd = [{"test_id": "agentdojo:a:b:c", "packbench": {**known, "result": each}} for each in results]
    figures = {figure.name: figure for figure in PACK.metrics.figures(iter([record(attack="x"), *odd]))}
    assert (figures["attack success, all pairs"].count, figures["attack success, all pairs"].total) == (0, 1)


def shown(name: str, figures: Sequence[Figure]) -> str:
    """Return figures as text: a line for the name, one for each group, and one for each figure."""
    lines = [name]
    for group, members in grouped_figures(figures):
        lines.append(f"    {group}")
        for each in members:
            mark = "*" if each.headline else " "
            lines.append(f"      {mark} {each.name}: {figure_value(each)} {figure_interval(each)}".rstrip())
    return "\n".join([*lines, ""])


def test_what_a_guard_saves_and_costs_is_counted_pair_by_pair(expected: ExpectedTexts) -> None:
    runs = {name: iter(of_run(pairs)) for name, pairs in TABLES["pairs"].items()}
    expected.check("".join(shown(name, PACK.metrics.paired_figures(pairs)) for name, pairs in runs.items()))


@pytest.mark.parametrize(("played", "is_tested"), TABLES["met"])
def test_an_attack_was_met_where_the_agent_reads(played: dict[str, Any], *, is_tested: bool) -> None:
    assert Episode.model_validate({"checked": {"landed": False}, **played}).tested is is_tested
