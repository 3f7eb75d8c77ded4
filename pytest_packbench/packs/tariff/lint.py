"""Lint rules for tariff cases: leaks, codes, expectations and notes; with a schedule, also codes and duty rates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pytest_packbench.model.authoring import Finding
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs.tariff.edition import describe_unlisted, load_edition, read_edition
from pytest_packbench.packs.tariff.leaks import leaks
from pytest_packbench.packs.tariff.model import CODE_LISTS
from pytest_packbench.packs.tariff.notation import chapter, digits, dotted, is_under, line_of
from pytest_packbench.packs.tariff.savings import RATE_TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.authoring import FiledCase, Severity
    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.model import (
        ExpectedArticle,
        SavingTarget,
        TariffCase,
        TariffExpected,
        TariffNotes,
        TariffSuiteConfig,
    )

SCHEDULE = "hts"
"""The name of the option for the tariff schedule's file."""
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
        "several_articles",
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
"""The tags without a value; those with one are `chapter_NN`, `ruling_year_YYYY` and `pair_<slug>`."""
MIN_WORDS, MAX_WORDS = 40, 200

_VALUED_TAG = re.compile(r"chapter_\d{2}|ruling_year_\d{4}|pair_[a-z0-9_]+")
_CHAPTER_TAG = re.compile(r"chapter_(\d{2})")
_YEAR_TAG = re.compile(r"ruling_year_(\d{4})")
_RULING = re.compile(r"ruling:(?:(?:NY|HQ)[-_])?[A-Z]?\d{5,6}")
_CODE_FORMAT = re.compile(r"\d{2}|\d{4}|\d{4}\.\d{2}|\d{4}\.\d{2}\.\d{2}|\d{4}\.\d{2}\.\d{2}\.?\d{2}")
_FULL_DIGITS = 10
# 77 is reserved; codes of 98 and 99 are reported in addition to a code, never instead of one
_CHAPTERS_WITHOUT_GOODS = frozenset({"00", "77", "98", "99"})
_LEVER_KEYS = (
    "lever_found_expected",
    "lever_count_min",
    "lever_compliance_ok",
    "expected_best_is_multi_step",
    "min_lever_steps",
)
_EXPECTED_ACCEPT = {"positive": True, "negative": False, "no_savings": True, "savings_possible": True}
_MULTI_STEP = 2
_RATED = (8, 10)


@dataclass(frozen=True, slots=True)
class LintedCase:
    """A case with its file, its cassette and the configuration of its suite."""

    filed: FiledCase
    rules: TariffSuiteConfig

    @property
    def case(self) -> TariffCase:
        """The case."""
        return cast("TariffCase", self.filed.loaded.case)

    @property
    def expected(self) -> TariffExpected:
        """The expectations of the case."""
        return self.case.expected

    @property
    def notes(self) -> TariffNotes:
        """The notes of the case."""
        return self.case.notes

    def codes(self, *names: str) -> Iterator[tuple[str, str]]:
        """Yield the codes of the named lists (default: all) with their pointers, those of several articles too."""
        for pointer, _ in self.scopes():
            yield from self.codes_of(pointer, *names)

    def scopes(self) -> Iterator[tuple[str, TariffExpected | ExpectedArticle]]:
        """Yield the expectations and each of several articles with their pointers."""
        yield "/expected", self.expected
        for index, article in enumerate(self.expected.articles or ()):
            yield f"/expected/articles/{index}", article

    def codes_of(self, scope: str, *names: str) -> Iterator[tuple[str, str]]:
        """Yield the codes of the named lists (default: all) of one scope with their pointers."""
        lists = dict(self.scopes())[scope]
        for name in names or CODE_LISTS:
            for index, code in enumerate(getattr(lists, name) or ()):
                yield f"{scope}/{name}/{index}", code

    def finding(self, pointer: str, rule: str, message: str, severity: Severity = "error") -> Finding:
        """Return a finding in the case's file."""
        return Finding(file=self.filed.file, pointer=pointer, rule=rule, message=message, severity=severity)


def lint(cases: Sequence[FiledCase], rules: TariffSuiteConfig, options: Mapping[str, Path]) -> Iterator[Finding]:
    """Run the lint rules of the tariff pack; with the option `hts` codes and rates are looked up in the schedule.

    Raises:
        ScheduleError: the file is not a schedule.
        OSError: the file can't be read.
    """
    linted_cases = [LintedCase(filed, rules) for filed in cases]
    yield from _thresholds(linted_cases)
    for linted in linted_cases:
        yield from leaks(linted.case, linted.filed.file)
        for rule in _CASE_RULES:
            yield from rule(linted)
    if SCHEDULE in options:
        edition = read_edition(options[SCHEDULE])
        for linted in linted_cases:
            yield from _schedule_findings(linted, edition)


def _thresholds(linted_cases: Iterable[LintedCase]) -> Iterable[Finding]:
    """Check each threshold once, where it is set."""
    findings: dict[tuple[str, str, str], Finding] = {}
    for linted in linted_cases:
        for finding in _threshold(linted):
            findings.setdefault((finding.file, finding.pointer, finding.rule), finding)
    return findings.values()


def _threshold(linted: LintedCase) -> Iterator[Finding]:
    case, scoring = linted.case, linted.rules.scoring
    accepts = case.expected.expected_accept
    threshold = linted.rules.threshold_of(case)
    highest = min(1.0, scoring.preferred + scoring.bonus) if accepts else 1.0
    file, pointer = _threshold_location(linted)
    if threshold > highest + TOLERANCE:
        message = f"got {threshold:g}; the highest possible score is {highest:g}, lower the threshold"
        yield Finding(file=file, pointer=pointer, rule="threshold_unreachable", message=message)
    partial_credit = min(1.0, scoring.allowed + scoring.bonus)
    if case.expected.allowed_hts and threshold > partial_credit + TOLERANCE:
        message = (
            f"an allowed code scores at most {partial_credit:g}, below the threshold of {threshold:g}, and never passes"
        )
        yield linted.finding("/expected/allowed_hts", "allowed_unreachable", message, "warning")


def _threshold_location(linted: LintedCase) -> tuple[str, str]:
    if linted.expected.threshold is not None:
        return linted.filed.file, "/expected/threshold"
    if linted.case.case_type in linted.rules.thresholds.by_type:
        return CONFIG_NAME, f"/thresholds/by_type/{linted.case.case_type}"
    return CONFIG_NAME, f"/thresholds/{'accept' if linted.expected.expected_accept else 'refuse'}"


def _preferred(linted: LintedCase) -> Iterator[Finding]:
    expected = linted.expected
    if expected.expected_accept and not expected.preferred_hts and not expected.articles:
        yield linted.finding("/expected/preferred_hts", "preferred_missing", "the case expects an answer; add its code")
    if not expected.expected_accept and expected.preferred_hts:
        yield linted.finding(
            "/expected/preferred_hts", "preferred_undue", "the case expects a refusal; remove the codes"
        )
    if expected.expected_accept and not any(linted.codes("must_not_hts")):
        message = "add at least one similar code that a careless answer would give, with the reason why it is wrong"
        yield linted.finding("/expected/must_not_hts", "forbidden_missing", message)


def _code_form(linted: LintedCase) -> Iterator[Finding]:
    for pointer, code in linted.codes():
        count = len(digits(code))
        if not _CODE_FORMAT.fullmatch(code):
            yield linted.finding(pointer, "code_form", f"got {code}; expected the format ####.##.####")
        elif chapter(code) in _CHAPTERS_WITHOUT_GOODS:
            yield linted.finding(pointer, "code_impossible", f"got {code}; chapter {chapter(code)} classifies no goods")
        # the suffix of one of several articles may hang on facts that decide nothing else
        elif pointer.startswith("/expected/preferred") and count != _FULL_DIGITS:
            yield linted.finding(pointer, "preferred_length", f"got {count} digits in {code}; expected {_FULL_DIGITS}")


def _code_conflicts(linted: LintedCase) -> Iterator[Finding]:
    for scope, _ in linted.scopes():
        accepted = list(linted.codes_of(scope, "preferred_hts", "allowed_hts"))
        everywhere = [] if scope == "/expected" else list(linted.codes_of("/expected", "must_not_hts"))
        forbidden = list(linted.codes_of(scope, "must_not_hts"))
        yield from _conflicts(linted, accepted, forbidden, everywhere)


def _conflicts(
    linted: LintedCase,
    accepted: list[tuple[str, str]],
    forbidden: list[tuple[str, str]],
    everywhere: list[tuple[str, str]],
) -> Iterator[Finding]:
    """Check the codes of one scope; `everywhere` are those that the case forbids for each article."""
    for pointer, code in (*forbidden, *everywhere):
        for _, other in accepted:
            if line_of(code) == line_of(other):
                message = f"{code} is both accepted and forbidden; remove one of them"
                yield linted.finding(pointer, "code_conflict", message)
            elif is_under(other, code):
                message = f"{code} also forbids {other}, which is preferred or allowed; forbid a longer code"
                yield linted.finding(pointer, "forbidden_covers_gold", message)
    yield from _repeated(linted, accepted)
    yield from _repeated(linted, forbidden)
    for pointer, code in forbidden:
        wider = next(
            (prefix for _, prefix in forbidden if is_under(code, prefix) and line_of(prefix) != line_of(code)), None
        )
        if wider is not None:
            message = f"{code} has no effect: {wider} already forbids it; remove one of them"
            yield linted.finding(pointer, "forbidden_unreachable", message, "warning")


def _repeated(linted: LintedCase, codes: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    seen: set[str] = set()
    for pointer, code in codes:
        if line_of(code) in seen:
            yield linted.finding(pointer, "code_repeated", f"duplicate code {code}; remove one")
        seen.add(line_of(code))


def _reasons(linted: LintedCase) -> Iterator[Finding]:
    reasons = {line_of(code): text for code, text in linted.notes.reasons.items()}
    for pointer, code in linted.codes("allowed_hts", "must_not_hts"):
        if not reasons.get(line_of(code), "").strip():
            yield linted.finding(
                pointer, "reason_missing", f"no reason for {code} in /notes/reasons; add why it is allowed or forbidden"
            )
    listed = {line_of(code) for _, code in linted.codes()}
    for code in linted.notes.reasons:
        if line_of(code) not in listed:
            message = f"the case does not list the code {dotted(code)}; correct the code or remove the reason"
            yield linted.finding(f"/notes/reasons/{code}", "reason_unused", message)


def _type_against_expectation(linted: LintedCase) -> Iterator[Finding]:
    case_type, expected = linted.case.case_type, linted.expected
    expected_accept = _EXPECTED_ACCEPT.get(case_type)
    if expected_accept is not None and expected_accept is not expected.expected_accept:
        decision = "an answer" if expected_accept else "a refusal"
        message = f'a case of type "{case_type}" expects {decision}; change the type or the expectation'
        yield linted.finding("/expected/expected_accept", "type_expectation", message)
        return
    if case_type == "no_savings" and not expected.no_savings_expected:
        message = 'a case of type "no_savings" forbids savings; set no_savings_expected to true'
        yield linted.finding("/expected/no_savings_expected", "type_savings", message)
    if case_type == "savings_possible" and not expected.lever_found_expected:
        message = 'a case of type "savings_possible" expects a lever; set lever_found_expected to true'
        yield linted.finding("/expected/lever_found_expected", "type_savings", message)


def _savings(linted: LintedCase) -> Iterator[Finding]:
    expected = linted.expected
    pointer = "/expected/no_savings_expected"
    if expected.no_savings_expected:
        for key in _lever_requirements(expected):
            message = f"savings are forbidden, but {key} requires them; change one of them"
            yield linted.finding(pointer, "savings_conflict", message)
    elif expected.lever_found_expected is False:
        for key in _lever_requirements(expected):
            message = f"levers are forbidden, but {key} requires one; change one of them"
            yield linted.finding("/expected/lever_found_expected", "savings_conflict", message)
    if expected.expected_best_is_multi_step is False and (expected.min_lever_steps or 0) >= _MULTI_STEP:
        message = f"a single step is expected, but min_lever_steps is {expected.min_lever_steps}; change one of them"
        yield linted.finding("/expected/expected_best_is_multi_step", "savings_conflict", message)
    yield from _direction(linted)
    yield from _expected_savings(linted)


def _expected_savings(linted: LintedCase) -> Iterator[Finding]:
    expected, pointer = linted.expected, "/expected/savings"
    seen: set[str] = set()
    for index, change in enumerate(linted.case.input.options.changes):
        if change.id in seen:
            message = f'duplicate change "{change.id}"; an answer could name either, rename one'
            yield linted.finding(f"/input/options/changes/{index}/id", "savings_change", message)
        seen.add(change.id)
    if expected.savings is None:
        if linted.case.case_type == "savings_possible":
            message = (
                "the accepted savings are missing; add their codes, the change that each needs, and the least saving"
            )
            yield linted.finding(pointer, "savings_missing", message)
        return
    if expected.no_savings_expected:
        yield linted.finding(pointer, "savings_conflict", "savings are both forbidden and expected; remove one of them")
    edition = None if linted.rules.schedule is None else load_edition(linted.rules.schedule)
    for index, target in enumerate(expected.savings.targets):
        place = f"{pointer}/targets/{index}"
        if target.change not in seen:
            known = ", ".join(sorted(seen)) or "no change"
            message = f'"{target.change}" is no change of /input/options/changes; expected one of {known}'
            yield linted.finding(f"{place}/change", "savings_change", message)
        if problem := _target_problem(target, expected, edition):
            yield linted.finding(f"{place}/code", "savings_target", problem)


def _target_problem(target: SavingTarget, expected: TariffExpected, edition: Edition | None) -> str:
    """Return why a code can't be the target of a saving; empty if it can."""
    plain = digits(target.code)
    if len(plain) not in _RATED:
        return f"got {len(plain)} digits in {target.code}; a rate needs 8 or 10"
    if edition is None or expected.savings is None:
        return ""
    rate = edition.rate(plain)
    after = target.rate_pct if target.rate_pct is not None else rate.pct if rate is not None else None
    if after is None:
        return f"the schedule has {rate.text if rate else 'no rate'} for {target.code}, not a percentage of value"
    for code in expected.preferred_hts:
        base = edition.rate(digits(code))
        if base is not None and base.pct is not None and base.pct - after < expected.savings.least - RATE_TOLERANCE:
            saved = f"{target.code} at {after:g} % saves {base.pct - after:g} percentage points against {code}"
            return f"{saved}; expected at least {expected.savings.least:g}"
    return ""


def _lever_requirements(expected: TariffExpected) -> Iterator[str]:
    yield from (key for key in _LEVER_KEYS if getattr(expected, key))
    if expected.expected_duty_delta_direction == "decrease":
        yield "expected_duty_delta_direction"


def _direction(linted: LintedCase) -> Iterator[Finding]:
    limits, direction = linted.expected.duty_delta_range, linted.expected.expected_duty_delta_direction
    if limits is None:
        return
    low, high = limits
    possible = {"decrease": low < 0, "increase": high > 0, "flat": low <= 0 <= high}
    if direction is not None and not possible[direction]:
        message = f"{low:g} to {high:g} percentage points exclude the direction {direction}; change one of them"
        yield linted.finding("/expected/duty_delta_range", "savings_conflict", message)
    elif linted.expected.no_savings_expected and high < 0:
        message = f"savings are forbidden, but {low:g} to {high:g} percentage points require them; change one of them"
        yield linted.finding("/expected/duty_delta_range", "savings_conflict", message)


def _refusal(linted: LintedCase) -> Iterator[Finding]:
    expected = linted.expected
    if not expected.expected_accept and expected.expected_refusal_category is None:
        message = "any refusal would pass; add the expected category"
        yield linted.finding("/expected/expected_refusal_category", "refusal_category_missing", message)


def _edition(linted: LintedCase) -> Iterator[Finding]:
    case_edition, suite_edition = linted.notes.hts_edition, linted.rules.hts_edition
    if case_edition is None:
        message = "the edition is missing; add the edition of the schedule that the codes come from"
        yield linted.finding("/notes/hts_edition", "edition_missing", message)
    elif suite_edition is not None and case_edition != suite_edition:
        message = f'got "{case_edition}"; expected "{suite_edition}", the edition of the suite'
        yield linted.finding("/notes/hts_edition", "edition_other", message)


def _source(linted: LintedCase) -> Iterator[Finding]:
    source = linted.notes.source
    if source.startswith("ruling:") and not _RULING.fullmatch(source):
        message = f'got "{source}"; expected the number of a ruling, such as ruling:N270709'
        yield linted.finding("/notes/source", "source_form", message)


def _tags(linted: LintedCase) -> Iterator[Finding]:
    for index, tag in enumerate(linted.notes.tags):
        if tag not in TAGS and not _VALUED_TAG.fullmatch(tag):
            message = f'unknown tag "{tag}"; use a tag of the tariff vocabulary, such as gri_1 or chapter_64'
            yield linted.finding(f"/notes/tags/{index}", "tag_unknown", message)
    yield from _chapter_tag(linted)
    yield from _year_tag(linted)


def _chapter_tag(linted: LintedCase) -> Iterator[Finding]:
    tagged = _tag_values(linted, _CHAPTER_TAG)
    if len(tagged) != 1:
        message = f"got {len(tagged)} tags chapter_NN; expected exactly 1"
        yield linted.finding("/notes/tags", "chapter_tag", message)
        return
    preferred = {chapter(code) for _, code in linted.codes("preferred_hts")}
    if preferred and not preferred & set(tagged):
        message = f"got chapter_{tagged[0]}; the preferred code is in chapter {', '.join(sorted(preferred))}"
        yield linted.finding("/notes/tags", "chapter_tag", message)


def _year_tag(linted: LintedCase) -> Iterator[Finding]:
    years, date = _tag_values(linted, _YEAR_TAG), linted.notes.date
    is_ruling = linted.notes.source.startswith("ruling:")
    expected_years = [date[:4]] if is_ruling and date is not None else []
    if years != expected_years and (date is not None or not is_ruling):
        expected = f"ruling_year_{date[:4]}, the year of the date" if date and is_ruling else "none for this source"
        actual = ", ".join(f"ruling_year_{year}" for year in years) or "no tag ruling_year_YYYY"
        yield linted.finding("/notes/tags", "year_tag", f"got {actual}; expected {expected}")


def _tag_values(linted: LintedCase, pattern: re.Pattern[str]) -> list[str]:
    return [match[1] for tag in dict.fromkeys(linted.notes.tags) if (match := pattern.fullmatch(tag))]


def _length(linted: LintedCase) -> Iterator[Finding]:
    count = len(linted.case.input.input.split())
    if not MIN_WORDS <= count <= MAX_WORDS:
        message = f"got {count} words; expected {MIN_WORDS} to {MAX_WORDS}"
        yield linted.finding("/input/input", "description_length", message)


def _evidence(linted: LintedCase) -> Iterator[Finding]:
    documents, tags = linted.case.input.evidence, linted.notes.tags
    if CITATION_TRAP in tags and not documents:
        message = "a citation trap needs evidence that could be quoted wrongly; add a document"
        yield linted.finding("/input/evidence", "citation_trap_evidence", message)
    if (EVIDENCE in tags) != bool(documents):
        message = f'the tag "{EVIDENCE}" must be present exactly if /input/evidence is not empty; add or remove it'
        yield linted.finding("/notes/tags", "evidence_tag", message)
    seen: set[str] = set()
    for index, document in enumerate(documents):
        if document.source_id in seen:
            message = f'duplicate source_id "{document.source_id}"; a citation could refer to either, rename one'
            yield linted.finding(f"/input/evidence/{index}/source_id", "evidence_repeated", message)
        seen.add(document.source_id)


def _cited_documents(linted: LintedCase) -> Iterator[Finding]:
    expected, documents = linted.expected, [document.source_id for document in linted.case.input.evidence]
    required = expected.must_cite or ()
    for key in ("must_cite", "must_not_cite"):
        for index, source in enumerate(getattr(expected, key) or ()):
            pointer = f"/expected/{key}/{index}"
            if source not in documents:
                known = ", ".join(documents) or "no key"
                message = f'"{source}" is no document of /input/evidence; expected one of {known}'
                yield linted.finding(pointer, "cited_document", message)
            elif key == "must_not_cite" and source in required:
                yield linted.finding(pointer, "cited_document", f'"{source}" must be cited as well; remove one of them')


_CASE_RULES: tuple[Callable[[LintedCase], Iterable[Finding]], ...] = (
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
    _cited_documents,
)


def _schedule_findings(linted: LintedCase, edition: Edition) -> Iterator[Finding]:
    """Check the codes and the total rate of a case against a schedule."""
    for pointer, code in linted.codes():
        existing = edition.existing(digits(code))
        if existing != digits(code):
            yield linted.finding(pointer, "code_unknown", describe_unlisted(code, existing))
    total, preferred = linted.expected.expected_duty_total_rate_pct, linted.expected.preferred_hts
    rate = edition.rate(digits(preferred[0])) if preferred else None
    if total is None or not preferred:
        return
    pointer = "/expected/expected_duty_total_rate_pct"
    if rate is None or rate.pct is None:
        text = rate.text if rate else "no rate"
        message = f"got {total:g}; the schedule has {text}, which is not a percentage of value, remove it"
        yield linted.finding(pointer, "duty_rate", message)
    elif abs(total - rate.pct) > RATE_TOLERANCE:
        yield linted.finding(pointer, "duty_rate", f"got {total:g}; the schedule has {rate.text}")
