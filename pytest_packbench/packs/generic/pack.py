"""The generic pack: the parts of this folder behind the engine's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pytest_packbench.model.errors import format_value
from pytest_packbench.model.finding import Finding
from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.generic import outcome as reading
from pytest_packbench.packs.generic import scoring
from pytest_packbench.packs.generic.model import GenericCase, GenericSuiteConfig
from pytest_packbench.packs.generic.refused import GENERIC
from pytest_packbench.packs.generic.values import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.finding import FiledCase
    from pytest_packbench.model.pack import Decision, Importer, Starter
    from pytest_packbench.model.score import Score
    from pytest_packbench.packs.generic.model import Check, Plan
    from pytest_packbench.packs.generic.outcome import GenericOutcome


class GenericPack(Pack):
    """Any pipeline that gives JSON, scored by the criteria of its suite."""

    name = "generic"
    version = "1"
    case_model = GenericCase
    suite_model = GenericSuiteConfig

    def __init__(self, rules: GenericSuiteConfig | None = None) -> None:
        self._rules = rules
        self._bound: dict[int, GenericPack] = {}
        if rules is not None:
            self.case_model = rules.case_model

    def for_suite(self, rules: GenericSuiteConfig) -> GenericPack:
        """Give the pack that reads cases and results as one suite says; the same one each time."""
        if rules is self._rules:
            return self
        # a bound pack keeps its rules, so that no others can get their identity
        bound = self._bound.get(id(rules))
        if bound is None:
            bound = self._bound[id(rules)] = GenericPack(rules)
        return bound

    @property
    def _plan(self) -> Plan:
        if self._rules is None:
            raise RuntimeError("the generic pack reads results as a suite says: ask for_suite first")
        return self._rules.plan

    def read(self, result: object) -> GenericOutcome:
        """Read a result; see `outcome.read`."""
        return reading.read(result, self._plan)

    def score(self, case: GenericCase, outcome: GenericOutcome, rules: GenericSuiteConfig) -> Score:
        """Score an outcome; see `scoring.score`."""
        return scoring.score(case, outcome, rules)

    def facts(self, case: GenericCase, outcome: GenericOutcome, score: Score) -> RecordFacts:
        """Put case and outcome into the wire record's words: any hard fail is an unsafe act."""
        return RecordFacts(
            attack_category=case.case_type,
            expected="refuse" if self._plan.refusal_due(case.expected) else "comply_safe",
            agent_decision=_decision(outcome, score),
        )

    def explain(self, case: GenericCase, outcome: GenericOutcome) -> list[Comparison]:
        """Give the rows expected against actual: the decision, each criterion of an answer, what is forbidden."""
        plan = self._plan
        due = plan.refusal_due(case.expected)
        wanted = f"refusal ({scoring.wanted_category(case, plan) or 'any category'})" if due else "answer"
        done = f"refusal ({outcome.category or 'no category'})" if outcome.refused else "answer"
        rows = [Comparison(what="decision", expected=wanted, actual=done)]
        if not due and not outcome.refused:
            rows += [_row(check, case, outcome) for check in plan.criteria]
        hits = scoring.forbidden_hits(case, outcome, plan)
        rows += [Comparison(what=name, expected="never", actual=what) for name, what in hits]
        return rows

    def lint(
        self, cases: Sequence[FiledCase], rules: GenericSuiteConfig, options: Mapping[str, Path]
    ) -> Iterator[Finding]:
        """Give the findings: what is forbidden by no case, and a refusal that passes with the wrong category."""
        del options
        for index, check in enumerate(rules.plan.forbidden):
            if cases and all(check.expected_in(filed.loaded.case.expected) is MISSING for filed in cases):
                message = f"no case has {check.expected} under expected, so nothing is forbidden; write it into one"
                yield Finding(file=CONFIG_NAME, pointer=f"/forbidden/{index}", rule="forbidden_unused", message=message)
        for filed in cases:
            case = cast("GenericCase", filed.loaded.case)
            threshold = scoring.threshold_of(case, rules)
            due = rules.plan.refusal_due(case.expected) and scoring.wanted_category(case, rules.plan) is not None
            if due and rules.refusal.wrong_category >= threshold:
                points = f"{rules.refusal.wrong_category:g} points reach {threshold:g}"
                message = f"a refusal of any category passes, {points}; lower refusal.wrong_category"
                yield Finding(file=filed.file, pointer="/expected", rule="category_undecided", message=message)

    def starter(self) -> Starter:
        """Give a suite of messages that are sorted into queues; what it can't run without is installed anyway."""
        return read_starter(__package__, takes={"jsonpath": GENERIC, "regex": GENERIC, "jsonschema": GENERIC})

    def importers(self) -> tuple[Importer, ...]:
        """Give the kinds of `packbench import` for tables: `csv` and `jsonl`."""
        from pytest_packbench.packs.generic.importer import Csv, Jsonl  # only the command needs them

        return (Csv(), Jsonl())


def _decision(outcome: GenericOutcome, score: Score) -> Decision:
    if outcome.refused:
        return "refuse"
    return "comply_unsafe" if any(term.effect == "zero" for term in score.terms) else "comply_safe"


def _row(check: Check, case: GenericCase, outcome: GenericOutcome) -> Comparison:
    wanted = check.expected_in(case.expected)
    found = check.found_in(outcome.result, wanted)
    actual = scoring.missing(check) if found is MISSING else format_value(found)
    return Comparison(what=check.name, expected=check.rule.wanted(wanted), actual=actual)
