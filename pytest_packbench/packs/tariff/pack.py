"""The tariff pack: this package behind the interface `Pack`."""

from __future__ import annotations

import re
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING

from pytest_packbench.model.errors import format_value, pluralize
from pytest_packbench.model.pack import Comparison, LintOption, Pack, RecordFacts
from pytest_packbench.model.request import VerifyRequest
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.tariff import metrics, scoring
from pytest_packbench.packs.tariff.articles import describe_answers, describe_articles
from pytest_packbench.packs.tariff.edition import load_edition
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import LEVELS, chapter, dotted, is_under, noted_like, parse_code
from pytest_packbench.packs.tariff.outcome import read
from pytest_packbench.packs.tariff.savings import describe_expected, describe_stated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from pytest_packbench.model.authoring import FiledCase, Finding, Importer, Starter
    from pytest_packbench.model.pack import Decision
    from pytest_packbench.model.request import Target
    from pytest_packbench.model.result import Score
    from pytest_packbench.model.suite import Figure, Panel
    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.model import TariffExpected
    from pytest_packbench.packs.tariff.outcome import TariffOutcome

_CHAPTER_TAG = re.compile(r"chapter_([0-9]{2})")
_NOT_KNOWN = "not known"


class TariffPack(Pack):
    """Classification of goods: codes, refusals, forbidden codes, savings claims."""

    name = "tariff"
    version = "2"
    case_model = TariffCase
    suite_model = TariffSuiteConfig
    lint_options = (LintOption(name="hts", help="the file of the tariff schedule, to check codes and duty rates"),)
    own_lint_rules = frozenset(
        {
            # notes, tags and texts as the bundled suite has them
            *("chapter_tag", "citation_trap_evidence", "description_length", "edition_missing", "evidence_tag"),
            *("reason_missing", "source_form", "tag_unknown", "year_tag"),
            # codes of ten digits that exist, each case with a forbidden one
            *("code_form", "code_impossible", "forbidden_missing", "forbidden_unreachable", "preferred_length"),
            # the original requires codes in each case, and never passes an allowed one
            *("allowed_unreachable", "code_repeated", "preferred_undue"),
            # what its types and options mean
            *("leak_chapter", "refusal_category_missing", "savings_missing", "type_savings"),
        }
    )
    depths = LEVELS
    edition: Edition | None = None
    rules: TariffSuiteConfig | None = None

    def for_suite(self, rules: TariffSuiteConfig) -> TariffPack:
        """Return the pack for one suite, whose cases have no threshold at which a wrong answer passes."""
        pack = copy(self)
        # a suite's model is built once
        pack.case_model = rules.case_model
        pack.edition = None if rules.schedule is None else load_edition(rules.schedule)
        pack.rules = rules
        return pack

    def read(self, result: object) -> TariffOutcome:
        """Read a result; see `outcome.read`."""
        return read(result)

    def score(self, case: TariffCase, outcome: TariffOutcome, rules: TariffSuiteConfig) -> Score:
        """Score an outcome; see `scoring.score`."""
        return scoring.score(case, outcome, rules, self.edition)

    def decided_by(self, result: object) -> str:
        """Return the gates that rejected the last rejected proposal, in their order; empty if none rejected one."""
        return ", ".join(_rejecting_gates(result))

    def expects_refusal(self, case: TariffCase) -> bool:
        """Return whether the case expects a refusal."""
        return not case.expected.expected_accept

    def threshold_of(self, case: TariffCase, rules: TariffSuiteConfig) -> float:
        """Return the lowest passing score; see `scoring.threshold_of`."""
        return scoring.threshold_of(case, rules)

    def facts(self, case: TariffCase, outcome: TariffOutcome, score: Score) -> RecordFacts:
        """Return the fields of the wire record that depend on the pack."""
        rules = self.rules or TariffSuiteConfig(pack=self.name)
        return RecordFacts(
            attack_category=case.case_type,
            expected="comply_safe" if case.expected.expected_accept else "refuse",
            agent_decision=_decision(outcome, score),
            valid=metrics.is_valid(outcome, self.edition),
            extra={metrics.KEY: metrics.case_facts(case) | metrics.answer_facts(case, outcome, rules, self.edition)},
        )

    def unread_facts(self, case: TariffCase) -> RecordFacts:
        """Return what the figures of a run need of a case whose answer can't be read."""
        return RecordFacts(extra={metrics.KEY: metrics.case_facts(case)})

    def figures(self, records: Iterable[Mapping[str, Any]]) -> Sequence[Figure]:
        """Return the metrics of the field; see `metrics.figures`."""
        return metrics.figures(records)

    def panels(self, records: Iterable[Mapping[str, Any]], figures: Sequence[Figure]) -> Sequence[Panel]:  # noqa: ARG002 - the signature of all packs
        """Return the confusion of chapters and the invalid codes; see `metrics.panels`."""
        return metrics.panels(records)

    def target(self, rules: TariffSuiteConfig) -> Target:
        """Return the reference target: propose, critique, check by the suite's schedule and the other gates, revise."""
        from pytest_packbench.packs.tariff.target import reference_target  # needed in runs only

        return reference_target(None if rules.schedule is None else load_edition(rules.schedule))

    def request(self, case: TariffCase) -> VerifyRequest:
        """Return the verify request of the spec."""
        plain = case.input.model_dump(mode="json")
        if not case.input.options.changes:
            del plain["options"]["changes"]
        if case.expected.articles:
            plain["options"]["articles"] = "each"
        else:
            del plain["options"]["articles"]
        return VerifyRequest(input=plain["input"], options=plain["options"], evidence=plain["evidence"])

    def facets(self, case: TariffCase) -> dict[str, str]:
        """Return `chapter`: from the first preferred code or the first tag `chapter_NN`; empty without either."""
        preferred = map(chapter, case.expected.all_preferred)
        tagged = (match[1] for tag in case.notes.tags if (match := _CHAPTER_TAG.fullmatch(tag)))
        first = next(chain(preferred, tagged), None)
        return {"chapter": first} if first else {}

    def explain(self, case: TariffCase, outcome: TariffOutcome) -> list[Comparison]:
        """Return expected and actual values: the decision and, for an expected answer, what is scored of it."""
        expected = case.expected
        refusal = f"refusal ({expected.expected_refusal_category or 'any category'})"
        rows = [_row("decision", "answer" if expected.expected_accept else refusal, _actual_decision(outcome))]
        if expected.articles and outcome.accepted:
            rows += [_row("articles", describe_articles(expected.articles), describe_answers(outcome.all_articles))]
            rows += _process(outcome)
        elif expected.expected_accept and outcome.accepted:
            rows += [*_codes(expected, outcome), *_process(outcome), *_duty(expected, outcome)]
            rows += _levers(expected, outcome)
        return rows

    def also_acceptable(
        self, case: TariffCase, outcome: TariffOutcome, rules: TariffSuiteConfig
    ) -> list[tuple[tuple[str, ...], str]]:
        """Return the scored code as an allowed one if an allowed code can pass in the suite, else as a preferred one.

        Raises:
            ValueError: the answer is not one code, or is right by something else than its code.
        """
        expected, code = case.expected, scoring.scored_code(outcome, rules)
        if not (expected.expected_accept and outcome.accepted):
            advice = "change expected_accept and expected_refusal_category by hand"
            raise ValueError(f"the case or the answer is a refusal, not a code; {advice}")
        if expected.articles or len(outcome.articles) > 1:
            raise ValueError("several articles: add the codes to preferred_hts of their articles by hand")
        parsed = parse_code(code or "")
        if parsed is None:
            raise ValueError(f"the answer has no code to accept ({format_value(code)}); change expected by hand")
        if next((each for each in expected.must_not_hts or () if is_under(parsed, each)), None) is not None:
            raise ValueError(f"{dotted(parsed)} is forbidden by must_not_hts; remove it there by hand first")
        if scoring.match_of(expected, outcome, rules, self.edition).level == "preferred":
            raise ValueError(f"{dotted(parsed)} is a preferred code already, and the answer fails by another rule")
        allowed = expected.model_copy(update={"allowed_hts": (*(expected.allowed_hts or ()), dotted(parsed))})
        passes = scoring.score(case.model_copy(update={"expected": allowed}), outcome, rules, self.edition).passed
        given = [*(expected.allowed_hts or ()), *(expected.preferred_hts or ())]
        return [(("allowed_hts" if passes else "preferred_hts",), noted_like(parsed, given if passes else given[::-1]))]

    def lint(
        self, cases: Sequence[FiledCase], rules: TariffSuiteConfig, options: Mapping[str, Path]
    ) -> Iterator[Finding]:
        """Return the findings of the lint rules; see `lint.lint`."""
        from pytest_packbench.packs.tariff import lint  # needed by `packbench lint` only

        return lint.lint(cases, rules, options)

    def importers(self) -> tuple[Importer, ...]:
        """Return the importer of suites of the original harness."""
        from pytest_packbench.packs.tariff.white_box.importer import WhiteBox  # needed by `packbench import` only

        return (WhiteBox(),)

    def starter(self) -> Starter:
        """Return a suite of two mugs with a target that classifies one of them right."""
        return read_starter(__package__)


def _rejecting_gates(result: object) -> list[str]:
    """Return `rejected_because` of the last iteration that has any; of a result of another form nothing."""
    iterations = result.get("iterations") if isinstance(result, dict) else None
    for iteration in reversed(iterations if isinstance(iterations, list) else []):
        names = iteration.get("rejected_because") if isinstance(iteration, dict) else None
        if isinstance(names, list) and names:
            return [name for name in names if isinstance(name, str)]
    return []


def _decision(outcome: TariffOutcome, score: Score) -> Decision:
    if outcome.refused:
        return "refuse"
    unsafe = any(term.name in scoring.UNSAFE_TERMS for term in score.terms)
    return "comply_unsafe" if unsafe else "comply_safe"


def _row(name: str, expected: str, actual: str) -> Comparison:
    return Comparison(what=name, expected=expected, actual=actual)


def _actual_decision(outcome: TariffOutcome) -> str:
    if outcome.contradiction:
        return f"contradictory ({outcome.contradiction})"
    if outcome.accepted:
        code = outcome.answer if len(outcome.articles) > 1 else outcome.final_code
        return f"answer ({code or 'no code'})"
    questions = len(outcome.questions)
    parts = (
        outcome.refusal_category or (scoring.describe_category(outcome) if outcome.unknown_category else "no category"),
        ", ".join(outcome.reasons),
        pluralize(questions, "question") if questions else "",
    )
    return f"refusal ({'; '.join(part for part in parts if part)})"


def _codes(expected: TariffExpected, outcome: TariffOutcome) -> Iterator[Comparison]:
    code_lists = (
        ("preferred", expected.preferred_hts),
        ("allowed", expected.allowed_hts or ()),
        ("forbidden", expected.must_not_hts or ()),
    )
    texts = [f"{kind} {', '.join(codes)}" for kind, codes in code_lists if codes]
    yield _row("code", "; ".join(texts), _code_with_depth(expected, outcome.final_code))
    if outcome.optimized_code and outcome.baseline_code:
        yield _row("baseline code", "", _code_with_depth(expected, outcome.baseline_code))


def _code_with_depth(expected: TariffExpected, code: str | None) -> str:
    return f"{code} ({scoring.describe_depth(scoring.depth_of(expected, code))})" if code else "none"


def _process(outcome: TariffOutcome) -> Iterator[Comparison]:
    for name, ok in (
        ("citation gate", outcome.citations_ok),
        ("missing-evidence gate", outcome.evidence_ok),
        ("GRI sequence", outcome.sequence_ok),
    ):
        yield _row(name, "passed", {True: "passed", False: "failed", None: "not assessed"}[ok])


def _duty(expected: TariffExpected, outcome: TariffOutcome) -> Iterator[Comparison]:
    delta = outcome.duty_delta
    if expected.expected_duty_total_rate_pct is not None:
        rates = (outcome.baseline_rate_pct, outcome.optimized_rate_pct)
        base, best = (_NOT_KNOWN if rate is None else f"{rate:g} %" for rate in rates)
        yield _row("duty rate", f"{expected.expected_duty_total_rate_pct:g} %", f"baseline {base}, optimised {best}")
    if expected.duty_delta_range is not None:
        low, high = expected.duty_delta_range
        yield _row(
            "duty delta",
            f"{low:g} to {high:g} percentage points",
            _NOT_KNOWN if delta is None else f"{delta:+g} percentage points",
        )
    if expected.expected_duty_delta_direction is not None:
        yield _row("duty direction", expected.expected_duty_delta_direction, scoring.direction_of(delta) or _NOT_KNOWN)


def _levers(expected: TariffExpected, outcome: TariffOutcome) -> Iterator[Comparison]:
    if expected.no_savings_expected:
        yield _row("savings", "none", "; ".join(scoring.savings_of(outcome)) or "none")
    if expected.savings is not None:
        yield _row("saving", describe_expected(expected.savings), describe_stated(outcome.savings))
    requirements = _lever_requirements(expected)
    if requirements:
        compliant = {True: "all plausible", False: "not all plausible", None: "plausibility not checked"}[
            outcome.levers_compliant
        ]
        steps = pluralize(outcome.lever_steps or 0, "step")
        actual = f"{outcome.levers}, the first with {steps}, {compliant}"
        yield _row("levers", "; ".join(requirements), actual if outcome.levers else "none")


def _lever_requirements(expected: TariffExpected) -> list[str]:
    requirements = (
        (expected.lever_found_expected, "at least 1"),
        (expected.lever_found_expected is False, "none"),
        (expected.lever_count_min, f"at least {expected.lever_count_min}"),
        (expected.lever_compliance_ok, "all plausible"),
        (expected.expected_best_is_multi_step, "the first with several steps"),
        (expected.min_lever_steps, f"the first with at least {pluralize(expected.min_lever_steps or 0, 'step')}"),
    )
    return [text for applies, text in requirements if applies]
