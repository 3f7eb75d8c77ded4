"""The reference target: propose, have it criticised, judge it by the gates, revise until it holds.

Only the model's answers vary; everything else follows from them. The result has the original's names, so that one
reader reads both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_packbench.model.errors import CaseError, validation_problems
from pytest_packbench.packs.tariff import prompts
from pytest_packbench.packs.tariff.codes import chapter
from pytest_packbench.packs.tariff.dossier import Critique, Proposal
from pytest_packbench.packs.tariff.gates import CRITICAL, GateInput, form, judge
from pytest_packbench.packs.tariff.gates.duty import implausible_delta, is_lawful, undocumented
from pytest_packbench.packs.tariff.model import TariffInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.request import LLM, ModelRequest, VerifyContext, VerifyRequest
    from pytest_packbench.packs.tariff.gates import GateResult, Violation

ModelT = TypeVar("ModelT", bound=BaseModel)
Status = Literal["verified", "refused", "rejected"]
_MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One proposal's way through critic and gates.

    Attributes:
        number: its place among the proposals, from 1.
        answer: the JSON value that the model gave as proposal.
        proposal: the same, read; None where it is no proposal.
        critique: what the critic said; None where nobody was asked or the answer is no critique.
        gates: what the gates decided, `form` first; empty where the model declined to answer.
        declined: the model's words where it declined to answer; None otherwise.
    """

    number: int
    answer: object
    proposal: Proposal | None = None
    critique: Critique | None = None
    gates: tuple[GateResult, ...] = ()
    declined: str | None = None

    @property
    def failed(self) -> list[str]:
        """Names of the critical gates that failed."""
        return [gate.name for gate in self.gates if gate.decision == "fail" and gate.name in CRITICAL]

    @property
    def findings(self) -> list[str]:
        """What there is to mend, a line each, with the gate that says so."""
        return [f"{gate.name}: {line}" for gate in self.gates for line in gate.lines]

    @property
    def status(self) -> Status:
        """How a run ends that ends here: `rejected` where it would have to go on."""
        if self.declined is not None:
            return "refused"
        if self.proposal is None or self.failed:
            return "rejected"
        return "verified" if self.proposal.decision == "classify" else "refused"

    def gate(self, name: str) -> GateResult | None:
        """Give what a gate decided; None where it did not run or had nothing to judge."""
        return next((gate for gate in self.gates if gate.name == name and gate.decision != "skip"), None)


async def verify(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Classify goods, or refuse to, in at most `options.max_iters` proposals.

    A proposal is followed by a critique and the gates; one that fails a critical gate goes back with what was found.
    An answer that is no proposal or no critique fails the gate `form` and counts as an iteration. A model that
    declines to answer, in any role, ends the run as a refusal without a category.

    The model is asked in the roles `propose`, `critique` and `revise`.

    Returns:
        The original's payload, plain JSON. `tariff_dossier`, citations, gate results and levers are those of the last
        iteration with a valid proposal; without any the dossier is null.

    Raises:
        CaseError: the request is no verify request of this pack.
        Exception: whatever the model call raises; a breakdown is no refusal.
    """
    try:
        goods = TariffInput.model_validate(request.as_json())
    except ValidationError as error:
        raise CaseError("request", validation_problems(error, TariffInput)) from None
    iterations: list[Iteration] = []
    ask = prompts.propose(goods)
    for number in range(1, goods.options.max_iters + 1):
        iteration = await _iterate(number, ask, goods, context.llm)
        iterations.append(iteration)
        if iteration.status != "rejected":
            break
        ask = prompts.revise(goods, iteration.answer, iteration.findings)
    return _result(iterations)


async def _iterate(number: int, ask: ModelRequest, goods: TariffInput, llm: LLM) -> Iteration:
    answer = await llm.complete(ask)
    if answer.refusal is not None:
        return Iteration(number=number, answer=answer.content, declined=answer.refusal)
    proposal, problems = _read(answer.content, Proposal)
    if proposal is None:
        return Iteration(number=number, answer=answer.content, gates=(form(problems),))
    reply = await llm.complete(prompts.critique(goods, proposal))
    if reply.refusal is not None:
        return Iteration(number=number, answer=answer.content, proposal=proposal, declined=reply.refusal)
    critique, problems = _read(reply.content, Critique)
    judged = judge(GateInput(request=goods, proposal=proposal, critique=critique))
    return Iteration(
        number=number, answer=answer.content, proposal=proposal, critique=critique, gates=(form(problems), *judged)
    )


def _read(content: object, model: type[ModelT]) -> tuple[ModelT | None, list[str]]:
    """Read a model's answer; without a model there is at least one problem, a line each."""
    try:
        return model.model_validate(content), []
    except ValidationError as error:
        problems = validation_problems(error, model)
    lines = [" ".join(f"{model.__name__} {problem}".split()) for problem in problems[:_MOST_PROBLEMS]]
    more = len(problems) - len(lines)
    return None, [*lines, *([f"{more} more problems of the same answer"] if more else [])]


def _result(iterations: Sequence[Iteration]) -> dict[str, Any]:
    """Put a run of one iteration or more into the original's payload."""
    last = iterations[-1]
    shown = next((iteration for iteration in reversed(iterations) if iteration.proposal is not None), last)
    proposal = shown.proposal
    dossier = None if proposal is None else _dossier(proposal, shown.gate("gri_sequence"))
    return {
        "status": last.status,
        "accepted": last.status == "verified",
        "refusal": _refusal(iterations),
        "iterations": [_iteration(iteration) for iteration in iterations],
        "tariff_dossier": dossier,
        "citations": dossier["citations"] if dossier else [],
        **_evidence_gates(shown),
        "lever_proof": {"selected_levers": [] if proposal is None else list(_levers(proposal))},
        "trace": [
            {"hook": f"tariff.{gate.name}", "decision": gate.decision, "rule": gate.rule, "iteration": iteration.number}
            for iteration in iterations
            for gate in iteration.gates
        ],
    }


def _refusal(iterations: Sequence[Iteration]) -> dict[str, Any] | None:
    last = iterations[-1]
    if last.declined is not None:
        return {"category": None, "reason": last.declined, "questions": []}
    if last.status == "verified":
        return None
    if last.status == "refused" and last.proposal is not None and last.proposal.refusal is not None:
        return last.proposal.refusal.model_dump(mode="json")
    # only who refuses outright names a category: running out of proposals is no judgement of the goods
    reason = f"none of {len(iterations)} proposals passed the gates; the last failed {', '.join(last.failed)}"
    return {"category": None, "reason": reason, "questions": []}


def _iteration(iteration: Iteration) -> dict[str, Any]:
    critique, sequence = iteration.critique, iteration.gate("gri_sequence")
    return {
        "i": iteration.number,
        "accepted": iteration.status == "verified",
        "rejected_because": iteration.failed,
        "conflicts": list(critique.conflicts) if critique else [],
        "missing": list(critique.missing) if critique else [],
        "unsupported": list(critique.unsupported) if critique else [],
        "sequence_violations": sequence.lines if sequence else [],
        **_evidence_gates(iteration),
        "gates": [gate.as_json() for gate in iteration.gates],
    }


def _evidence_gates(iteration: Iteration) -> dict[str, Any]:
    return {
        f"{key}_gate_result": None if gate is None else {"ok": gate.decision == "pass", "violations": gate.lines}
        for key, gate in (
            ("citation", iteration.gate("citations")),
            ("missing_evidence", iteration.gate("missing_evidence")),
        )
    }


def _dossier(proposal: Proposal, sequence: GateResult | None) -> dict[str, Any]:
    plain = proposal.model_dump(mode="json")
    return {
        "product_summary": plain["product_summary"],
        "candidate_chapters": list(dict.fromkeys(map(chapter, proposal.candidate_headings))),
        "assumptions": plain["assumptions"],
        "gri_trace": {
            "sequence_ok": None if sequence is None else sequence.decision == "pass",
            "steps": plain["gri_trace"]["steps"],
        },
        "composition_table": plain["composition_table"],
        "essential_character": plain["essential_character"],
        "baseline": plain["baseline"],
        "optimized": plain["optimized"],
        "what_if_candidates": plain["what_if_candidates"],
        "citations": plain["citations"],
        "questions_for_user": list(proposal.refusal.questions) if proposal.refusal else [],
    }


def _levers(proposal: Proposal) -> Iterable[dict[str, Any]]:
    best = proposal.optimized.what_if_id if proposal.optimized else None
    # the original's readers take the first lever for the best
    for what_if in sorted(filter(is_lawful, proposal.what_if_candidates), key=lambda item: item.id != best):
        compliance = _verdict(undocumented(what_if))
        yield {
            "sequence": [
                {"label": step, "category": what_if.kind, "compliance_result": compliance} for step in what_if.steps
            ],
            "gate_results": {"plausibility": [_verdict(implausible_delta(proposal, what_if))]},
        }


def _verdict(found: Iterable[Violation]) -> dict[str, Any]:
    lines = [str(violation) for violation in found]
    return {"ok": not lines, "violations": lines}
