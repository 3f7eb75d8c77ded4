"""The reference target: propose, critique, run the gates, and revise until no gate fails.

The result depends on the model's answers only. It has the field names of the original harness, so that one parser reads
both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_packbench.model.errors import CaseError, validation_problems
from pytest_packbench.model.request import AnswerError, ModelAnswer
from pytest_packbench.packs.tariff import prompts
from pytest_packbench.packs.tariff.checks import CHECKS, CheckInput, run_checks, unparsed_proposal
from pytest_packbench.packs.tariff.checks.duty import implausible_delta, is_lawful, undocumented
from pytest_packbench.packs.tariff.dossier import Critique, Proposal
from pytest_packbench.packs.tariff.model import TariffInput
from pytest_packbench.packs.tariff.notation import chapter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.request import LLM, ModelRequest, Target, VerifyContext, VerifyRequest
    from pytest_packbench.packs.tariff.checks import CheckResult, DossierCheck, Violation
    from pytest_packbench.packs.tariff.edition import Edition

ModelT = TypeVar("ModelT", bound=BaseModel)
Status = Literal["verified", "refused", "rejected"]
_MAX_PROBLEMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One proposal with its critique and gate results.

    Attributes:
        number: its number, from 1.
        answer: the model's answer, a JSON value.
        proposal: the parsed answer; None if it is not a valid proposal.
        critique: the critic's answer; None if there was no such call or the answer is not a valid critique.
        gates: the results of the gates, `form` first; empty if the model declined to answer.
        declined: the model's message if it declined to answer, else None.
    """

    number: int
    answer: object
    proposal: Proposal | None = None
    critique: Critique | None = None
    gates: tuple[CheckResult, ...] = ()
    declined: str | None = None

    @property
    def failed(self) -> list[str]:
        """Names of the gates that failed."""
        return [gate.name for gate in self.gates if gate.decision == "fail"]

    @property
    def findings(self) -> list[str]:
        """The violations, one line each, prefixed with the gate's name."""
        return [f"{gate.name}: {line}" for gate in self.gates for line in gate.lines]

    @property
    def status(self) -> Status:
        """The status of a run that ends with this iteration; `rejected` if a revision is needed."""
        if self.declined is not None:
            return "refused"
        if self.proposal is None or self.failed:
            return "rejected"
        return "verified" if self.proposal.decision == "classify" else "refused"

    def gate(self, name: str) -> CheckResult | None:
        """Return the result of a gate; None if it did not run or did not apply."""
        return next((gate for gate in self.gates if gate.name == name and gate.decision != "skip"), None)


class _Rules(NamedTuple):
    """What proposals are checked by: the gates, and the schedule that one of them knows."""

    checks: Sequence[DossierCheck]
    edition: Edition | None


def reference_target(edition: Edition | None = None, *, checks: Sequence[DossierCheck] = CHECKS) -> Target:
    """Return the reference target of a suite.

    Args:
        edition: the schedule in which the gate `schedule` looks up codes and rates; without one it does not apply.
        checks: the gates; all of them by default.
    """
    rules = _Rules(tuple(checks), edition)

    async def verify_goods(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        return await _verify(request, context, rules)

    return verify_goods


async def verify(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Classify goods without a schedule; see `_verify`."""
    return await _verify(request, context, _Rules(CHECKS, None))


async def _verify(request: VerifyRequest, context: VerifyContext, rules: _Rules) -> dict[str, Any]:
    """Classify goods, or refuse to, with at most `options.max_iters` proposals.

    Each proposal is criticised and checked by the gates; if a gate fails, the model revises the proposal by
    the violations. An answer that is not a valid proposal or critique fails the gate `form` and counts as an
    iteration. If the model declines to answer, in any role, the run ends as a refusal without a category.

    The model is called in the roles `propose`, `critique` and `revise`.

    Returns:
        A result as the original harness has it, plain JSON. `tariff_dossier`, citations, gate results and levers are
        those of the last iteration with a valid proposal. Without one the dossier is null and, unless the model
        declined, `unreadable` says what was wrong with the last answer: it neither classifies nor refuses.

    Raises:
        CaseError: the request is not a verify request of this pack.
        Exception: any error of a model call; an infrastructure failure is never a refusal.
    """
    try:
        goods = TariffInput.model_validate(request.as_json())
    except ValidationError as error:
        raise CaseError("request", validation_problems(error, TariffInput)) from None
    iterations: list[Iteration] = []
    request_to_model = prompts.propose(goods)
    for number in range(1, goods.options.max_iters + 1):
        iteration = await _iterate(number, request_to_model, goods, context.llm, rules)
        iterations.append(iteration)
        if iteration.status != "rejected":
            break
        request_to_model = prompts.revise(goods, iteration.answer, iteration.findings)
    return _result(iterations)


async def _iterate(number: int, request: ModelRequest, goods: TariffInput, llm: LLM, rules: _Rules) -> Iteration:
    answer, unread = await _ask(llm, request)
    if answer.refusal is not None:
        return Iteration(number=number, answer=answer.content, declined=answer.refusal)
    proposal, problems = _parse(answer.content, Proposal) if not unread else (None, [unread])
    if proposal is None:
        return Iteration(number=number, answer=answer.content, gates=(unparsed_proposal(problems),))
    reply, unread = await _ask(llm, prompts.critique(goods, proposal))
    if reply.refusal is not None:
        return Iteration(number=number, answer=answer.content, proposal=proposal, declined=reply.refusal)
    critique, problems = _parse(reply.content, Critique) if not unread else (None, [unread])
    inputs = CheckInput(
        request=goods, proposal=proposal, critique=critique, problems=tuple(problems), edition=rules.edition
    )
    gates = run_checks(inputs, rules.checks)
    return Iteration(number=number, answer=answer.content, proposal=proposal, critique=critique, gates=gates)


async def _ask(llm: LLM, request: ModelRequest) -> tuple[ModelAnswer, str]:
    """Return a model's answer, and why it can't be read; empty if it can."""
    try:
        return await llm.complete(request), ""
    except AnswerError as error:
        return ModelAnswer(content=error.text), " ".join(str(error).split())


def _parse(content: object, model: type[ModelT]) -> tuple[ModelT | None, list[str]]:
    """Parse a model's answer; an invalid one is returned as None with its problems, one line each."""
    try:
        return model.model_validate(content), []
    except ValidationError as error:
        problems = validation_problems(error, model)
    lines = [" ".join(f"{model.__name__} {problem}".split()) for problem in problems[:_MAX_PROBLEMS]]
    more = len(problems) - len(lines)
    return None, [*lines, *([f"{more} more problems in the same answer"] if more else [])]


def _result(iterations: Sequence[Iteration]) -> dict[str, Any]:
    """Return the result of a run in the format of the original harness."""
    last = iterations[-1]
    reported = next((iteration for iteration in reversed(iterations) if iteration.proposal is not None), last)
    proposal = reported.proposal
    dossier = None if proposal is None else _dossier(proposal, reported.gate("gri_sequence"))
    if dossier is not None and last.status == "refused":
        # what an earlier proposal recommends is not given beside a refusal
        dossier |= {"baseline": None, "optimized": None, "what_if_candidates": []}
        dossier.pop("articles", None)
    return {
        **_unreadable(iterations),
        "status": last.status,
        "accepted": last.status == "verified",
        "refusal": _refusal(iterations),
        "iterations": [_iteration(iteration) for iteration in iterations],
        "tariff_dossier": dossier,
        "citations": dossier["citations"] if dossier else [],
        **_evidence_gates(reported),
        "lever_proof": {
            "selected_levers": [] if proposal is None or last.status == "refused" else list(_levers(proposal))
        },
        "trace": [
            {"hook": f"tariff.{gate.name}", "decision": gate.decision, "rule": gate.rule, "iteration": iteration.number}
            for iteration in iterations
            for gate in iteration.gates
        ],
    }


def _unreadable(iterations: Sequence[Iteration]) -> dict[str, str]:
    last = iterations[-1]
    if last.declined is not None or any(iteration.proposal is not None for iteration in iterations):
        return {}
    return {"unreadable": f"none of {len(iterations)} answers is a proposal: {'; '.join(last.findings)}"}


def _refusal(iterations: Sequence[Iteration]) -> dict[str, Any] | None:
    last = iterations[-1]
    if last.declined is not None:
        return {"category": None, "reason": last.declined, "questions": []}
    if last.status == "verified":
        return None
    if last.status == "refused" and last.proposal is not None and last.proposal.refusal is not None:
        return last.proposal.refusal.model_dump(mode="json")
    # running out of proposals says nothing about the goods, so such a refusal has no category
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


def _dossier(proposal: Proposal, sequence: CheckResult | None) -> dict[str, Any]:
    plain = proposal.model_dump(mode="json")
    headings = (*proposal.candidate_headings, *(head for item in proposal.articles for head in item.candidate_headings))
    return {
        "product_summary": plain["product_summary"],
        "candidate_chapters": list(dict.fromkeys(map(chapter, headings))),
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
        # absent from an answer about one article
        **({"articles": plain["articles"]} if proposal.articles else {}),
    }


def _levers(proposal: Proposal) -> Iterable[dict[str, Any]]:
    best = proposal.optimized.what_if_id if proposal.optimized else None
    # the first lever is scored as the best one
    for what_if in sorted(filter(is_lawful, proposal.what_if_candidates), key=lambda item: item.id != best):
        compliance = _gate_result(undocumented(what_if))
        yield {
            "id": what_if.id,
            "change": what_if.change,
            "expected_hts": what_if.expected_hts,
            "sequence": [
                {"label": step, "category": what_if.kind, "compliance_result": compliance} for step in what_if.steps
            ],
            "gate_results": {"plausibility": [_gate_result(implausible_delta(proposal, what_if))]},
        }


def _gate_result(violations: Iterable[Violation]) -> dict[str, Any]:
    lines = [str(violation) for violation in violations]
    return {"ok": not lines, "violations": lines}
