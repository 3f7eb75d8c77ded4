"""The reference target: propose, critique, run the gates, and revise until no gate fails.

The result is the document of an answer, and depends on the model's answers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, ValidationError

from pytest_packbench.model.errors import CaseError, first_of, single_spaced, validation_problems
from pytest_packbench.model.request import AnswerError
from pytest_packbench.packs.tariff import prompts
from pytest_packbench.packs.tariff.answer import RECOMMENDING, Critique, Proposal
from pytest_packbench.packs.tariff.checks import CheckInput, run_checks, unread_proposal
from pytest_packbench.packs.tariff.model import TariffInput

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pytest_packbench.model.request import LLM, ModelRequest, VerifyContext, VerifyRequest
    from pytest_packbench.packs.tariff.checks import CheckResult
    from pytest_packbench.packs.tariff.edition import Edition

    Pipeline = Callable[[VerifyRequest, VerifyContext], Coroutine[Any, Any, dict[str, Any]]]

_MAX_PROBLEMS = 10
_DECISION = {"decision", "refusal"}
_EVIDENCE_GATES = {"citation_gate_result": "citations", "missing_evidence_gate_result": "missing_evidence"}


class _Reply(NamedTuple):
    """A model's answer to a request.

    Attributes:
        content: a JSON value, or a text that is none.
        parsed: the answer as the document that was asked for; None if it is none.
        problems: why it is none, one line each.
        declined: the model's message if it declined to answer, else None.
        is_shaped: whether a critic can review it: its keys are those that were asked for, and only texts in them, such
            as a code, or a step have another form.
    """

    content: object
    parsed: Any = None
    problems: Sequence[str] = ()
    declined: str | None = None
    is_shaped: bool = False


class Iteration(NamedTuple):
    """One proposal with its gate results.

    Attributes:
        answer: the model's answer, a JSON value.
        proposal: the answer as a proposal; None if it is none.
        declined: the message of a model that declined to answer, else None.
        gates: the results of the gates, `form` first; empty if a model declined to answer.
    """

    answer: object
    proposal: Proposal | None
    declined: str | None
    gates: tuple[CheckResult, ...] = ()

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


def reference_target(edition: Edition | None = None) -> Pipeline:
    """Return the reference target of a suite.

    Args:
        edition: the schedule in which the gates look up codes and rates; none by default.
    """

    async def verify_goods(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
        """Classify goods, or refuse to, with at most `options.max_iters` proposals.

        Each proposal is criticised and checked by the gates; if a gate fails, the model revises the proposal by the
        objections. An answer that is not a valid proposal or critique fails the gate `form` and counts as an iteration.
        If the model declines to answer, in any role, the run ends as a refusal without a category.

        The model is called in the roles `propose`, `critique` and `revise`.

        Returns:
            A `TariffAnswer`, plain JSON. Its dossier and gate results are those of the last iteration with a valid
            proposal. Without one the dossier is null and, unless the model declined, `unreadable` says what was wrong
            with the last answer: it neither classifies nor refuses.

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
        while len(iterations) < goods.options.max_iters:
            iteration = await _iterate(request_to_model, goods, context.llm, edition)
            iterations.append(iteration)
            if iteration.status != "rejected":
                break
            request_to_model = prompts.revise(goods, iteration.answer, iteration.findings)
        return _document(iterations)

    return verify_goods


verify = reference_target()
"""The reference target without a schedule."""


async def _iterate(request: ModelRequest, goods: TariffInput, llm: LLM, edition: Edition | None) -> Iteration:
    answer = await _ask(llm, request, Proposal)
    proposal, review = answer.parsed, _Reply(None)
    if answer.is_shaped:
        review = await _ask(llm, prompts.critique(goods, answer.content), Critique)
    declined = review.declined if answer.declined is None else answer.declined
    if declined is not None:
        return Iteration(answer.content, proposal, declined)
    if proposal is None:
        return Iteration(answer.content, None, None, (unread_proposal(answer.problems),))
    inputs = CheckInput(goods, proposal, review.parsed, review.problems, edition)
    return Iteration(answer.content, proposal, None, run_checks(inputs))


async def _ask(llm: LLM, request: ModelRequest, model: type[BaseModel]) -> _Reply:
    """Return a model's answer to a request for a document."""
    try:
        answer = await llm.complete(request)
    except AnswerError as error:
        return _Reply(error.text, problems=[single_spaced(str(error))])
    if answer.refusal is not None:
        return _Reply(answer.content, declined=answer.refusal)
    try:
        return _Reply(answer.content, model.model_validate(answer.content), is_shaped=True)
    except ValidationError as error:
        problems, details = validation_problems(error, model), error.errors(include_url=False)
    lines = [single_spaced(f"{model.__name__} {problem}") for problem in problems]
    is_shaped = all(each["type"] == "misfit" and isinstance(each["input"], str | dict) for each in details)
    return _Reply(answer.content, problems=first_of(lines, _MAX_PROBLEMS), is_shaped=is_shaped)


def _document(iterations: Sequence[Iteration]) -> dict[str, Any]:
    """Return the answer of a run as a document."""
    last = iterations[-1]
    reported = next((iteration for iteration in reversed(iterations) if iteration.proposal is not None), last)
    rulings = [(number, gate) for number, iteration in enumerate(iterations, 1) for gate in iteration.gates]
    trace = [
        {"hook": f"tariff.{gate.name}", "decision": gate.decision, "rule": gate.rule, "iteration": number}
        for number, gate in rulings
    ]
    objections = [
        {"iteration": number, "gate": gate.name, **objection._asdict()}
        for number, gate in rulings
        for objection in gate.objections
    ]
    course = {"trace": trace, "notes": {"objections": objections}}
    if reported.proposal is None and last.declined is None:
        return {"unreadable": f"none of {len(iterations)} answers is a proposal: {'; '.join(last.findings)}", **course}
    # what an earlier proposal recommends is not given beside a refusal
    hidden = _DECISION if last.status == "verified" else {*_DECISION, *RECOMMENDING}
    proposal = reported.proposal
    return {
        "status": "verified" if last.status == "verified" else "refused",
        "refusal": _refusal(iterations),
        "tariff_dossier": proposal and proposal.model_dump(mode="json", exclude=hidden, exclude_defaults=True),
        **{key: reported.found(gate) for key, gate in _EVIDENCE_GATES.items()},
        **course,
    }


def _refusal(iterations: Sequence[Iteration]) -> dict[str, Any] | None:
    last = iterations[-1]
    if last.status == "verified":
        return None
    if last.status == "refused" and last.declined is None and last.proposal and last.proposal.refusal:
        return last.proposal.refusal.model_dump(mode="json")
    # a model that declines, or runs out of proposals, says nothing about the goods, so the refusal has no category
    failed = ", ".join(gate.name for gate in last.gates if gate.decision == "fail")
    exhausted = f"none of {len(iterations)} proposals passed the gates; the last failed {failed}"
    return {"category": None, "reason": exhausted if last.declined is None else last.declined}
