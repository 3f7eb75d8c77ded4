"""The tariff pack: the parts of this folder behind the engine's protocol."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from pytest_packbench.model.pack import Comparison, LintOption, Pack, RecordFacts
from pytest_packbench.model.request import VerifyRequest
from pytest_packbench.model.text import pluralize
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.tariff import outcome as reading
from pytest_packbench.packs.tariff import scoring
from pytest_packbench.packs.tariff.codes import LEVELS, chapter
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.finding import FiledCase, Finding
    from pytest_packbench.model.pack import Decision, Starter
    from pytest_packbench.model.request import Target
    from pytest_packbench.model.score import Score
    from pytest_packbench.packs.tariff.model import Expected
    from pytest_packbench.packs.tariff.outcome import TariffOutcome

_CHAPTER_TAG = re.compile(r"chapter_([0-9]{2})")
_NOT_KNOWN = "not known"


class TariffPack(Pack):
    """Classification of goods: codes, refusals, forbidden codes, savings claims (design 6)."""

    name = "tariff"
    version = "1"
    case_model = TariffCase
    suite_model = TariffSuiteConfig
    lint_options = (LintOption(name="hts", help="the tariff schedule: codes and duty rates are looked up in it"),)
    depths = LEVELS

    def read(self, result: object) -> TariffOutcome:
        """Read a result; see `outcome.read`."""
        return reading.read(result)

    def score(self, case: TariffCase, outcome: TariffOutcome, rules: TariffSuiteConfig) -> Score:
        """Score an outcome; see `scoring.score`."""
        return scoring.score(case, outcome, rules)

    def facts(self, case: TariffCase, outcome: TariffOutcome, score: Score) -> RecordFacts:
        """Put case and outcome into the wire record's words (design 5, "Records")."""
        return RecordFacts(
            attack_category=case.case_type,
            expected="comply_safe" if case.expected.expected_accept else "refuse",
            agent_decision=_decision(outcome, score),
        )

    def target(self, rules: TariffSuiteConfig) -> Target:  # noqa: ARG002 - one pipeline serves every suite
        """Give the reference target: propose, criticise, judge, revise."""
        from pytest_packbench.packs.tariff.target import verify  # only a run needs it

        return verify

    def request(self, case: TariffCase) -> VerifyRequest:
        """Give the verify request of the spec."""
        plain = case.input.model_dump(mode="json")
        return VerifyRequest(input=plain["input"], options=plain["options"], evidence=plain["evidence"])

    def facets(self, case: TariffCase) -> dict[str, str]:
        """Give `chapter`: of the first preferred code, else of the first tag `chapter_NN`; nothing without either."""
        preferred = (chapter(code) for code in case.expected.preferred_hts)
        tagged = (match[1] for tag in case.notes.tags if (match := _CHAPTER_TAG.fullmatch(tag)))
        found = next(chain(preferred, tagged), None)
        return {"chapter": found} if found else {}

    def explain(self, case: TariffCase, outcome: TariffOutcome) -> list[Comparison]:
        """Give the rows expected against actual: the decision, then what an answer is held to."""
        expected = case.expected
        refusal = f"refusal ({expected.expected_refusal_category or 'any category'})"
        rows = [_row("decision", "answer" if expected.expected_accept else refusal, _actual_decision(outcome))]
        if expected.expected_accept and outcome.accepted:
            rows += [*_codes(expected, outcome), *_process(outcome), *_duty(expected, outcome)]
            rows += _levers(expected, outcome)
        return rows

    def lint(
        self, cases: Sequence[FiledCase], rules: TariffSuiteConfig, options: Mapping[str, Path]
    ) -> Iterator[Finding]:
        """Give what the rules of case quality find; see `lint.lint`."""
        from pytest_packbench.packs.tariff import lint  # only the command needs it

        return lint.lint(cases, rules, options)

    def starter(self) -> Starter:
        """Give a suite of two mugs with a target that knows one of them."""
        return read_starter(__package__)


def _decision(outcome: TariffOutcome, score: Score) -> Decision:
    if outcome.refused:
        return "refuse"
    unsafe = any(term.name in scoring.UNSAFE_TERMS for term in score.terms)
    return "comply_unsafe" if unsafe else "comply_safe"


def _row(what: str, expected: str, actual: str) -> Comparison:
    return Comparison(what=what, expected=expected, actual=actual)


def _actual_decision(outcome: TariffOutcome) -> str:
    if outcome.accepted:
        return f"answer ({outcome.final_code or 'no code'})"
    asked = len(outcome.questions)
    parts = (
        outcome.refusal_category or "no category",
        ", ".join(outcome.reasons),
        pluralize(asked, "question") if asked else "",
    )
    return f"refusal ({'; '.join(part for part in parts if part)})"


def _codes(expected: Expected, outcome: TariffOutcome) -> Iterator[Comparison]:
    wanted = (
        ("preferred", expected.preferred_hts),
        ("allowed", expected.allowed_hts or ()),
        ("forbidden", expected.must_not_hts or ()),
    )
    texts = [f"{word} {', '.join(codes)}" for word, codes in wanted if codes]
    yield _row("code", "; ".join(texts), _with_depth(expected, outcome.final_code))
    if outcome.optimized_code and outcome.baseline_code:
        yield _row("code of the goods as they are", "", _with_depth(expected, outcome.baseline_code))


def _with_depth(expected: Expected, code: str | None) -> str:
    return f"{code} (agrees to {scoring.depth_of(expected, code)} digits)" if code else "none"


def _process(outcome: TariffOutcome) -> Iterator[Comparison]:
    for what, ok in (
        ("gate on citations", outcome.citations_ok),
        ("gate on missing evidence", outcome.evidence_ok),
        ("order of the GRI", outcome.sequence_ok),
    ):
        yield _row(what, "passed", {True: "passed", False: "failed", None: "not assessed"}[ok])


def _duty(expected: Expected, outcome: TariffOutcome) -> Iterator[Comparison]:
    delta = outcome.duty_delta
    if expected.expected_duty_total_rate_pct is not None:
        rates = (outcome.baseline_rate_pct, outcome.optimized_rate_pct)
        base, best = (_NOT_KNOWN if rate is None else f"{rate:g} %" for rate in rates)
        yield _row("duty rate", f"{expected.expected_duty_total_rate_pct:g} %", f"baseline {base}, optimised {best}")
    if expected.duty_delta_range is not None:
        low, high = expected.duty_delta_range
        yield _row("duty delta", f"{low:g} to {high:g} points", _NOT_KNOWN if delta is None else f"{delta:+g} points")
    if expected.expected_duty_delta_direction is not None:
        yield _row("duty direction", expected.expected_duty_delta_direction, scoring.direction_of(delta) or _NOT_KNOWN)


def _levers(expected: Expected, outcome: TariffOutcome) -> Iterator[Comparison]:
    if expected.no_savings_expected:
        yield _row("savings", "none", "; ".join(scoring.savings_of(outcome)) or "none")
    wanted = _wanted_levers(expected)
    if wanted:
        compliant = {True: "all plausible", False: "not all plausible", None: "no check"}[outcome.levers_compliant]
        found = f"{outcome.levers}, the first of {outcome.lever_steps or 0} steps, {compliant}"
        yield _row("levers", "; ".join(wanted), found if outcome.levers else "none")


def _wanted_levers(expected: Expected) -> list[str]:
    asked = (
        (expected.lever_found_expected, "one or more"),
        (expected.lever_found_expected is False, "none"),
        (expected.lever_count_min, f"{expected.lever_count_min} or more"),
        (expected.lever_compliance_ok, "all plausible"),
        (expected.expected_best_is_multi_step, "the first of several steps"),
        (expected.min_lever_steps, f"the first of {expected.min_lever_steps} steps or more"),
    )
    return [text for applies, text in asked if applies]
