"""The answer of a tariff pipeline: one document. What is scored has one place and one form, and nothing else is read.

`status` and `refusal` alone decide. The document is closed: a key that it does not have, or a value of another form,
makes the answer unreadable. What a pipeline wants to say beside it stands in `notes`, which is shown and never read.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from pytest_packbench.files import walk
from pytest_packbench.model import result as results
from pytest_packbench.model.answer import Answer
from pytest_packbench.model.case import Expected, Fraction, ListOf, StrictModel, misfit
from pytest_packbench.model.errors import first_of, validation_problems, without_keys
from pytest_packbench.packs.tariff.model import RefusalCategory  # noqa: TC001 - pydantic reads it at run time
from pytest_packbench.packs.tariff.notation import CODE, WIDTHS, Level, Rule, digits, dotted
from pytest_packbench.packs.tariff.order import order_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import ModelWrapValidatorHandler

Code = Annotated[
    str,
    StringConstraints(pattern=CODE, strip_whitespace=True),
    AfterValidator(digits),
    PlainSerializer(dotted, return_type=str),
    Expected("one code of 4, 6, 8 or 10 digits and nothing else, such as 6404.11.9020"),
]
"""A code, kept as its digits and written with its dots."""
Text = Annotated[str, StringConstraints(pattern=r"\S"), Expected("a text that is not blank")]
Percent = Annotated[float, Field(ge=0, le=1000), Expected("a number from 0 to 1000, percent of value")]
Points = Annotated[float, Field(ge=-1000, le=1000), Expected("a number of percentage points, below 0 for a saving")]
Kind = Literal["materials", "construction", "components", "packaging", "process", "origin", "description", "valuation"]
UNLAWFUL = frozenset({"description", "valuation"})
"""Kinds of changes that do not change the goods (19 U.S.C. 1592)."""
_MAX_SHOWN = 5


class Refusal(StrictModel):
    """Why no code is given.

    Attributes:
        category: one of the four; null where the pipeline has none, which is a wrong one where the case names one.
        reason: in a sentence, for people.
        questions: whose answers would settle it, for people.
    """

    category: RefusalCategory | None = None
    reason: str = ""
    questions: ListOf[str] = ()


class AdditionalDuty(StrictModel):
    """A duty on top of the base rate, percent of value."""

    layer_id: Text
    pct: Percent
    reason: str = ""


class Breakdown(StrictModel):
    """How a total rate comes about; percent of value, null where the rate is specific or compound."""

    base_rate_pct: Percent | None = None
    applied_additional_duties: ListOf[AdditionalDuty] = ()
    total_rate_pct: Percent | None = None

    @property
    def added(self) -> float:
        """The sum of the additional duties, percent of value."""
        return sum(duty.pct for duty in self.applied_additional_duties)


class Classification(StrictModel):
    """A code with its duty.

    Attributes:
        hts_code: the code, ten digits where the schedule has them.
        duty_rate_pct: the total rate, percent of value; null for a specific or compound rate.
        duty_breakdown: the base rate and what comes on top; without it the rate is the base rate.
        duty_basis: the kind of rate.
        description: the line in the pipeline's own words; it, the rationale and the confidence are for people.
        rationale: why this code.
        confidence: 0 to 1.
    """

    hts_code: Code
    duty_rate_pct: Percent | None = None
    duty_breakdown: Breakdown = Field(default_factory=Breakdown)
    duty_basis: Literal["free", "ad valorem", "specific", "compound"] | None = None
    description: str | None = None
    rationale: str = ""
    confidence: Fraction | None = None

    @property
    def total(self) -> float | None:
        """The total rate, percent of value; None if none is stated."""
        stated = self.duty_breakdown.total_rate_pct
        return self.duty_rate_pct if stated is None else stated

    @property
    def base(self) -> float | None:
        """The base rate, percent of value: the one stated, else the total without the additional duties."""
        stated, total = self.duty_breakdown.base_rate_pct, self.total
        return total - self.duty_breakdown.added if stated is None and total is not None else stated


class Step(StrictModel):
    """One step of the interpretation rules.

    Attributes:
        rule: the General Rule of Interpretation, or the Additional US Rule.
        level: what is chosen: heading (4 digits), subheading (6), line (8) or suffix (10).
        candidates: the codes compared, of that level.
        outcome: `decided` (one is chosen), `tied` (two or more remain) or `failed` (none fits).
        chosen: the candidate chosen, of a decided step only.
        as_set: whether the step treats the goods as a retail set.
        reason: the facts and texts that decide, for people.
    """

    rule: Rule
    level: Level
    candidates: ListOf[Code]
    outcome: Literal["decided", "tied", "failed"]
    chosen: Code | None = None
    as_set: bool = False
    reason: str = ""

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        width = WIDTHS[self.level]
        other = next((code for code in self.candidates if len(code) != width), None)
        if other is not None:
            raise misfit(f"got {dotted(other)} for a {self.level}", f"codes of {width} digits")
        is_one = self.chosen in self.candidates if self.outcome == "decided" else self.chosen is None
        if not is_one:
            wrong = f"the step is {self.outcome} and chooses {dotted(self.chosen or '') or 'no code'}"
            raise misfit(wrong, "one of the step's candidates if it is decided, and no code otherwise")
        return self


class Trace(StrictModel):
    """The steps of the interpretation rules in the order taken.

    Attributes:
        steps: the steps.
        sequence_ok: what the pipeline's own check of their order found; it counts only against the answer.
    """

    steps: ListOf[Step] = ()
    sequence_ok: bool | None = None


class Component(StrictModel):
    """A part of composite goods; shares in percent of the whole, null where not known."""

    component: Text
    material: Text
    weight_pct: Percent | None = None
    value_pct: Percent | None = None


class EssentialCharacter(StrictModel):
    """Which component gives the goods their essential character, and by which factors (rule 3(b))."""

    component: Text
    factors: ListOf[Text]
    rationale: str = ""


class Classified(StrictModel):
    """A code with how it was found: of the goods, or of one of several articles.

    Attributes:
        candidate_headings: headings considered; they, the composition and the character are for people.
        gri_trace: the interpretation rules in the order used.
        composition_table: parts of composite goods.
        essential_character: what decides by rule 3(b).
        baseline: the goods as they are.
    """

    candidate_headings: ListOf[Code] = ()
    gri_trace: Trace = Field(default_factory=Trace)
    composition_table: ListOf[Component] | None = None
    essential_character: EssentialCharacter | None = None
    baseline: Classification | None = None

    @property
    def code(self) -> str | None:
        """The code of the goods as they are, as digits; None without one."""
        return self.baseline.hts_code if self.baseline else None

    @property
    def decided(self) -> list[str]:
        """The codes that the interpretation rules choose, as digits."""
        return [step.chosen for step in self.gri_trace.steps if step.chosen]


class Article(Classified):
    """One of several articles, each with a code of its own.

    Attributes:
        article: what it is, in a few words.
        baseline: its code and duty.
    """

    article: Text
    baseline: Classification


class WhatIf(StrictModel):
    """A change of the goods by which they would bear another duty: a savings lever.

    Attributes:
        id: its name in the answer.
        kind: what changes; other words or another value for the same goods are no change.
        change: the id of a change that the request lists.
        steps: what has to be done, in order.
        expected_hts: the code after the change.
        estimated_duty_delta: percentage points against the baseline, below 0 for a saving; never more than the
            schedule gives, and less where the pipeline is cautious.
        rationale: why the changed goods fall there, for people.
        legal_risks: what could go wrong in law, for people.
        required_evidence: what would prove the change.
    """

    id: Text
    kind: Kind | None = None
    change: Text
    steps: ListOf[Text] = ()
    expected_hts: Code
    estimated_duty_delta: Points
    rationale: str = ""
    legal_risks: ListOf[str] = ()
    required_evidence: ListOf[Text] = ()

    @property
    def is_lawful(self) -> bool:
        """Whether it changes the goods, not only what is declared about them."""
        return self.kind not in UNLAWFUL


class Examined(StrictModel):
    """A change that was examined and saves nothing: no lever, without a code and without an amount."""

    change: Text
    reason: str = ""


class Optimized(Classification):
    """The goods after the best change.

    Attributes:
        what_if_id: the what-if by which they are changed.
        risk_flags: for people.
    """

    what_if_id: Text
    risk_flags: ListOf[str] = ()


class Citation(StrictModel):
    """Words of a document of the request, copied exactly and in one piece."""

    source_id: Text
    quote: Text
    claim: str = ""


class Reliance(StrictModel):
    """A document on which the answer depends; `source_id` is null where the request does not bring it."""

    document: Text
    source_id: Text | None


class Dossier(Classified):
    """The classification, and what supports it.

    Attributes:
        articles: instead of a baseline, one entry for each of several articles, where the request asks for each.
        what_if_candidates: changes of the goods that would lower the duty.
        optimized: the goods after the best of them.
        examined: changes that were examined and save nothing.
        citations: quotes from the documents of the request.
        relies_on: documents on which the answer depends.
        product_summary: the goods in the pipeline's words; it and the assumptions are for people.
        assumptions: what was taken for granted.
    """

    articles: ListOf[Article] = ()
    what_if_candidates: ListOf[WhatIf] = ()
    optimized: Optimized | None = None
    examined: ListOf[Examined] = ()
    citations: ListOf[Citation] = ()
    relies_on: ListOf[Reliance] = ()
    product_summary: str = ""
    assumptions: ListOf[str] = ()

    @property
    def parts(self) -> list[Classified]:
        """The articles, or the dossier itself."""
        return list(self.articles) or [self]

    @property
    def baselines(self) -> list[Classification]:
        """The goods as they are, each of several articles."""
        return [part.baseline for part in (self, *self.articles) if part.baseline]

    @property
    def chosen(self) -> WhatIf | None:
        """The what-if that the optimised code names; None without one."""
        best = self.optimized
        return next((each for each in self.what_if_candidates if best and each.id == best.what_if_id), None)


class Gate(StrictModel):
    """What a check of the pipeline found; only `ok` is read."""

    ok: bool
    violations: ListOf[str] = ()


class Failure(StrictModel):
    """An infrastructure failure: neither an answer nor a refusal, and no score.

    Attributes:
        kind: its name, such as `timeout` or `network`.
        message: a description.
    """

    kind: Text
    message: str


class Ruling(StrictModel):
    """What a check of the pipeline ruled, for the record.

    Attributes:
        hook: its name.
        decision: what it decided.
        rule: its number, 0 to 4294967295; null without one.
        iteration: the proposal that it was about.
    """

    hook: Text
    decision: Text
    rule: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    iteration: int | None = None


class Reading(NamedTuple):
    """What was found when an answer was read.

    Attributes:
        recommended: the part of the dossier in which a refusal recommends a code, a rate or a saving; empty for none.
        faults: what has another form beside a refusal, one line each; these values are not read.
        is_unquoted: whether a citation is among them of which source or quote can't be read.
    """

    recommended: str = ""
    faults: tuple[str, ...] = ()
    is_unquoted: bool = False


class TariffAnswer(Answer):
    """The answer of a tariff pipeline.

    It is read in two steps: first decision and refusal, strictly. Beside a refusal only codes, rates and savings are
    looked at, which contradict it; another fault of form there is noted, and the faulty value is not read.

    Attributes:
        status: `verified` (an answer) or `refused`.
        refusal: why no code is given; of a refusal only.
        error: instead of a status, an infrastructure failure.
        unreadable: instead of a status, why the pipeline could not read its model; such an answer is unreadable.
        tariff_dossier: the classification.
        citation_gate_result: what the pipeline's own check of citations found; null if it did not run.
        missing_evidence_gate_result: the same of the documents on which the answer depends.
        trace: rulings of the pipeline's checks, in order.
        notes: anything else, shown and never read.
    """

    status: Literal["verified", "refused"] | None = None
    refusal: Refusal | None = None
    error: Failure | None = None
    unreadable: str | None = None
    tariff_dossier: Dossier | None = None
    citation_gate_result: Gate | None = None
    missing_evidence_gate_result: Gate | None = None
    trace: ListOf[Ruling] = ()
    notes: dict[str, Any] = Field(default_factory=dict)

    _reading: Reading = PrivateAttr(Reading())

    @property
    def reading(self) -> Reading:
        """What was found when the answer was read."""
        return self._reading

    @property
    def refused(self) -> bool:
        """Whether no code is given: a refusal that recommends one is none."""
        return self.status == "refused" and not self.reading.recommended

    @property
    def shown(self) -> str | None:
        """The codes of an answer in one line; None without any."""
        dossier = self.dossier
        articles = [f'"{each.article}": {dotted(each.baseline.hts_code)}' for each in dossier.articles]
        # the suite decides which of the two is scored, so tables show both
        codes = [dotted(part.hts_code) for part in (dossier.baseline, dossier.optimized) if part]
        shown = "; ".join(first_of(articles, _MAX_SHOWN)) or ", optimised ".join(dict.fromkeys(codes))
        return shown if shown and self.status == "verified" else None

    @property
    def failure(self) -> results.Breakdown | None:
        """The infrastructure failure that the pipeline reports; None without one."""
        return results.Breakdown(**self.error.model_dump()) if self.error else None

    @property
    def firings(self) -> tuple[results.Firing, ...]:
        """The rulings of the pipeline's checks, in order."""
        return tuple(results.Firing(**each.model_dump(exclude={"iteration"})) for each in self.trace)

    @property
    def decided_by(self) -> str:
        """The gates that failed the last rejected proposal, in their order; empty if none rejected one."""
        failed = [each for each in self.trace if each.decision == "fail" and each.iteration]
        of_last = (each for each in failed if each.iteration == failed[-1].iteration)
        return ", ".join(each.hook.removeprefix("tariff.") for each in of_last)

    @classmethod
    def decided_unread(cls, result: Any) -> str:
        """Return the same of a result that can't be read; empty if its trace can't be read either."""
        try:
            return cls.model_validate({"status": "refused", "trace": result["trace"]}).decided_by
        except (ValidationError, LookupError, TypeError):
            return ""

    @property
    def dossier(self) -> Dossier:
        """The dossier; an empty one where there is none."""
        return self.tariff_dossier or Dossier()

    @cached_property
    def order(self) -> list[str] | None:
        """What is out of order in the steps of the interpretation rules, one line each; None without any steps."""
        parts = [part for part in (self.dossier, *self.dossier.articles) if part.gri_trace.steps]
        faults = (fault for part in parts for fault in order_faults(part.gri_trace.steps, part.code))
        return [*map(str, faults)] if parts else None

    @property
    def stated_order(self) -> bool | None:
        """What the pipeline's own check of the order found; None if it did not run."""
        stated = [part.gri_trace.sequence_ok for part in (self.dossier, *self.dossier.articles)]
        return min((ok for ok in stated if ok is not None), default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        reading = Reading()
        if isinstance(value, dict):
            value = without_history(value)
            if value.get("status") == "refused":
                reading, dossier = beside_refusal(value.get("tariff_dossier"))
                value = {**value, "tariff_dossier": dossier}
        answer = handler(value)
        answer._reading = reading  # noqa: SLF001 - its own
        if answer.unreadable is not None:
            raise misfit(f"the pipeline could not read its model: {answer.unreadable}", "an answer or a refusal")
        if (answer.status is None) == (answer.error is None):
            raise misfit("got no decision, or two", "`status` verified or refused, or an `error` instead")
        return answer


RECOMMENDING = ("baseline", "optimized", "what_if_candidates", "articles")
"""The parts of a dossier that recommend a code, a rate or a saving."""
_FOR_PEOPLE = frozenset({"description", "rationale", "confidence"})
_IN_WORDS = re.compile(r"\b(free|nil|zero|exempt)\b", re.IGNORECASE)


def beside_refusal(dossier: object) -> tuple[Reading, object]:
    """Look at what stands beside a refusal: what it recommends, and the faults of its form.

    Args:
        dossier: the dossier as it was given.

    Returns:
        What was found, and the dossier without the values of another form. They stay where one could hide a claim, as
        an unknown key could: the answer is unreadable then.
    """
    kept: Any = dossier if isinstance(dossier, dict) else {}
    recommended = next((name for name in RECOMMENDING if any(_stated(name, kept.get(name)))), "")
    reading = Reading(recommended)
    while True:
        try:
            Dossier.model_validate(kept)
        except ValidationError as error:
            details = error.errors(include_url=False)
            # a key that is no valid text has no place
            if not all(detail["loc"] for detail in details) or (not recommended and any(map(_hides, details))):
                return Reading(recommended), dossier
            # what lacks a value that it needs can't be read without it
            faulty = {detail["loc"][: -1 if detail["type"] == "missing" else None] for detail in details}
            is_lost = any(path[0] == "citations" and len(path) <= len(("citations", 0)) for path in faulty)
            reading = reading._replace(
                faults=reading.faults or tuple(map(str, validation_problems(error, Dossier))),
                is_unquoted=reading.is_unquoted or (is_lost and bool(kept["citations"])),
            )
            kept = without_keys(kept, faulty)
        else:
            return reading, kept if reading.faults else dossier


def _stated(name: str, part: object) -> Iterator[bool]:
    """Yield whether each value in a part of a dossier recommends something: of a baseline codes and rates do."""
    for path, leaf in walk(part):
        is_stated, key = leaf not in (None, "") and not isinstance(leaf, bool | dict | list), {*path[-1:]}
        is_offer = "duty_basis" in key or any(map(str.isdigit, str(leaf))) or _IN_WORDS.search(str(leaf))
        yield is_stated and (name != "baseline" or bool(not _FOR_PEOPLE & key and is_offer))


def _hides(detail: Mapping[str, Any]) -> bool:
    """Return whether a fault of form may hide a claim: an unknown key, or an object where a plain value belongs."""
    is_container = isinstance(detail["input"], dict | list) and detail["type"] != "missing"
    return detail["type"] == "extra_forbidden" or is_container


_IN_DOSSIER = frozenset({"candidate_chapters", "questions_for_user"})


class EarlierGate(StrictModel):
    """What a gate of the reference target of earlier versions ruled."""

    name: Text
    rule: int
    decision: Literal["pass", "fail", "skip"]
    violations: ListOf[str]
    objections: ListOf[str] = ()


class EarlierIteration(StrictModel):
    """One proposal of that target: what its critic found, and what its gates ruled."""

    i: int
    accepted: bool
    rejected_because: ListOf[str]
    conflicts: ListOf[str]
    missing: ListOf[str]
    unsupported: ListOf[str]
    sequence_violations: ListOf[str]
    citation_gate_result: Gate | None
    missing_evidence_gate_result: Gate | None
    gates: ListOf[EarlierGate]

    def tells(self, result: dict[str, Any]) -> bool:
        """Return whether a result that ends with this iteration says the same: its decision, and what its gates say."""
        failed, status = [gate.name for gate in self.gates if gate.decision == "fail"], result.get("status")
        objections = TariffAnswer.decided_unread(result) if status == "rejected" else ""
        gates = self.model_dump(mode="json", include={"citation_gate_result", "missing_evidence_gate_result"})
        return (
            self.accepted is result.get("accepted") is (status == "verified")
            and [*self.rejected_because] == failed
            and ", ".join(failed) == objections
            and bool(failed) is (status == "rejected")
            and (bool(failed) or not (self.conflicts or self.sequence_violations))
            and all(gate in (None, result.get(key)) for key, gate in gates.items())
        )


class History(StrictModel):
    """How a result of that target came about, and what its dossier had beside the document."""

    iterations: ListOf[EarlierIteration]
    candidate_chapters: ListOf[Annotated[str, StringConstraints(pattern="^[0-9]{2}$")]] = ()
    questions_for_user: ListOf[str] = ()


def without_history(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result of the reference target of earlier versions as a document; any other result as it is.

    That target wrote beside the document how it came about, and some of it twice. It is moved into `notes` if it has
    the form of then, ends as the document does and repeats what that says. Otherwise it stays, as keys that the
    document does not have. Where no proposal passed, none is given: that says nothing about the goods.
    """
    dossier, refusal = result.get("tariff_dossier") or {}, result.get("refusal") or {}
    if "iterations" not in result or "notes" in result or not isinstance(dossier, dict):
        return result
    is_rejected = result.get("status") == "rejected"
    inside = {key: dossier[key] for key in _IN_DOSSIER & dossier.keys()}
    plain = {key: value for key, value in dossier.items() if key not in inside}
    try:
        is_told = (
            History.model_validate({"iterations": result["iterations"], **inside}).iterations[-1].tells(result)
            and result["citations"] == plain.get("citations", [])
            and (is_rejected or result["lever_proof"] == {"selected_levers": _levers(result, plain)})
            and (is_rejected or inside.get("questions_for_user", []) in ([], refusal.get("questions")))
        )
    except (ValidationError, LookupError, TypeError, AttributeError):
        return result
    if not is_told:
        return result
    beside = {key: result[key] for key in ("accepted", "iterations", "citations", "lever_proof")}
    document = {key: value for key, value in result.items() if key not in beside} | {"tariff_dossier": plain}
    if is_rejected:
        inside |= {"refusal": result.get("refusal"), **{key: plain.pop(key, None) for key in RECOMMENDING}}
        document |= {"status": "refused", "refusal": None}
    return {**document, "notes": {**inside, **beside}}


def _levers(result: dict[str, Any], dossier: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the levers that the earlier target wrote for the what-ifs of an answer, the best first."""
    if result["status"] == "refused":
        return []
    read, found = Dossier.model_validate(dossier), {"ok": True, "violations": []}
    best = read.optimized and read.optimized.what_if_id
    return [
        {
            **each.model_dump(include={"id", "change", "expected_hts"}),
            "sequence": [{"label": step, "category": each.kind, "compliance_result": found} for step in each.steps],
            "gate_results": {"plausibility": [found]},
        }
        for each in sorted(read.what_if_candidates, key=lambda each: each.id != best)
        if each.is_lawful
    ]


class Proposal(Dossier):
    """A dossier with a decision: the answer of the reference target's model to the roles `propose` and `revise`.

    Attributes:
        decision: `classify` or `refuse`.
        product_summary: the goods in the model's words.
        refusal: set in a refusal.
    """

    product_summary: Text
    decision: Literal["classify", "refuse"]
    refusal: Refusal | None = None


class Critique(StrictModel):
    """The answer to the role `critique`.

    Attributes:
        conflicts: contradictions between answer, facts and rules; each one sends the answer back.
        missing: facts or documents that the answer needs and the request lacks.
        unsupported: claims without ground in the request.
        comment: the critic's view in one or two sentences.
    """

    conflicts: ListOf[str] = ()
    missing: ListOf[str] = ()
    unsupported: ListOf[str] = ()
    comment: str
