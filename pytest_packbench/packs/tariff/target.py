"""The reference target: propose, critique, run the gates, and revise until no gate fails.

The result is the document of an answer, and depends on the model's answers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_packbench.model.errors import CaseError, single_spaced, validation_problems
from pytest_packbench.model.request import AnswerError, ModelAnswer
from pytest_packbench.packs.tariff import prompts
from pytest_packbench.packs.tariff.answer import Critique, Proposal
from pytest_packbench.packs.tariff.checks import CHECKS, CheckInput, run_checks, unread_proposal
from pytest_packbench.packs.tariff.model import TariffInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.request import LLM, ModelRequest, Target, VerifyContext, VerifyRequest
    from pytest_packbench.packs.tariff.checks import CheckResult
    from pytest_packbench.packs.tariff.edition import Edition

ModelT = TypeVar("ModelT", bound=BaseModel)
_MAX_PROBLEMS = 10
_DECISION = frozenset({"decision", "refusal"})
_OF_A_CODE = ("baseline", "optimized", "what_if_candidates", "articles")
_EVIDENCE_GATES = {"citation_gate_result": "citations", "missing_evidence_gate_result": "missing_evidence"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One proposal with its gate results.

    Attributes:
        number: its number, from 1.
        answer: the model's answer, a JSON value.
        proposal: the answer as a proposal; None if it is none.
        gates: the results of the gates, `form` first; empty if the model declined to answer.
        declined: the model's message if it declined to answer, else None.
    """

    number: int
    answer: object
    proposal: Proposal | None = None
    gates: tuple[CheckResult, ...] = ()
    declined: str | None = None

    @property
    def findings(self) -> list[str]:
        """The objections, one line each, prefixed with the gate's name."""
        return [f"{gate.name}: {line}" for gate in self.gates for line in gate.lines]

    @property
    def status(self) -> Literal["verified", "refused", "rejected"]:
        """The status of a run that ends with this iteration; `rejected` if a revision is needed."""
        if self.declined is not None:
            return "refused"
        if self.proposal is None or any(gate.decision == "fail" for gate in self.gates):
            return "rejected"
        return "verified" if self.proposal.decision == "classify" else "refused"

    def found(self, name: str) -> dict[str, Any] | None:
        """Return what a gate found, as the document has it; None if it did not run or did not apply."""
        gate = next((gate for gate in self.gates if gate.name == name and gate.decision != "skip"), None)
        return gate and {"ok": gate.decision == "pass", "violations": gate.lines}


class _Rules(NamedTuple):
    """What proposals are checked by: the schedule, and the names of the gates."""

    edition: Edition | None
    checks: Sequence[str]


def reference_target(edition: Edition | None = None, *, checks: Iterable[str] = tuple(CHECKS)) -> Target:
    """Return the reference target of a suite.

    Args:
        edition: the schedule in which the gates look up codes and rates; none by default.
        checks: the names of the gates; all of them by default.
    """
    rules = _Rules(edition, tuple(checks))

    async def verify_goods(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        return await _verify(request, context, rules)

    return verify_goods


async def verify(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Classify goods without a schedule; see `_verify`."""
    return await _verify(request, context, _Rules(None, tuple(CHECKS)))


async def _verify(request: VerifyRequest, context: VerifyContext, rules: _Rules) -> dict[str, Any]:
    """Classify goods, or refuse to, with at most `options.max_iters` proposals.

    Each proposal is criticised and checked by the gates; if a gate fails, the model revises the proposal by the
    objections. An answer that is not a valid proposal or critique fails the gate `form` and counts as an iteration. If
    the model declines to answer, in any role, the run ends as a refusal without a category.

    The model is called in the roles `propose`, `critique` and `revise`.

    Returns:
        A `TariffAnswer`, plain JSON. Its dossier and gate results are those of the last iteration with a valid
        proposal. Without one the dossier is null and, unless the model declined, `unreadable` says what was wrong with
        the last answer: it neither classifies nor refuses.

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
    return _document(iterations)


async def _iterate(number: int, request: ModelRequest, goods: TariffInput, llm: LLM, rules: _Rules) -> Iteration:
    answer, unread = await _ask(llm, request)
    if answer.refusal is not None:
        return Iteration(number=number, answer=answer.content, declined=answer.refusal)
    proposal, problems, is_reviewed = _parse(answer.content, Proposal) if not unread else (None, [unread], False)
    if not is_reviewed:
        return Iteration(number=number, answer=answer.content, gates=(unread_proposal(problems),))
    reply, unread = await _ask(llm, prompts.critique(goods, answer.content))
    if reply.refusal is not None:
        return Iteration(number=number, answer=answer.content, proposal=proposal, declined=reply.refusal)
    if proposal is None:
        return Iteration(number=number, answer=answer.content, gates=(unread_proposal(problems),))
    critique, problems, _ = _parse(reply.content, Critique) if not unread else (None, [unread], False)
    inputs = CheckInput(
        request=goods, proposal=proposal, critique=critique, problems=tuple(problems), edition=rules.edition
    )
    gates = run_checks(inputs, rules.checks)
    return Iteration(number=number, answer=answer.content, proposal=proposal, gates=gates)


async def _ask(llm: LLM, request: ModelRequest) -> tuple[ModelAnswer, str]:
    """Return a model's answer, and why it can't be read; empty if it can."""
    try:
        return await llm.complete(request), ""
    except AnswerError as error:
        return ModelAnswer(content=error.text), single_spaced(str(error))


def _parse(content: object, model: type[ModelT]) -> tuple[ModelT | None, list[str], bool]:
    """Parse a model's answer.

    Returns:
        The answer; None for an invalid one. Its problems, one line each. Whether a critic can review it: its keys are
        those of the model, and only texts in them, such as a code, or a step have another form.
    """
    try:
        return model.model_validate(content), [], True
    except ValidationError as error:
        problems = validation_problems(error, model)
        details = error.errors(include_url=False)
        is_shaped = all(each["type"] == "misfit" and isinstance(each["input"], str | dict) for each in details)
    lines = [single_spaced(f"{model.__name__} {problem}") for problem in problems[:_MAX_PROBLEMS]]
    more = len(problems) - len(lines)
    return None, [*lines, *([f"{more} more problems in the same answer"] if more else [])], is_shaped


def _document(iterations: Sequence[Iteration]) -> dict[str, Any]:
    """Return the answer of a run as a document."""
    last = iterations[-1]
    reported = next((iteration for iteration in reversed(iterations) if iteration.proposal is not None), last)
    trace = [
        {"hook": f"tariff.{gate.name}", "decision": gate.decision, "rule": gate.rule, "iteration": iteration.number}
        for iteration in iterations
        for gate in iteration.gates
    ]
    objections = [
        {"iteration": iteration.number, "gate": gate.name, **objection._asdict()}
        for iteration in iterations
        for gate in iteration.gates
        for objection in gate.objections
    ]
    course = {"trace": trace, "notes": {"objections": objections}}
    if reported.proposal is None and last.declined is None:
        return {"unreadable": f"none of {len(iterations)} answers is a proposal: {'; '.join(last.findings)}", **course}
    dossier = None
    if reported.proposal is not None:
        # what an earlier proposal recommends is not given beside a refusal
        hidden = _DECISION if last.status == "verified" else {*_DECISION, *_OF_A_CODE}
        dossier = reported.proposal.model_dump(mode="json", exclude=set(hidden), exclude_defaults=True)
        if order := reported.found("gri_sequence"):
            for part in (dossier, *dossier.get("articles", ())):
                part.get("gri_trace", {})["sequence_ok"] = order["ok"]
    return {
        "status": "verified" if last.status == "verified" else "refused",
        "refusal": _refusal(iterations),
        "tariff_dossier": dossier,
        **{key: reported.found(gate) for key, gate in _EVIDENCE_GATES.items()},
        **course,
    }


def _refusal(iterations: Sequence[Iteration]) -> dict[str, Any] | None:
    last = iterations[-1]
    if last.declined is not None:
        return {"category": None, "reason": last.declined}
    if last.status == "verified":
        return None
    if last.status == "refused" and last.proposal is not None and last.proposal.refusal is not None:
        return last.proposal.refusal.model_dump(mode="json")
    # running out of proposals says nothing about the goods, so such a refusal has no category
    failed = ", ".join(gate.name for gate in last.gates if gate.decision == "fail")
    return {
        "category": None,
        "reason": f"none of {len(iterations)} proposals passed the gates; the last failed {failed}",
    }
