"""The generic pack: the scoring and the files of this folder behind the interface of packs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.model.errors import format_value, json_pointer, pluralize
from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.generic import scoring
from pytest_packbench.packs.generic.suite import GenericCase, GenericSuiteConfig, read_location
from pytest_packbench.packs.generic.values import GENERIC, MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.authoring import FiledCase, Finding, Importer, Starter
    from pytest_packbench.model.pack import Decision
    from pytest_packbench.model.result import Score
    from pytest_packbench.packs.generic.scoring import GenericOutcome
    from pytest_packbench.packs.generic.suite import Criterion


_UNUSED = "correct the path, add the key to a case, or remove the criterion"


class GenericPack(Pack):
    """Any pipeline that returns JSON, scored by the criteria in its suite."""

    name = "generic"
    version = "1"
    dated = False
    case_model = GenericCase
    suite_model = GenericSuiteConfig

    def __init__(self, rules: GenericSuiteConfig | None = None) -> None:
        self._bound_rules = rules
        self._by_rules: dict[int, GenericPack] = {}
        if rules is not None:
            self.case_model = rules.case_model

    def for_suite(self, rules: GenericSuiteConfig) -> GenericPack:
        """Return the pack for one suite; the same instance each time."""
        if rules is self._bound_rules:
            return self
        # each instance keeps its rules, so that their id stays unique
        pack = self._by_rules.get(id(rules))
        if pack is None:
            pack = self._by_rules[id(rules)] = GenericPack(rules)
        return pack

    @property
    def _rules(self) -> GenericSuiteConfig:
        if self._bound_rules is None:
            raise RuntimeError("the generic pack reads results by the rules of a suite: call for_suite first")
        return self._bound_rules

    def read(self, result: object) -> GenericOutcome:
        """Read a result; see `scoring.read`."""
        return scoring.read(result, self._rules)

    def score(self, case: GenericCase, outcome: GenericOutcome, rules: GenericSuiteConfig) -> Score:
        """Score an outcome; see `scoring.score`."""
        return scoring.score(case, outcome, rules)

    def expects_refusal(self, case: GenericCase) -> bool:
        """Return whether the case expects a refusal."""
        return self._rules.refusal.is_expected(case)

    def threshold_of(self, case: GenericCase, rules: GenericSuiteConfig) -> float:
        """Return the lowest passing score of a case."""
        return rules.threshold_of(case)

    def facts(self, case: GenericCase, outcome: GenericOutcome, score: Score) -> RecordFacts:
        """Describe case and outcome in the words of the wire record: every hard fail is an unsafe act."""
        return RecordFacts(
            attack_category=case.case_type,
            expected="refuse" if self._rules.refusal.is_expected(case) else "comply_safe",
            agent_decision=_decision(outcome, score),
        )

    def explain(self, case: GenericCase, outcome: GenericOutcome) -> list[Comparison]:
        """Compare the decision, each criterion of an answer, and what is forbidden."""
        refusal = self._rules.refusal
        is_refusal_expected = refusal.is_expected(case)
        category = refusal.expected_category_of(case) or "any category"
        expected = f"refusal ({category})" if is_refusal_expected else "answer"
        actual = f"refusal ({outcome.category or 'no category'})" if outcome.refused else "answer"
        rows = [Comparison(what="decision", expected=expected, actual=actual)]
        if not is_refusal_expected and not outcome.refused:
            rows += [_comparison(criterion, case, outcome) for criterion in self._rules.criteria]
        matches = scoring.forbidden_matches(case, outcome, self._rules)
        rows += [Comparison(what=name, expected="never", actual=match) for name, match in matches]
        return rows

    def lint(
        self, cases: Sequence[FiledCase], rules: GenericSuiteConfig, options: Mapping[str, Path]
    ) -> Iterator[Finding]:
        """Find criteria that compare with a key that no case has, and count the cases without a date."""
        from pytest_packbench.model.authoring import Finding  # needed by `packbench lint` only

        del options
        undated = sum(filed.loaded.case.notes.date is None for filed in cases)
        if undated:
            message = f"{undated} of {pluralize(len(cases), 'case')} without the day on which the answer was verified"
            yield Finding(
                file=CONFIG_NAME,
                pointer="",
                rule="date_missing",
                message=f"{message}; add notes.date, or import with --date",
                severity="warning",
            )
        unused = rules.unused_criteria([filed.loaded.case.expected for filed in cases]) if cases else ()
        for location, wrong in unused:
            rule = "forbidden_unused" if location[0] == "forbidden" else "criterion_unused"
            message = f"{wrong}; {_UNUSED}"
            yield Finding(file=CONFIG_NAME, pointer=json_pointer(location), rule=rule, message=message)

    def unused_rules(self, expected: Sequence[Any], rules: GenericSuiteConfig) -> Iterator[str]:
        """Describe the criteria that compare with a key that no case has."""
        for location, wrong in rules.unused_criteria(expected):
            yield f"{json_pointer(location)}: {wrong}; {_UNUSED}"

    def criteria(self, rules: GenericSuiteConfig) -> dict[str, tuple[str | int, ...]]:
        """Return each criterion with the part of the result that it reads."""
        return {criterion.title: read_location(criterion.path) for criterion in rules.criteria}

    def wrong_results(self, case: GenericCase, result: Any, rules: GenericSuiteConfig) -> Iterator[tuple[str, Any]]:
        """Return the result with each forbidden value in it."""
        for criterion in rules.forbidden:
            expected = criterion.expected_in(case.expected)
            if expected is not MISSING:
                what = criterion.title
                if criterion.has_value and criterion.name is None:
                    what = f"{what} {format_value(criterion.value)}"
                yield f"forbidden: {what}", scoring.with_forbidden(criterion, result, expected)

    def also_acceptable(
        self, case: GenericCase, outcome: GenericOutcome, rules: GenericSuiteConfig
    ) -> list[tuple[tuple[str, ...], Any]]:
        """Return the values of the answer for the lists of the criteria `one_of` that it fails.

        Raises:
            ValueError: it fails other criteria only, or is a refusal.
        """
        if outcome.refused or rules.refusal.is_expected(case):
            raise ValueError("the case or the answer is a refusal; change expected by hand")
        matches = [name for name, _ in scoring.forbidden_matches(case, outcome, rules)]
        if matches:
            raise ValueError(f"the answer contains what {CONFIG_NAME} forbids ({matches[0]}); change that by hand")
        missed = list(scoring.missed_criteria(case, outcome, rules))
        additions = [
            (tuple(map(str, criterion.expected_path.location)), value)
            for criterion, value in missed
            if _has_list(criterion) and value is not MISSING
        ]
        if not additions:
            titles = ", ".join(criterion.title for criterion, _ in missed) or "that fails"
            advice = f"only one_of has a list of accepted values: use it in {CONFIG_NAME}, or change expected by hand"
            raise ValueError(f"the criterion {titles} accepts one value; {advice}")
        return additions

    def can_accept(self, rules: GenericSuiteConfig) -> bool:
        """Return whether a criterion has a list of accepted values in its cases."""
        return any(map(_has_list, rules.criteria))

    def starter(self) -> Starter:
        """Return a suite that sorts messages into queues; it runs without any extra."""
        return read_starter(__package__, takes={"jsonpath": GENERIC, "regex": GENERIC, "jsonschema": GENERIC})

    def importers(self) -> tuple[Importer, ...]:
        """Return the importers of tables: `csv` and `jsonl`."""
        from pytest_packbench.packs.generic.importer import Csv, Jsonl  # only the command needs them

        return (Csv(), Jsonl())


def _has_list(criterion: Criterion) -> bool:
    return criterion.rule == "one_of" and not criterion.has_value and bool(criterion.expected_path.location)


def _decision(outcome: GenericOutcome, score: Score) -> Decision:
    if outcome.refused:
        return "refuse"
    return "comply_unsafe" if any(term.effect == "zero" for term in score.terms) else "comply_safe"


def _comparison(criterion: Criterion, case: GenericCase, outcome: GenericOutcome) -> Comparison:
    expected = criterion.expected_in(case.expected)
    value = criterion.value_in(outcome.result, expected)
    actual = scoring.no_value(criterion) if value is MISSING else format_value(value)
    return Comparison(what=criterion.title, expected=criterion.describe(expected), actual=actual)
