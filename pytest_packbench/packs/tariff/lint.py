"""Rules of case quality for tariff cases: leaks, codes, expectations, notes; with a schedule, rates too."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError

from pytest_packbench.model.finding import Finding
from pytest_packbench.model.score import TOLERANCE
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs.tariff.codes import LEVELS, chapter, digits, dotted, stands_under
from pytest_packbench.packs.tariff.leaks import leaks
from pytest_packbench.packs.tariff.scoring import threshold_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.finding import FiledCase, Severity
    from pytest_packbench.packs.tariff.dossier import Classification, Proposal
    from pytest_packbench.packs.tariff.model import Expected, TariffCase, TariffNotes, TariffSuiteConfig
    from pytest_packbench.packs.tariff.schedule import Rate, Schedule

SCHEDULE = "hts"
"""The name of the option that gives the tariff schedule's file."""
CITATION_TRAP = "citation_trap"
EVIDENCE = "evidence"
TAGS = frozenset(
    {
        "gri_1",
        "gri_2a",
        "gri_2b",
        "gri_3a",
        "gri_3b",
        "gri_3c",
        "gri_5",
        "us_rule_1",
        "composite_good",
        "set",
        "parts",
        "textile_blend",
        "footwear",
        "food",
        "chemical",
        "machine",
        "note_driven",
        "gold_secondary",
        EVIDENCE,
        CITATION_TRAP,
        "hidden_instruction",
        "planted_code",
        "marketing_language",
        "contradictory_facts",
        "tempting_heading",
        "engineering",
    }
)
"""The tags without a value. Beside them: `chapter_NN`, `ruling_year_YYYY`, `pair_<slug>`."""
LEAST_WORDS, MOST_WORDS = 40, 200

_VALUED_TAG = re.compile(r"chapter_\d{2}|ruling_year_\d{4}|pair_[a-z0-9_]+")
_CHAPTER_TAG = re.compile(r"chapter_(\d{2})")
_YEAR_TAG = re.compile(r"ruling_year_(\d{4})")
_RULING = re.compile(r"ruling:(?:(?:NY|HQ)[-_])?[A-Z]?\d{5,6}")
_WRITTEN = re.compile(r"\d{2}|\d{4}|\d{4}\.\d{2}|\d{4}\.\d{2}\.\d{2}|\d{4}\.\d{2}\.\d{2}\.?\d{2}")
_FULL = 10
# 77 is reserved, 98 and 99 stand beside a code, never in its place
_NO_GOODS = frozenset({"00", "77", "98", "99"})
_LISTS = ("preferred_hts", "allowed_hts", "must_not_hts")
_ACCEPTS = {"positive": True, "negative": False, "no_savings": True, "savings_possible": True}
_MULTI_STEP = 2
_ANSWERS = frozenset({"propose", "revise"})
_RATE_TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class Subject:
    """A case as its rules see it.

    Attributes:
        filed: the case with its file and cassette.
        rules: what `suite.yaml` says.
    """

    filed: FiledCase
    rules: TariffSuiteConfig

    @property
    def case(self) -> TariffCase:
        """The case."""
        return cast("TariffCase", self.filed.loaded.case)

    @property
    def expected(self) -> Expected:
        """What a right answer looks like."""
        return self.case.expected

    @property
    def notes(self) -> TariffNotes:
        """Source, edition and reasons."""
        return self.case.notes

    def codes(self, *names: str) -> Iterator[tuple[str, str]]:
        """Give the codes of the lists named, all lists by default, each with its pointer."""
        for name in names or _LISTS:
            for index, code in enumerate(getattr(self.expected, name) or ()):
                yield f"/expected/{name}/{index}", code

    def found(self, pointer: str, rule: str, message: str, severity: Severity = "error") -> Finding:
        """Say what is wrong in a place of the case's file."""
        return Finding(file=self.filed.file, pointer=pointer, rule=rule, message=message, severity=severity)


def lint(cases: Sequence[FiledCase], rules: TariffSuiteConfig, options: Mapping[str, Path]) -> Iterator[Finding]:
    """Give what the rules of this pack find.

    Args:
        cases: the cases that can be read.
        rules: what `suite.yaml` says.
        options: under `hts` the file of the schedule; without it codes and rates are not looked up.

    Raises:
        ScheduleError: the file is no schedule.
        OSError: the file can't be read.
    """
    subjects = [Subject(filed, rules) for filed in cases]
    yield from _thresholds(subjects)
    for subject in subjects:
        yield from leaks(subject.case, subject.filed.file)
        for rule in _RULES:
            yield from rule(subject)
    if SCHEDULE in options:
        from pytest_packbench.packs.tariff.schedule import Schedule

        schedule = Schedule.read(options[SCHEDULE])
        for subject in subjects:
            yield from _look_up(subject, schedule)


def _thresholds(subjects: Iterable[Subject]) -> Iterable[Finding]:
    """Judge each threshold once, where it stands."""
    found: dict[tuple[str, str, str], Finding] = {}
    for finding in (one for subject in subjects for one in _threshold(subject)):
        found.setdefault((finding.file, finding.pointer, finding.rule), finding)
    return found.values()


def _threshold(subject: Subject) -> Iterator[Finding]:
    case, scoring = subject.case, subject.rules.scoring
    accepts = case.expected.expected_accept
    threshold = threshold_of(case, subject.rules)
    best = min(1.0, scoring.preferred + scoring.bonus) if accepts else 1.0
    wrong = scoring.chapter + scoring.bonus if accepts else scoring.wrong_refusal_category
    file, pointer = _place_of_threshold(subject)
    if threshold > best + TOLERANCE:
        message = f"got {threshold:g}; no answer scores over {best:g}"
        yield Finding(file=file, pointer=pointer, rule="threshold_unreachable", message=message)
    # a suite's threshold of zero is found by the general rules
    elif threshold <= wrong + TOLERANCE and (threshold > 0 or file != CONFIG_NAME):
        what = "a code of the right chapter" if accepts else "a refusal of the wrong category"
        message = f"got {threshold:g}; {what} scores {wrong:g} and would pass"
        yield Finding(file=file, pointer=pointer, rule="threshold_low", message=message)
    partial_credit = min(1.0, scoring.allowed + scoring.bonus)
    if case.expected.allowed_hts and threshold > partial_credit + TOLERANCE:
        message = f"an allowed code scores {partial_credit:g} at most and can't reach the threshold of {threshold:g}"
        yield subject.found("/expected/allowed_hts", "allowed_unreachable", message, "warning")


def _place_of_threshold(subject: Subject) -> tuple[str, str]:
    if subject.expected.threshold is not None:
        return subject.filed.file, "/expected/threshold"
    if subject.case.case_type in subject.rules.thresholds.by_type:
        return CONFIG_NAME, f"/thresholds/by_type/{subject.case.case_type}"
    return CONFIG_NAME, f"/thresholds/{'accept' if subject.expected.expected_accept else 'refuse'}"


def _preferred(subject: Subject) -> Iterator[Finding]:
    expected = subject.expected
    if expected.expected_accept and not expected.preferred_hts:
        yield subject.found("/expected/preferred_hts", "preferred_missing", "an answer is due; name its code")
    if not expected.expected_accept and expected.preferred_hts:
        yield subject.found("/expected/preferred_hts", "preferred_undue", "a refusal is due; take the codes out")
    if expected.expected_accept and not expected.must_not_hts:
        message = "name at least one near code that a careless answer would give, with the reason why it is wrong"
        yield subject.found("/expected/must_not_hts", "forbidden_missing", message)


def _code_form(subject: Subject) -> Iterator[Finding]:
    for pointer, code in subject.codes():
        count = len(digits(code))
        if count not in LEVELS:
            message = f"got {count} digits in {code}; expected {', '.join(map(str, LEVELS))}"
            yield subject.found(pointer, "code_length", message)
        elif not _WRITTEN.fullmatch(code):
            yield subject.found(pointer, "code_form", f"got {code}; write it as ####.##.####")
        elif chapter(code) in _NO_GOODS:
            yield subject.found(pointer, "code_impossible", f"got {code}; chapter {chapter(code)} classifies no goods")
        elif "preferred" in pointer and count != _FULL:
            yield subject.found(pointer, "preferred_length", f"got {count} digits in {code}; expected {_FULL}")


def _code_conflicts(subject: Subject) -> Iterator[Finding]:
    wanted = list(subject.codes("preferred_hts", "allowed_hts"))
    forbidden = list(subject.codes("must_not_hts"))
    for pointer, code in forbidden:
        for _, other in wanted:
            if digits(code) == digits(other):
                message = f"{code} is preferred or allowed, and forbidden; decide"
                yield subject.found(pointer, "code_conflict", message)
            elif stands_under(other, code):
                message = f"{code} forbids {other}, which is preferred or allowed; forbid a longer code"
                yield subject.found(pointer, "forbidden_covers_gold", message)
    yield from _repeated(subject, wanted)
    yield from _repeated(subject, forbidden)
    for pointer, code in forbidden:
        wider = next((one for _, one in forbidden if stands_under(code, one) and digits(one) != digits(code)), None)
        if wider is not None:
            message = f"{code} can't be reached: {wider} forbids it already"
            yield subject.found(pointer, "forbidden_unreachable", message, "warning")


def _repeated(subject: Subject, codes: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    seen: set[str] = set()
    for pointer, code in codes:
        if digits(code) in seen:
            yield subject.found(pointer, "code_repeated", f"{code} stands twice; keep one")
        seen.add(digits(code))


def _reasons(subject: Subject) -> Iterator[Finding]:
    reasons = {digits(code): text for code, text in subject.notes.reasons.items()}
    for pointer, code in subject.codes("allowed_hts", "must_not_hts"):
        if not reasons.get(digits(code), "").strip():
            yield subject.found(pointer, "reason_missing", f"say in /notes/reasons why {code} is wrong or near enough")
    known = {digits(code) for _, code in subject.codes()}
    for code in subject.notes.reasons:
        if digits(code) not in known:
            message = f"a reason for {dotted(code)}, which the case doesn't name; correct the code or drop it"
            yield subject.found(f"/notes/reasons/{code}", "reason_unused", message)


def _type_against_expectation(subject: Subject) -> Iterator[Finding]:
    case_type, expected = subject.case.case_type, subject.expected
    due = _ACCEPTS.get(case_type)
    if due is not None and due is not expected.expected_accept:
        message = f'a case of type "{case_type}" expects {"an answer" if due else "a refusal"}; change one of them'
        yield subject.found("/expected/expected_accept", "type_expectation", message)
        return
    if case_type == "no_savings" and not expected.no_savings_expected:
        message = 'a case of type "no_savings" forbids savings; set it to true'
        yield subject.found("/expected/no_savings_expected", "type_expectation", message)
    if case_type == "savings_possible" and not expected.lever_found_expected:
        message = 'a case of type "savings_possible" expects a lever; set it to true'
        yield subject.found("/expected/lever_found_expected", "type_expectation", message)


def _savings(subject: Subject) -> Iterator[Finding]:
    expected = subject.expected
    pointer = "/expected/no_savings_expected"
    if expected.no_savings_expected:
        for key in _levers_due(expected):
            message = f"savings are forbidden, and {key} asks for them; decide"
            yield subject.found(pointer, "savings_conflict", message)
    elif expected.lever_found_expected is False:
        for key in _levers_due(expected):
            message = f"no lever is expected, and {key} asks for one; decide"
            yield subject.found("/expected/lever_found_expected", "savings_conflict", message)
    if expected.expected_best_is_multi_step is False and (expected.min_lever_steps or 0) >= _MULTI_STEP:
        message = f"a single step is expected, and min_lever_steps asks for {expected.min_lever_steps}; decide"
        yield subject.found("/expected/expected_best_is_multi_step", "savings_conflict", message)
    yield from _direction(subject)


def _levers_due(expected: Expected) -> Iterator[str]:
    asked = {
        "lever_found_expected": expected.lever_found_expected,
        "lever_count_min": expected.lever_count_min,
        "lever_compliance_ok": expected.lever_compliance_ok,
        "expected_best_is_multi_step": expected.expected_best_is_multi_step,
        "min_lever_steps": expected.min_lever_steps,
        "expected_duty_delta_direction": expected.expected_duty_delta_direction == "decrease",
    }
    return (key for key, value in asked.items() if value)


def _direction(subject: Subject) -> Iterator[Finding]:
    limits, direction = subject.expected.duty_delta_range, subject.expected.expected_duty_delta_direction
    if limits is None:
        return
    low, high = limits
    possible = {"decrease": low < 0, "increase": high > 0, "flat": low <= 0 <= high}
    if direction is not None and not possible[direction]:
        message = f"{low:g} to {high:g} points and the direction {direction} exclude each other; decide"
        yield subject.found("/expected/duty_delta_range", "savings_conflict", message)
    elif subject.expected.no_savings_expected and high < 0:
        message = f"savings are forbidden, and {low:g} to {high:g} points asks for them; decide"
        yield subject.found("/expected/duty_delta_range", "savings_conflict", message)


def _refusal(subject: Subject) -> Iterator[Finding]:
    expected = subject.expected
    if expected.expected_accept:
        if expected.expected_refusal_category is not None:
            message = "an answer is due; no category is looked at"
            yield subject.found("/expected/expected_refusal_category", "expectation_unused", message)
        return
    if expected.expected_refusal_category is None:
        message = "any refusal passes; name the category that is due"
        yield subject.found("/expected/expected_refusal_category", "refusal_category_missing", message)
    for key in _unused_in_refusal(expected):
        yield subject.found(f"/expected/{key}", "expectation_unused", "a refusal is due, and this is never looked at")


def _unused_in_refusal(expected: Expected) -> Iterator[str]:
    if expected.allowed_hts:
        yield "allowed_hts"
    if expected.no_savings_expected:
        yield "no_savings_expected"
    for key in (
        "duty_delta_range",
        "expected_duty_total_rate_pct",
        "expected_duty_delta_direction",
        "lever_found_expected",
        "lever_count_min",
        "lever_compliance_ok",
        "expected_best_is_multi_step",
        "min_lever_steps",
    ):
        if getattr(expected, key) is not None:
            yield key


def _edition(subject: Subject) -> Iterator[Finding]:
    own, suite = subject.notes.hts_edition, subject.rules.hts_edition
    if own is None:
        yield subject.found("/notes/hts_edition", "edition_missing", "name the edition in which the codes are right")
    elif suite is not None and own != suite:
        message = f'got "{own}"; the codes of the suite come from "{suite}"'
        yield subject.found("/notes/hts_edition", "edition_other", message)


def _source(subject: Subject) -> Iterator[Finding]:
    source = subject.notes.source
    if source.startswith("ruling:") and not _RULING.fullmatch(source):
        message = f'got "{source}"; expected the number of a ruling, such as ruling:N270709'
        yield subject.found("/notes/source", "source_form", message)


def _tags(subject: Subject) -> Iterator[Finding]:
    for index, tag in enumerate(subject.notes.tags):
        if tag not in TAGS and not _VALUED_TAG.fullmatch(tag):
            yield subject.found(f"/notes/tags/{index}", "tag_unknown", f'"{tag}" is not in the vocabulary')
    yield from _chapter_tag(subject)
    yield from _year_tag(subject)


def _chapter_tag(subject: Subject) -> Iterator[Finding]:
    tagged = _values(subject, _CHAPTER_TAG)
    if len(tagged) != 1:
        message = f"got {len(tagged)} tags chapter_NN; expected exactly one"
        yield subject.found("/notes/tags", "chapter_tag", message)
        return
    golds = {chapter(code) for code in subject.expected.preferred_hts}
    if golds and not golds & set(tagged):
        message = f"got chapter_{tagged[0]}; the preferred code is of chapter {', '.join(sorted(golds))}"
        yield subject.found("/notes/tags", "chapter_tag", message)


def _year_tag(subject: Subject) -> Iterator[Finding]:
    years, date = _values(subject, _YEAR_TAG), subject.notes.date
    is_ruling = subject.notes.source.startswith("ruling:")
    wanted = [date[:4]] if is_ruling and date is not None else []
    if years != wanted and (date is not None or not is_ruling):
        expected = f"ruling_year_{wanted[0]}, as the date says" if wanted else "none: the source is no ruling"
        got = ", ".join(f"ruling_year_{year}" for year in years) or "no such tag"
        yield subject.found("/notes/tags", "year_tag", f"got {got}; expected {expected}")


def _values(subject: Subject, pattern: re.Pattern[str]) -> list[str]:
    return [match[1] for tag in dict.fromkeys(subject.notes.tags) if (match := pattern.fullmatch(tag))]


def _length(subject: Subject) -> Iterator[Finding]:
    count = len(subject.case.input.input.split())
    if not LEAST_WORDS <= count <= MOST_WORDS:
        message = f"got {count} words; expected {LEAST_WORDS} to {MOST_WORDS}"
        yield subject.found("/input/input", "description_length", message)


def _evidence(subject: Subject) -> Iterator[Finding]:
    documents, tags = subject.case.input.evidence, subject.notes.tags
    if CITATION_TRAP in tags and not documents:
        message = "a citation trap needs a document that could be quoted wrongly"
        yield subject.found("/input/evidence", "citation_trap_evidence", message)
    if (EVIDENCE in tags) != bool(documents):
        message = f'the tag "{EVIDENCE}" stands for documents in /input/evidence; add or drop one of them'
        yield subject.found("/notes/tags", "evidence_tag", message)
    seen: set[str] = set()
    for index, document in enumerate(documents):
        if document.source_id in seen:
            message = f'"{document.source_id}" stands twice; a citation could mean either'
            yield subject.found(f"/input/evidence/{index}/source_id", "evidence_repeated", message)
        seen.add(document.source_id)


_RULES: tuple[Callable[[Subject], Iterable[Finding]], ...] = (
    _preferred,
    _code_form,
    _code_conflicts,
    _reasons,
    _type_against_expectation,
    _savings,
    _refusal,
    _edition,
    _source,
    _tags,
    _length,
    _evidence,
)


@dataclass(frozen=True, slots=True)
class _Final:
    """The last proposal of a cassette and where it stands."""

    file: str
    pointer: str
    proposal: Proposal


def _look_up(subject: Subject, schedule: Schedule) -> Iterator[Finding]:
    """Compare the codes and rates of a case and of its cassette's last proposal with the schedule."""
    for pointer, code in subject.codes():
        # a code of an odd length is found by the rules without a schedule
        if len(digits(code)) in LEVELS and not schedule.exists(code):
            yield subject.found(pointer, "code_unknown", _unknown(code, schedule))
    final = _final(subject)
    yield from _expected_rate(subject, schedule, final)
    if final is not None:
        yield from _proposed_codes(final, schedule)
        yield from _proposed_rates(final, schedule)


def _unknown(code: str, schedule: Schedule) -> str:
    depth, count = schedule.depth(code), len(digits(code))
    if depth == 0:
        return f"{code} is not in the schedule, nor is its chapter"
    return f"{code} is not in the schedule: it exists to {depth} of {count} digits"


def _final(subject: Subject) -> _Final | None:
    """Give the last proposal; None without one that can be read, as in a recording that ends in a refusal."""
    from pytest_packbench.packs.tariff.dossier import Proposal

    cassette = subject.filed.cassette
    exchanges = [] if cassette is None else list(enumerate(cassette.exchanges))
    for index, exchange in reversed(exchanges):
        if exchange.role in _ANSWERS:
            try:
                proposal = Proposal.model_validate(exchange.answer)
            except ValidationError:
                return None
            return _Final(subject.filed.cassette_file, f"/exchanges/{index}/answer", proposal)
    return None


def _expected_rate(subject: Subject, schedule: Schedule, final: _Final | None) -> Iterator[Finding]:
    total, preferred = subject.expected.expected_duty_total_rate_pct, subject.expected.preferred_hts
    if total is None or not preferred:
        return
    rate = schedule.rate(preferred[0])
    pointer = "/expected/expected_duty_total_rate_pct"
    if rate is None or rate.pct is None:
        text = rate.text if rate else "no rate"
        message = f"got {total:g}; the schedule says {text}, which is no percentage of value: drop it"
        yield subject.found(pointer, "duty_rate", message)
        return
    layers = _layers(final)
    if not _agree(total, rate.pct + layers):
        more = f" and the cassette adds {layers:g}" if layers else ""
        yield subject.found(pointer, "duty_rate", f"got {total:g}; the schedule says {rate.text}{more}")


def _layers(final: _Final | None) -> float:
    baseline = None if final is None else final.proposal.baseline
    return sum(layer.pct for layer in baseline.duty_breakdown.applied_additional_duties) if baseline else 0.0


def _proposed_codes(final: _Final, schedule: Schedule) -> Iterator[Finding]:
    for pointer, code in _codes(final.proposal):
        if not schedule.exists(code):
            yield _found(final, pointer, "cassette_code", _unknown(code, schedule))


def _codes(proposal: Proposal) -> Iterator[tuple[str, str]]:
    if proposal.baseline is not None:
        yield "/baseline/hts_code", proposal.baseline.hts_code
    if proposal.optimized is not None:
        yield "/optimized/hts_code", proposal.optimized.hts_code
    for index, what_if in enumerate(proposal.what_if_candidates):
        yield f"/what_if_candidates/{index}/expected_hts", what_if.expected_hts


def _proposed_rates(final: _Final, schedule: Schedule) -> Iterator[Finding]:
    baseline, optimized = final.proposal.baseline, final.proposal.optimized
    if baseline is not None and (rate := schedule.rate(baseline.hts_code)) is not None:
        yield from _baseline_rate(final, baseline, rate)
    # a duty on top of the baseline may or may not hold for the changed goods
    if optimized is None or _layers(final) or (rate := schedule.rate(optimized.hts_code)) is None:
        return
    # the change may be what an agreement's rule of origin asks for
    possible = (rate, *schedule.preferences(optimized.hts_code))
    if not any(_agree(optimized.duty_rate_pct, one.pct) for one in possible):
        texts = " or ".join(dict.fromkeys(one.text for one in possible))
        message = f"got {_percent(optimized.duty_rate_pct)}; the schedule says {texts}"
        yield _found(final, "/optimized/duty_rate_pct", "cassette_duty", message)


def _baseline_rate(final: _Final, baseline: Classification, rate: Rate) -> Iterator[Finding]:
    if rate.basis is not None and baseline.duty_basis != rate.basis:
        message = f"got {baseline.duty_basis}; the schedule says {rate.text}, which is {rate.basis}"
        yield _found(final, "/baseline/duty_basis", "cassette_duty", message)
    base = baseline.duty_breakdown.base_rate_pct
    if not _agree(base, rate.pct):
        message = f"got {_percent(base)}; the schedule says {rate.text}"
        yield _found(final, "/baseline/duty_breakdown/base_rate_pct", "cassette_duty", message)


def _agree(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return math.isclose(left, right, rel_tol=0.0, abs_tol=_RATE_TOLERANCE)


def _percent(value: float | None) -> str:
    return "null" if value is None else f"{value:g}"


def _found(final: _Final, pointer: str, rule: str, message: str) -> Finding:
    return Finding(file=final.file, pointer=final.pointer + pointer, rule=rule, message=message)
