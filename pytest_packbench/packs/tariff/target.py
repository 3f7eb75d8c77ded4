"""The reference target: propose, have it criticised, judge it by the gates, revise until it holds.

Only the model's answers vary; everything else follows from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_packbench.model.errors import CaseError, problems_of
from pytest_packbench.packs.tariff import prompts
from pytest_packbench.packs.tariff.dossier import Critique, Proposal
from pytest_packbench.packs.tariff.gates import GateInput, form, judge
from pytest_packbench.packs.tariff.model import TariffInput
from pytest_packbench.packs.tariff.result import Iteration, result

if TYPE_CHECKING:
    from pytest_packbench.model.request import LLM, ModelRequest, VerifyContext, VerifyRequest

ModelT = TypeVar("ModelT", bound=BaseModel)
_MOST_PROBLEMS = 10


async def verify(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Classify goods, or refuse to, in at most `options.max_iters` proposals.

    A proposal is followed by a critique and the gates; one that fails a critical gate goes back with what was found.
    An answer that is no proposal or no critique fails the gate `form` and counts as an iteration. A model that
    declines to answer, in any role, ends the run as a refusal without a category.

    Args:
        request: the goods as text, `options` and `evidence` as in `TariffInput`.
        context: answers the calls of the roles `propose`, `critique` and `revise`.

    Returns:
        The payload of `result.result`, plain JSON.

    Raises:
        CaseError: the request is no verify request of this pack.
        Exception: whatever the model call raises; a breakdown is no refusal.
    """
    goods = _goods(request)
    iterations: list[Iteration] = []
    ask = prompts.propose(goods)
    for number in range(1, goods.options.max_iters + 1):
        iteration = await _iterate(number, ask, goods, context.llm)
        iterations.append(iteration)
        if iteration.status != "rejected":
            break
        ask = prompts.revise(goods, iteration.answer, iteration.findings)
    return result(iterations)


def _goods(request: VerifyRequest) -> TariffInput:
    try:
        return TariffInput.model_validate(request.as_json())
    except ValidationError as error:
        raise CaseError("request", problems_of(error, TariffInput)) from None


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
        number=number,
        answer=answer.content,
        proposal=proposal,
        critique=critique,
        gates=(form(problems), *judged),
    )


def _read(content: object, model: type[ModelT]) -> tuple[ModelT | None, list[str]]:
    """Read a model's answer; without a model there is at least one problem, a line each."""
    try:
        return model.model_validate(content), []
    except ValidationError as error:
        problems = problems_of(error, model)
    lines = [" ".join(f"{model.__name__} {problem}".split()) for problem in problems[:_MOST_PROBLEMS]]
    more = len(problems) - len(lines)
    return None, [*lines, *([f"{more} more problems of the same answer"] if more else [])]
