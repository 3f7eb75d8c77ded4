"""The tariff case and its suite rules (spec, "Case schema" and "Scoring overview")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from pytest_packbench.files import walk
from pytest_packbench.model.case import (
    Case,
    Expected,
    Flaw,
    Fraction,
    ListOf,
    Notes,
    StrictModel,
    Text,
    Threshold,
    misfit,
    refused,
)
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.model.suite import Metric, SuiteConfig
from pytest_packbench.packs.tariff.edition import EditionName, describe_unlisted, load_edition
from pytest_packbench.packs.tariff.notation import CODE, LEVELS, Rule, digits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_packbench.model.case import Location

CaseType = Literal["positive", "negative", "adversarial", "no_savings", "savings_possible"]
RefusalCategory = Literal["insufficient_info", "ambiguous", "out_of_scope", "missing_evidence"]
Direction = Literal["increase", "decrease", "flat"]
SOURCE = r"^(expert|synthetic|internal|imported|ruling:[A-Za-z0-9_-]+)$"
"""The pattern of `notes.source`."""
CODE_LISTS = ("preferred_hts", "allowed_hts", "must_not_hts")
FORBIDDEN_LEVEL = "forbidden_code"
"""The match level of a forbidden code."""
DECISIONS: Mapping[str, tuple[bool, ...]] = {
    "positive": (True,),
    "negative": (False,),
    "adversarial": (True, False),
    "no_savings": (True,),
    "savings_possible": (True,),
}
"""By case type, whether its cases expect an answer (true), a refusal (false), or either."""


def _not_blank(value: str) -> str:
    # not a pattern, which refuses half of a surrogate pair
    if not value.strip():
        raise ValueError(value)
    return value


def _range(value: tuple[float, ...]) -> tuple[float, ...]:
    low, high = value
    if low > high:
        raise ValueError(value)
    return value


DutyRange = Annotated[
    ListOf[float], AfterValidator(_range), Expected("two numbers in percentage points, the lower one first")
]
Code = Annotated[
    str,
    StringConstraints(pattern=rf"^[0-9]{{2}}$|{CODE}"),
    Expected("one tariff code of 2, 4, 6, 8 or 10 digits, such as 6404.11.9020"),
]
Chapter = Annotated[str, StringConstraints(pattern=r"^\d{2}$"), Expected("a chapter of two digits")]
Penalty = Annotated[float, Field(ge=-1, le=0)]


class Evidence(StrictModel):
    """A document in the request that an answer may quote."""

    source_id: Text
    text: Text
    title: Text | None = None


class Change(StrictModel):
    """A change of the goods that the importer can make.

    Attributes:
        id: its name, by which an answer refers to it.
        text: what would be changed, as the importer says it.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$")]
    text: Text


class Options(StrictModel):
    """Settings of the verify request.

    Attributes:
        max_iters: the most proposals that the pipeline may make, 1 to 20.
        candidate_chapters: chapters that the importer suggests, two digits each.
        changes: the changes of the goods that the importer can make; an answer may offer no others.
        articles: `each` where the goods are several articles and each needs a code of its own; else one code is asked
            for. The request of a case with `expected.articles` has it without being told.
        steps: that the steps of the rules of interpretation are wanted (`gri_trace`); every request says so.
    """

    max_iters: Annotated[int, Field(ge=1, le=20)] = 4
    candidate_chapters: ListOf[Chapter] = ()
    changes: ListOf[Change] = ()
    articles: Literal["each"] | None = None
    steps: Literal[True] = True


class TariffInput(StrictModel):
    """The verify request of a tariff case: the goods as an importer describes them."""

    input: Annotated[
        str,
        AfterValidator(_not_blank),
        Expected("a description of the goods"),
        Field(json_schema_extra={"pattern": r"\S"}),
    ]
    options: Options = Options()
    evidence: ListOf[Evidence] = ()


class SavingTarget(StrictModel):
    """A code that a saving may lead to.

    Attributes:
        code: the code after the change, as a prefix.
        change: the change that it needs, by its id in `input.options.changes`.
        rate_pct: the rate of the code, percent of value, where it is not the general one: that of a preference.
    """

    code: Code
    change: Text
    rate_pct: Annotated[float, Field(ge=0)] | None = None


class Savings(StrictModel):
    """The savings that a case accepts.

    Attributes:
        targets: the codes that a saving may lead to, each with the change that it needs.
        least: the least that the saving has to be, percentage points of the general rates; more is as right.
    """

    targets: Annotated[ListOf[SavingTarget], Field(min_length=1)]
    least: Annotated[float, Field(gt=0)]


class ExpectedArticle(StrictModel):
    """One of several articles, with its codes.

    Attributes:
        name: what it is, for reports; an answer may call it otherwise.
        preferred_hts: codes that score full credit; a code of 6 or 8 digits matches as a prefix.
        allowed_hts: codes that score partial credit.
        must_not_hts: codes that are forbidden for this article, as prefixes; an answer with one scores 0.
    """

    name: Text
    preferred_hts: Annotated[ListOf[Code], Field(min_length=1)]
    allowed_hts: ListOf[Code] | None = ()
    must_not_hts: ListOf[Code] | None = ()


class TariffExpected(StrictModel):
    """The expectations of a case.

    Attributes:
        preferred_hts: codes that score full credit; a code of 6 or 8 digits matches as a prefix.
        allowed_hts: codes that score partial credit.
        must_not_hts: forbidden codes, as prefixes; an answer under one scores 0.
        articles: two or more articles, each with its codes, instead of `preferred_hts` and `allowed_hts`; the request
            then has the option `articles`.
        expected_accept: true if an answer is expected, false if a refusal is.
        expected_refusal_category: the category of an expected refusal; null accepts any.
        no_savings_expected: whether any savings lever, what-if option or claim of lower duty fails the case.
        duty_delta_range: optimised minus baseline duty, percentage points, both ends included.
        expected_duty_total_rate_pct: total duty rate of the scored code, percent.
        expected_duty_delta_direction: the sign of optimised minus baseline.
        lever_found_expected: true if a savings lever is required, false if it is forbidden.
        lever_count_min: the minimum number of levers.
        lever_compliance_ok: true if every lever must pass its plausibility check.
        expected_best_is_multi_step: true if the first lever must have two or more steps.
        min_lever_steps: the minimum number of steps of the first lever.
        savings: the savings that are accepted: their codes, the change that each needs, and the least of them.
        must_cite: documents of the request that the answer has to quote, at least 20 characters each.
        must_not_cite: documents of the request that the answer may not cite.
        expected_rule: the rule of interpretation that decides, such as `1`, `3b` or `us_1c`.
        threshold: the lowest passing score of this case, above 0, at most 1; overrides the suite's.
    """

    preferred_hts: ListOf[Code]
    allowed_hts: ListOf[Code] | None = ()
    must_not_hts: ListOf[Code] | None = ()
    articles: Annotated[ListOf[ExpectedArticle], Field(min_length=2)] | None = None
    expected_accept: bool
    expected_refusal_category: RefusalCategory | None = None
    no_savings_expected: bool = False
    duty_delta_range: DutyRange | None = None
    expected_duty_total_rate_pct: Annotated[float, Field(ge=0)] | None = None
    expected_duty_delta_direction: Direction | None = None
    lever_found_expected: bool | None = None
    lever_count_min: Annotated[int, Field(ge=0)] | None = None
    lever_compliance_ok: bool | None = None
    expected_best_is_multi_step: bool | None = None
    min_lever_steps: Annotated[int, Field(ge=0)] | None = None
    savings: Savings | None = None
    must_cite: ListOf[Text] | None = None
    must_not_cite: ListOf[Text] | None = None
    expected_rule: Rule | None = None
    threshold: Threshold | None = None

    @property
    def all_preferred(self) -> tuple[str, ...]:
        """The preferred codes, those of several articles in their order."""
        return tuple(code for _, code in self.codes("preferred_hts"))

    def codes(self, *lists: str) -> Iterator[tuple[Location, str]]:
        """Yield each code with its place in the case: those of some lists, of articles too, or all with the savings."""
        keys = set(lists or (*CODE_LISTS, "code"))
        for place, value in walk(self.model_dump()):
            if isinstance(value, str) and keys.intersection(place[-2:]):
                yield ("expected", *place), value


KEYS_OF_DUTY = (
    "duty_delta_range",
    "expected_duty_total_rate_pct",
    "expected_duty_delta_direction",
    "lever_found_expected",
    "lever_count_min",
    "lever_compliance_ok",
    "expected_best_is_multi_step",
    "min_lever_steps",
    "savings",
)
"""The keys of rates and savings."""
KEYS_OF_ONE_ARTICLE = ("preferred_hts", "allowed_hts", *KEYS_OF_DUTY, "expected_rule")
"""The keys that no rule reads where several articles are expected."""
KEYS_OF_ANSWERS = ("articles", "allowed_hts", "no_savings_expected", *KEYS_OF_DUTY)
"""The keys that no rule reads where a refusal is expected."""


def _unread(expected: TariffExpected) -> Iterator[Flaw]:
    """Yield each key of a case that no rule reads."""
    unread, why = KEYS_OF_ANSWERS, "a refusal"
    if expected.expected_accept:
        unread = ("expected_refusal_category", *(KEYS_OF_ONE_ARTICLE if expected.articles else ()))
        why = "several articles" if expected.articles else "an answer"
    for key in unread:
        # null, an empty list and a default require nothing; 0 may be a rate
        if getattr(expected, key) not in (None, (), TariffExpected.model_fields[key].default):
            wrong = f"the case expects {why}, so no rule reads this key"
            yield Flaw(("expected", key), wrong, "no such key, null or an empty list, or another expected_accept")


def _unlisted(expected: TariffExpected, schedule: EditionName | None) -> Iterator[Flaw]:
    """Yield each code of a case that is not in the schedule, so that no answer can have it."""
    for location, code in expected.codes() if schedule else ():
        existing = load_edition(schedule).existing(digits(code))
        if existing != digits(code):
            yield Flaw(location, describe_unlisted(code, existing), f"a code of {schedule}")


class TariffNotes(Notes):
    """The origin of a tariff case and the reasons for its codes.

    Attributes:
        source: `expert`, `synthetic`, `internal`, `ruling:<id>`, or `imported` where only the imported file may tell.
        hts_edition: the edition of the schedule that the codes come from.
        reasons: why a code is preferred, allowed or forbidden, by code.
        imported: values of the imported file that have no key here, or were written in another way, by JSON pointer.
    """

    source: Annotated[
        str, StringConstraints(pattern=SOURCE), Expected('expert, synthetic, internal, imported or "ruling:<id>"')
    ]
    hts_edition: Text | None = None
    reasons: dict[Code, Text] = Field(default_factory=dict)
    imported: dict[str, Any] = Field(default_factory=dict)


class TariffCase(Case):
    """One tariff case."""

    case_type: CaseType
    input: TariffInput
    expected: TariffExpected
    notes: TariffNotes

    @property
    def own_threshold(self) -> float | None:
        """The lowest score at which this case passes; None for that of its type, or by what it expects."""
        return self.expected.threshold


class Scoring(StrictModel):
    """The constants of the scoring rules, in points: credits 0 to 1, penalties -1 to 0.

    Attributes:
        preferred: credit for a preferred code.
        allowed: credit for an allowed code.
        chapter: credit for the chapter of a preferred code.
        ladder: credit by the number of leading digits shared with a preferred code (4, 6, 8); empty: off.
        bonus: credit for an accepted answer with a match and passed critical gates.
        gri_sequence: penalty for interpretation rules used out of order.
        duty_delta: penalty for a duty delta outside its range.
        base_rate: penalty for a rate of a right code that is missing or is not the schedule's.
        deciding_rule: penalty for another deciding rule than the case names.
        wrong_refusal_category: credit for a refusal in the wrong category.
    """

    preferred: Fraction = 1.0
    allowed: Fraction = 0.7
    chapter: Fraction = 0.3
    ladder: dict[Literal["4", "6", "8"], Fraction] = Field(default_factory=dict)
    bonus: Fraction = 0.05
    gri_sequence: Penalty = -0.1
    duty_delta: Penalty = -0.1
    base_rate: Penalty = -0.1
    deciding_rule: Penalty = -0.1
    wrong_refusal_category: Fraction = 0.5


def _accuracy(level: int) -> Metric:
    return Metric(
        among=lambda result: result.answer_due,
        counts=lambda result, _: (result.depth or 0) >= level,
        skips_refusals=True,
    )


FIELD_METRICS: Mapping[str, Metric] = {
    # answers that are right to so many digits, among the cases that expect an answer
    **{f"accuracy_{level}": _accuracy(level) for level in LEVELS},
    # answers with a code that is none, or not in the schedule, among the answers with a code
    "invalid_code_rate": Metric(
        among=lambda result: result.counted and result.valid is not None,
        counts=lambda result, _: result.valid is False,
    ),
    # among the answers with a code to cases that expect one; a case that was refused in another trial, or answered
    # without a code, was answered all the same
    "forbidden_code_rate": Metric(
        among=lambda result: (
            result.answer_due and (result.level == FORBIDDEN_LEVEL or (not result.refused and result.valid is not None))
        ),
        counts=lambda result, _: result.level == FORBIDDEN_LEVEL,
        skips_refusals=True,
    ),
    # refusals that the case expects, among all refusals
    "refusal_precision": Metric(
        among=lambda result: result.counted and result.refused, counts=lambda result, _: result.expects_refusal
    ),
    # refusals among the cases that expect one
    "refusal_recall": Metric(
        among=lambda result: result.counted and result.expects_refusal, counts=lambda result, _: result.refused
    ),
}
"""Each metric by the name that a gate uses."""


class TariffSuiteConfig(SuiteConfig):
    """The `suite.yaml` of a tariff suite.

    Attributes:
        hts_edition: the edition of the schedule that the codes of the suite come from.
        scored_code: `final` scores the optimised code, or the baseline's if there is none; `baseline` scores the
            code of the goods as they are.
        schedule: the edition of the schedule in which codes and rates are looked up; none by default.
        cited_sources: `request` where only documents of the request may be cited; by default, a case without documents
            leaves the citations of an answer unchecked.
        scoring: the constants of the rules.
        allow_pass: why an allowed code, or a wrong one with enough right digits, passes, where the constants and
            thresholds let it.
    """

    hts_edition: Text | None = None
    scored_code: Literal["final", "baseline"] = "final"
    schedule: EditionName | None = None
    cited_sources: Literal["any", "request"] = "any"
    scoring: Scoring = Scoring()
    allow_pass: Annotated[str, StringConstraints(pattern=r"\S")] | None = None

    metrics: ClassVar[Mapping[str, Metric]] = FIELD_METRICS
    not_scoring: ClassVar[frozenset[str]] = SuiteConfig.not_scoring | {"allow_pass"}

    @model_validator(mode="after")
    def _check_thresholds(self) -> Self:
        limits = [(self.thresholds.accept, True), (self.thresholds.refuse, False)]
        for name, threshold in self.thresholds.by_type.items():
            if name not in DECISIONS:
                raise misfit(f'got the case type "{name}" in thresholds.by_type', f"one of {', '.join(DECISIONS)}")
            limits += [(threshold, accepts) for accepts in DECISIONS[name]]
        for limit, accepts in limits:
            for flaw in self._undecided(("thresholds",), limit, accepts=accepts):
                raise refused(flaw)
        return self

    def _undecided(
        self, location: Location, threshold: float, *, accepts: bool, allowed: bool = True, articles: int = 0
    ) -> Iterator[Flaw]:
        """Yield the wrong answer, or the wrong refusal, with the most points, if it passes at a threshold, 0 to 1.

        Of several articles, one has a wrong code, which leaves no match of all, and so no bonus.
        """
        scoring, count, unreasoned = self.scoring, articles or 1, self.allow_pass is None
        bonus = 0.0 if articles else scoring.bonus
        earned = {"a wrong code of the right chapter": (scoring.chapter, bonus)}
        for level, points in scoring.ladder.items() if unreasoned else ():
            earned[f"without allow_pass: REASON, a wrong code with the right first {level} digits"] = points, bonus
        if allowed and unreasoned:
            earned["without allow_pass: REASON, an allowed code"] = scoring.allowed, scoring.bonus
        most = [((count - 1 + points) / count + added, answer) for answer, (points, added) in earned.items()]
        most += [(count / (count + 1), "a code too many")] if articles else []
        total, answer = max(most) if accepts else (scoring.wrong_refusal_category, "a refusal of the wrong category")
        if total >= threshold - TOLERANCE:
            of = f" for one article of {articles}" if articles else ""
            wrong = f"{answer}{of} passes: up to {min(1.0, total):.4g} points, threshold {threshold:g}"
            yield Flaw(location, wrong, "a higher threshold, or fewer points")

    def flaws(self, case: TariffCase) -> Iterator[Flaw]:
        """Yield what no rule reads in a case, what no answer can have, and the wrong answers that would pass."""
        expected, articles = case.expected, case.expected.articles or ()
        yield from _unread(expected)
        yield from _unlisted(expected, self.schedule)
        if case.input.options.articles is not None and not articles:
            wrong = "the request asks for a code for each article, and expected.articles is not set"
            yield Flaw(("input", "options", "articles"), wrong, "expected.articles, or no such option")
        yield from self._undecided(
            ("expected", "threshold"),
            self.thresholds.of(case, refuses=not expected.expected_accept),
            accepts=expected.expected_accept,
            allowed=any(expected.codes("allowed_hts")),
            articles=len(articles),
        )

    @property
    def accepts_more(self) -> bool:
        """Whether `packbench review` can add a further right code to a case."""
        return True
