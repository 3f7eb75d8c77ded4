"""Lint rules for tariff cases: leaks, codes, expectations, savings and notes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias, cast

from pytest_packbench.model.authoring import Finding
from pytest_packbench.model.errors import json_pointer
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs.tariff.judged import edition_of
from pytest_packbench.packs.tariff.leaks import leaks
from pytest_packbench.packs.tariff.model import CODE_LISTS, DECISIONS, KEYS_OF_DUTY, TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import chapter, digits, dotted, is_under, line_of
from pytest_packbench.packs.tariff.savings import RATE_TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.authoring import FiledCase
    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.leaks import Flaw
    from pytest_packbench.packs.tariff.model import SavingTarget

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
WARNINGS = frozenset({"allowed_unreachable", "forbidden_unreachable"})
"""The rules by which a case is clumsy, not wrong."""

_VALUED_TAG = re.compile(r"chapter_\d{2}|ruling_year_\d{4}|pair_[a-z0-9_]+")
_RULING = re.compile(r"ruling:(?:(?:NY|HQ)[-_])?[A-Z]?\d{5,6}")
_CODE_FORMAT = re.compile(r"\d{2}|\d{4}|\d{4}\.\d{2}|\d{4}\.\d{2}\.\d{2}|\d{4}\.\d{2}\.\d{2}\.?\d{2}")
_FULL_DIGITS = 10
# 77 is reserved; codes of 98 and 99 are reported in addition to a code, never instead of one
_CHAPTERS_WITHOUT_GOODS = frozenset({"00", "77", "98", "99"})
_OF_SUITE = "/thresholds"
_OF_CASE = ("expected",)
_NEEDED = {"no_savings": "no_savings_expected", "savings_possible": "lever_found_expected"}
_MULTI_STEP = 2
_RATED = (8, 10)

Check: TypeAlias = Callable[[TariffCase, TariffSuiteConfig], Iterator["Flaw"]]


def lint(cases: Sequence[FiledCase], rules: TariffSuiteConfig) -> Iterable[Finding]:
    """Run the lint rules of the tariff pack; rates are looked up in the schedule of the suite, if it names one."""
    # each once: a threshold of the suite is that of many cases
    return dict.fromkeys(
        Finding(
            file=CONFIG_NAME if pointer == _OF_SUITE else filed.file,
            pointer=pointer,
            rule=rule,
            message=message,
            severity="warning" if rule in WARNINGS else "error",
        )
        for filed in cases
        for check in _CHECKS
        for pointer, rule, message in check(cast("TariffCase", filed.loaded.case), rules)
    )


def _thresholds(case: TariffCase, rules: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield a threshold that no right answer reaches, or no allowed code."""
    expected, scoring = case.expected, rules.scoring
    threshold, bonus = rules.thresholds.of(case, refuses=not expected.expected_accept), scoring.bonus
    allowed, highest = scoring.allowed + bonus, scoring.preferred + bonus
    if expected.expected_accept and threshold > highest + TOLERANCE:
        message = f"got {threshold:g}; the highest possible score is {highest:g}, lower the threshold"
        yield _OF_SUITE if expected.threshold is None else "/expected/threshold", "threshold_unreachable", message
    if expected.allowed_hts and threshold > allowed + TOLERANCE:
        message = f"an allowed code scores at most {allowed:g}, below the threshold of {threshold:g}, and never passes"
        yield "/expected/allowed_hts", "allowed_unreachable", message


def _decision(case: TariffCase, _: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield what does not fit the decision that the case expects."""
    expected = case.expected
    accepts = expected.expected_accept
    if accepts and not expected.all_preferred:
        yield "/expected/preferred_hts", "preferred_missing", "the case expects an answer; add its code"
    if not accepts and expected.preferred_hts:
        yield "/expected/preferred_hts", "preferred_undue", "the case expects a refusal; remove the codes"
    if accepts and not any(expected.codes("must_not_hts")):
        message = "add at least one similar code that a careless answer would give, with the reason why it is wrong"
        yield "/expected/must_not_hts", "forbidden_missing", message
    if not accepts and expected.expected_refusal_category is None:
        message = "any refusal would pass; add the expected category"
        yield "/expected/expected_refusal_category", "refusal_category_missing", message
    if accepts not in DECISIONS[case.case_type]:
        message = f'a case of type "{case.case_type}" expects {"a refusal" if accepts else "an answer"}'
        yield "/expected/expected_accept", "type_expectation", f"{message}; change the type or the expectation"
    elif (needed := _NEEDED.get(case.case_type)) and not getattr(expected, needed):
        yield f"/expected/{needed}", "type_savings", f'a case of type "{case.case_type}" needs {needed}: true'


def _code_form(case: TariffCase, _: TariffSuiteConfig) -> Iterator[Flaw]:
    for place, code in case.expected.codes(*CODE_LISTS):
        pointer, count = json_pointer(place), len(digits(code))
        if not _CODE_FORMAT.fullmatch(code):
            yield pointer, "code_form", f"got {code}; expected the format ####.##.####"
        elif chapter(code) in _CHAPTERS_WITHOUT_GOODS:
            yield pointer, "code_impossible", f"got {code}; chapter {chapter(code)} classifies no goods"
        # the suffix of one of several articles may hang on facts that decide nothing else
        elif pointer.startswith("/expected/preferred") and count != _FULL_DIGITS:
            yield pointer, "preferred_length", f"got {count} digits in {code}; expected {_FULL_DIGITS}"


def _code_conflicts(case: TariffCase, _rules: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield the codes that meet another of the case, or of the same article."""
    listed = [
        (place[:-2], "must_not_hts" in place, json_pointer(place), code)
        for place, code in case.expected.codes(*CODE_LISTS)
    ]
    for number, (scope, forbids, pointer, code) in enumerate(listed):
        for earlier, (other_scope, other_forbids, _, other) in enumerate(listed):
            is_same = line_of(code) == line_of(other)
            # what the case forbids, it forbids for each article
            if forbids and not other_forbids and scope in (_OF_CASE, other_scope):
                if is_same:
                    yield pointer, "code_conflict", f"{code} is both accepted and forbidden; remove one of them"
                elif is_under(other, code):
                    message = f"{code} also forbids {other}, which is preferred or allowed; forbid a longer code"
                    yield pointer, "forbidden_covers_gold", message
            elif (scope, forbids) == (other_scope, other_forbids):
                if is_same and earlier < number:
                    yield pointer, "code_repeated", f"duplicate code {code}; remove one"
                elif forbids and not is_same and is_under(code, other):
                    message = f"{code} has no effect: {other} already forbids it; remove one of them"
                    yield pointer, "forbidden_unreachable", message


def _reasons(case: TariffCase, _: TariffSuiteConfig) -> Iterator[Flaw]:
    reasons, codes = case.notes.reasons, case.expected.codes
    explained = {line_of(code) for code, text in reasons.items() if text.strip()}
    for place, code in codes("allowed_hts", "must_not_hts"):
        if line_of(code) not in explained:
            message = f"no reason for {code} in /notes/reasons; add why it is allowed or forbidden"
            yield json_pointer(place), "reason_missing", message
    listed = {line_of(code) for _, code in codes(*CODE_LISTS)}
    for code in reasons:
        if line_of(code) not in listed:
            message = f"the case does not list the code {dotted(code)}; correct the code or remove the reason"
            yield f"/notes/reasons/{code}", "reason_unused", message


def _savings_conflicts(case: TariffCase, _: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield what is expected of savings and can't be true together."""
    expected, rule = case.expected, "savings_conflict"
    low, high = expected.duty_delta_range or (-math.inf, math.inf)
    direction = expected.expected_duty_delta_direction
    requires = {key: bool(getattr(expected, key)) for key in KEYS_OF_DUTY} | {
        "duty_delta_range": high < 0,
        "expected_duty_total_rate_pct": False,
        "expected_duty_delta_direction": direction == "decrease",
    }
    for key, forbidding in (("no_savings_expected", True), ("lever_found_expected", False)):
        for other in filter(requires.get, requires) if getattr(expected, key) is forbidding else ():
            yield f"/expected/{key}", rule, f"savings are forbidden, but {other} requires them; change one of them"
    if expected.expected_best_is_multi_step is False and (expected.min_lever_steps or 0) >= _MULTI_STEP:
        message = f"a single step is expected, but min_lever_steps is {expected.min_lever_steps}; change one of them"
        yield "/expected/expected_best_is_multi_step", rule, message
    possible = {"decrease": low < 0, "increase": high > 0, "flat": low <= 0 <= high, None: True}
    if not possible[direction]:
        message = f"{low:g} to {high:g} percentage points exclude the direction {direction}; change one of them"
        yield "/expected/duty_delta_range", rule, message


def _savings(case: TariffCase, rules: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield what is wrong with the accepted savings: their codes, and the changes that they need."""
    savings, changes = case.expected.savings, [change.id for change in case.input.options.changes]
    for index in _repeated(changes):
        message = f'duplicate change "{changes[index]}"; an answer could name either, rename one'
        yield f"/input/options/changes/{index}/id", "savings_change", message
    if savings is None:
        if case.case_type == "savings_possible":
            message = "add the accepted savings: their codes, the change that each needs, and the least saving"
            yield "/expected/savings", "savings_missing", message
        return
    for index, target in enumerate(savings.targets):
        place = f"/expected/savings/targets/{index}"
        if target.change not in changes:
            known = ", ".join(sorted(changes)) or "no change"
            message = f'"{target.change}" is no change of /input/options/changes; expected one of {known}'
            yield f"{place}/change", "savings_change", message
        if problem := _target_problem(target, savings.least, case.expected.preferred_hts, edition_of(rules.schedule)):
            yield f"{place}/code", "savings_target", problem


def _target_problem(target: SavingTarget, least: float, preferred: Sequence[str], edition: Edition | None) -> str:
    """Return why a code can't be the target of a saving; empty if it can."""
    plain = digits(target.code)
    if len(plain) not in _RATED:
        return f"got {len(plain)} digits in {target.code}; a rate needs 8 or 10"
    if edition is None:
        return ""
    rate = edition.rate(plain)
    after = target.rate_pct if target.rate_pct is not None else rate and rate.pct
    if after is None:
        return f"the schedule has {rate.text if rate else 'no rate'} for {target.code}, not a percentage of value"
    for code in preferred:
        base = edition.rate(digits(code))
        if base is not None and base.pct is not None and base.pct - after < least - RATE_TOLERANCE:
            saved = f"{target.code} at {after:g} % saves {base.pct - after:g} percentage points against {code}"
            return f"{saved}; expected at least {least:g}"
    return ""


def _total_rate(case: TariffCase, rules: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield a total rate that is not the schedule's."""
    total, edition = case.expected.expected_duty_total_rate_pct, edition_of(rules.schedule)
    if total is None or not case.expected.preferred_hts or edition is None:
        return
    rate = edition.rate(digits(case.expected.preferred_hts[0]))
    if rate is None or rate.pct is None or abs(total - rate.pct) > RATE_TOLERANCE:
        advice = "" if rate and rate.pct is not None else ", which is not a percentage of value, remove it"
        message = f"got {total:g}; the schedule has {rate.text if rate else 'no rate'}{advice}"
        yield "/expected/expected_duty_total_rate_pct", "duty_rate", message


def _origin(case: TariffCase, rules: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield what the notes lack about the edition and the source of a case."""
    edition, source = case.notes.hts_edition, case.notes.source
    if edition is None:
        message = "the edition is missing; add the edition of the schedule that the codes come from"
        yield "/notes/hts_edition", "edition_missing", message
    elif edition != (rules.hts_edition or edition):
        message = f'got "{edition}"; expected "{rules.hts_edition}", the edition of the suite'
        yield "/notes/hts_edition", "edition_other", message
    if source.startswith("ruling:") and not _RULING.fullmatch(source):
        message = f'got "{source}"; expected the number of a ruling, such as ruling:N270709'
        yield "/notes/source", "source_form", message


def _tags(case: TariffCase, _: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield tags that are unknown, and those of chapter and year that do not fit the case."""
    tags, place = case.notes.tags, "/notes/tags"
    for index, tag in enumerate(tags):
        if tag not in TAGS and not _VALUED_TAG.fullmatch(tag):
            message = f'unknown tag "{tag}"; use a tag of the tariff vocabulary, such as gri_1 or chapter_64'
            yield f"{place}/{index}", "tag_unknown", message
    chapters = {tag for tag in tags if tag.startswith("chapter_")}
    preferred = {f"chapter_{chapter(code)}" for code in case.expected.all_preferred}
    if len(chapters) != 1:
        yield place, "chapter_tag", f"got {len(chapters)} tags chapter_NN; expected exactly 1"
    elif preferred and not chapters & preferred:
        yield place, "chapter_tag", f"got {min(chapters)}; the preferred code is in {', '.join(sorted(preferred))}"
    date, is_ruling = case.notes.date, case.notes.source.startswith("ruling:")
    years = {tag for tag in tags if tag.startswith("ruling_year_")}
    due = {f"ruling_year_{date[:4]}"} if is_ruling and date else set()
    # the general rules find a case without its date
    if years != due and (date or not is_ruling):
        expected = f"{min(due)}, the year of the date" if due else "none for this source"
        yield place, "year_tag", f"got {', '.join(sorted(years)) or 'no tag ruling_year_YYYY'}; expected {expected}"


def _texts(case: TariffCase, _: TariffSuiteConfig) -> Iterator[Flaw]:
    """Yield a description that is too short or too long, and documents that can't be told apart."""
    count, tags = len(case.input.input.split()), case.notes.tags
    documents = [document.source_id for document in case.input.evidence]
    if not MIN_WORDS <= count <= MAX_WORDS:
        yield "/input/input", "description_length", f"got {count} words; expected {MIN_WORDS} to {MAX_WORDS}"
    if CITATION_TRAP in tags and not documents:
        message = "a citation trap needs evidence that could be quoted wrongly; add a document"
        yield "/input/evidence", "citation_trap_evidence", message
    if (EVIDENCE in tags) != bool(documents):
        message = f'the tag "{EVIDENCE}" must be present exactly if /input/evidence is not empty; add or remove it'
        yield "/notes/tags", "evidence_tag", message
    for index in _repeated(documents):
        message = f'duplicate source_id "{documents[index]}"; a citation could refer to either, rename one'
        yield f"/input/evidence/{index}/source_id", "evidence_repeated", message
    for key in ("must_cite", "must_not_cite"):
        for index, source in enumerate(getattr(case.expected, key) or ()):
            place = f"/expected/{key}/{index}"
            if source not in documents:
                known = ", ".join(documents) or "no key"
                message = f'"{source}" is no document of /input/evidence; expected one of {known}'
                yield place, "cited_document", message
            elif key == "must_not_cite" and source in (case.expected.must_cite or ()):
                yield place, "cited_document", f'"{source}" must be cited as well; remove one of them'


def _repeated(names: Sequence[str]) -> Iterator[int]:
    """Yield the index of each name that was there before."""
    return (index for index, name in enumerate(names) if name in names[:index])


_CHECKS: tuple[Check, ...] = (
    leaks,
    _thresholds,
    _decision,
    _code_form,
    _code_conflicts,
    _reasons,
    _savings_conflicts,
    _savings,
    _total_rate,
    _origin,
    _tags,
    _texts,
)
