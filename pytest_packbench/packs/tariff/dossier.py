"""The answers of the model: the proposal (a tariff dossier) and the critique. Names follow the original harness.

Names and docstrings of these classes are part of the JSON Schema in every request, hence of the hash by which a
recording is recognised: a change of either makes recordings stale.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pytest_packbench.model.case import Fraction, ListOf, StrictModel, Text
from pytest_packbench.packs.tariff.model import RefusalCategory  # noqa: TC001 - pydantic reads it at run time
from pytest_packbench.packs.tariff.notation import Level, Rule  # noqa: TC001 - as above

Percent = Annotated[float, Field(ge=0, le=1000)]


class GriStep(StrictModel):
    """One step of the interpretation rules.

    Attributes:
        rule: the General Rule of Interpretation, or the Additional US Rule.
        level: what is chosen: heading (4 digits), subheading (6), line (8) or suffix (10).
        candidates: the codes compared, at the digits of the level.
        outcome: `decided` (one is chosen), `tied` (two or more remain) or `failed` (none fits).
        chosen: the code chosen, when decided.
        as_set: whether the step treats the goods as a retail set.
        reason: the facts and texts that decide, in one or two sentences.
    """

    rule: Rule
    level: Level
    candidates: ListOf[Text]
    outcome: Literal["decided", "tied", "failed"]
    chosen: Text | None = None
    as_set: bool = False
    reason: Text


class GriTrace(StrictModel):
    """The steps in the order taken."""

    steps: ListOf[GriStep] = ()


class Component(StrictModel):
    """A part of composite goods; shares in percent of the whole, null where not known."""

    component: Text
    material: Text
    weight_pct: Percent | None = None
    value_pct: Percent | None = None


class EssentialCharacter(StrictModel):
    """Which component gives the goods their essential character, and by which factors (GRI 3(b))."""

    component: Text
    factors: ListOf[Text]
    rationale: Text


class DutyLayer(StrictModel):
    """A duty on top of the base rate, percent of value."""

    layer_id: Text
    pct: Percent
    reason: Text


class DutyBreakdown(StrictModel):
    """How the total rate comes about; percent of value, null where the rate isn't ad valorem."""

    base_rate_pct: Percent | None
    applied_additional_duties: ListOf[DutyLayer] = ()
    total_rate_pct: Percent | None


class Classification(StrictModel):
    """A code with its duty.

    Attributes:
        hts_code: as the schedule writes it, ten digits where it has them.
        description: the line's text in the model's own words.
        duty_basis: the kind of rate.
        duty_rate_pct: the total rate in percent of value; null unless free or ad valorem.
        duty_breakdown: base rate and layers.
        rationale: why this code, in a few sentences about these goods.
        confidence: 0 to 1.
    """

    hts_code: Text
    description: Text | None = None
    duty_basis: Literal["free", "ad valorem", "specific", "compound"]
    duty_rate_pct: Percent | None
    duty_breakdown: DutyBreakdown
    rationale: Text
    confidence: Fraction


class ArticleAnswer(StrictModel):
    """One of several articles that each need a code of their own.

    Attributes:
        article: what it is, in a few words.
        candidate_headings: headings considered for it, four digits each.
        gri_trace: the interpretation rules in the order used for it.
        composition_table: its parts or materials.
        essential_character: needed where rule 3(b) decides.
        baseline: its code and duty.
    """

    article: Text
    candidate_headings: ListOf[Text] = ()
    gri_trace: GriTrace = GriTrace()
    composition_table: ListOf[Component] | None = None
    essential_character: EssentialCharacter | None = None
    baseline: Classification


class WhatIf(StrictModel):
    """A change by which the goods would bear another duty.

    Attributes:
        id: a short name.
        kind: what changes. A change of `description` or `valuation` alone is not lawful.
        change: the change: its id in the importer's list where there is one, else one sentence.
        steps: what has to be done, in order.
        expected_hts: the code after the change.
        estimated_duty_delta: percentage points against the baseline.
        rationale: why the changed goods fall there.
        legal_risks: what could go wrong in law.
        required_evidence: what would prove the change.
    """

    id: Text
    kind: Literal[
        "materials", "construction", "components", "packaging", "process", "origin", "description", "valuation"
    ]
    change: Text
    steps: ListOf[Text]
    expected_hts: Text
    estimated_duty_delta: float
    rationale: Text
    legal_risks: ListOf[Text] = ()
    required_evidence: ListOf[Text] = ()


class Optimized(StrictModel):
    """The best what-if as a classification of its own."""

    what_if_id: Text
    hts_code: Text
    duty_rate_pct: Percent | None
    rationale: Text
    risk_flags: ListOf[Text] = ()


class Citation(StrictModel):
    """A claim with the words of the evidence that bear it out."""

    source_id: Text
    claim: Text
    quote: Text


class Reliance(StrictModel):
    """A document on which the answer depends; `source_id` is null where the request doesn't bring it."""

    document: Text
    source_id: Text | None


class Refusal(StrictModel):
    """Why no code can be given, and what would have to be known."""

    category: RefusalCategory
    reason: Text
    questions: ListOf[Text] = ()


class Proposal(StrictModel):
    """The answer to the roles `propose` and `revise`.

    Attributes:
        decision: `classify` or `refuse`.
        product_summary: the goods in the model's words.
        assumptions: what was taken for granted.
        candidate_headings: headings considered, four digits each.
        gri_trace: the interpretation rules in the order used.
        composition_table: parts of composite goods.
        essential_character: needed where rule 3(b) decides.
        baseline: the goods as they are; null in a refusal, and where each article has its own.
        articles: one entry for each article, where the request asks for a code for each; empty otherwise.
        optimized: the best what-if; null without one.
        what_if_candidates: lawful changes, at most five.
        citations: quotes from the evidence.
        relies_on: documents on which the answer depends.
        refusal: set in a refusal.
    """

    decision: Literal["classify", "refuse"]
    product_summary: Text
    assumptions: ListOf[Text] = ()
    candidate_headings: ListOf[Text] = ()
    gri_trace: GriTrace = GriTrace()
    composition_table: ListOf[Component] | None = None
    essential_character: EssentialCharacter | None = None
    baseline: Classification | None = None
    articles: ListOf[ArticleAnswer] = ()
    optimized: Optimized | None = None
    what_if_candidates: ListOf[WhatIf] = ()
    citations: ListOf[Citation] = ()
    relies_on: ListOf[Reliance] = ()
    refusal: Refusal | None = None


class Critique(StrictModel):
    """The answer to the role `critique`.

    Attributes:
        conflicts: contradictions between answer, facts and rules; each one sends the answer back.
        missing: facts or documents that the answer needs and the request lacks.
        unsupported: claims without ground in the request.
        comment: the critic's view in one or two sentences.
    """

    conflicts: ListOf[Text] = ()
    missing: ListOf[Text] = ()
    unsupported: ListOf[Text] = ()
    comment: Text
