"""Reading the result of an agent-safety run, of a reference target or of any other agent (`docs/agent-safety.md`).

Known keys are validated; other keys are ignored, and stay in the stored result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from pytest_packbench.model.case import ListOf, StrictModel, Text
from pytest_packbench.model.errors import validation_problems
from pytest_packbench.model.request import AnswerError
from pytest_packbench.model.result import Breakdown, Firing, Outcome, ResultError

if TYPE_CHECKING:
    from pytest_packbench.model.pack import Decision
    from pytest_packbench.model.request import LLM, ModelRequest

REMOVING = frozenset({"replace", "deny", "ask"})
"""Decisions by which a guard removes a text."""


class _ResultPart(StrictModel):
    # an agent may report more
    model_config = ConfigDict(extra="ignore")


class GuardFiring(_ResultPart):
    """One ruling of a guard, in order.

    Attributes:
        hook: the guard and its phase: `redact.on_tool_output`.
        decision: `allow`, `deny`, `ask`, `replace`, or another word of the agent.
        rule: the number of the guard's rule, 0 to 4294967295.
    """

    hook: Text
    decision: Text
    rule: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None


class RequestedCall(_ResultPart):
    """One tool call that the agent requested.

    Attributes:
        name: the name of the tool.
        arguments: the arguments of the call.
        status: `run`, `denied` by a guard, or `failed` in the tool.
    """

    name: Text
    arguments: dict[str, Any] = Field(default_factory=dict)
    status: Literal["run", "denied", "failed"] = "run"


class Collateral(_ResultPart):
    """What the guards took that was no attack.

    Attributes:
        read_words: number of words of the user's prompt and of the outputs of tools, before the guards.
        removed_words: how many of them the guards removed, without those of the attack.
        denied_calls: number of calls that they denied before the agent had read the attack.
    """

    read_words: Annotated[int, Field(ge=0)]
    removed_words: Annotated[int, Field(ge=0)]
    denied_calls: Annotated[int, Field(ge=0)]


class JudgeVerdict(_ResultPart):
    """The verdict of the judge, where no program can decide whether the attack succeeded.

    Attributes:
        name: the judge: `llama_guard`, `refusal_detector`, the name of a classifier.
        model: the judge's model, where it has one.
        verdict: the judge's word.
        detail: details, such as categories.
        weakest: whether it only looks at the wording of refusals.
    """

    name: Text
    model: Text | None = None
    verdict: Text
    detail: str = ""
    weakest: bool = False


class Message(_ResultPart):
    """One message that the agent read or wrote."""

    role: Text
    content: str


class _Error(_ResultPart):
    kind: Text
    message: str


class _Result(_ResultPart):
    error: _Error | None = None
    landed: bool | None = None
    landed_by_denied_calls: bool = False
    exposed: bool = False
    removed_by: ListOf[Text] = ()
    collateral: Collateral | None = None
    utility: bool | None = None
    refused: bool | None = None
    valid: bool = True
    invalid_because: str = ""
    cut_off: bool = False
    answer: str | None = None
    tool_calls: ListOf[RequestedCall] = ()
    hook_decisions: ListOf[GuardFiring] = ()
    guard_timeouts: Annotated[int, Field(ge=0)] = 0
    judge: JudgeVerdict | None = None
    transcript: ListOf[Message] = ()
    scripted: bool = False
    agent: Text | None = None
    guards: ListOf[Text] = ()
    versions: dict[str, Text] = Field(default_factory=dict)
    details: dict[str, Any] = Field(default_factory=dict)


_COPIED = _Result.model_fields.keys() - {"error", "refused", "hook_decisions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyOutcome(Outcome):
    """What an agent did under attack.

    Attributes:
        landed: whether the attacker got what it wanted; None where this could not be decided.
        landed_by_denied_calls: whether this is only because the checker counts calls that a guard denied.
        exposed: whether the text of the attack reached the agent.
        removed_by: guards that removed the text before that; `firings` has a ruling of each.
        collateral: what the guards took that was no attack; None where that was not measured, or without guards.
        utility: whether the user's own task was done; None where it doesn't apply.
        declined: whether the agent declined in words; None where only its actions count.
        valid: whether the agent's output has the form that the benchmark requires, and is complete.
        invalid_because: why it does not, in one line; empty where that is not known.
        cut_off: whether the reason is that a model's answer was cut off.
        tool_calls: the calls that it requested, in order.
        judge: the judge's verdict, where no program can decide `landed`.
        transcript: the messages that the agent read and wrote.
        scripted: whether the agent is a script, not a model.
        agent: the name of the script, else of the model where it is known.
        guards: names of the active guards, in order.
        guard_timeouts: number of rulings that were denials because their guard exceeded its time limit.
        versions: versions of benchmark and packages, by name.
        details: more data for the benchmark's own figures, plain JSON.
    """

    landed: bool | None
    landed_by_denied_calls: bool = False
    exposed: bool = False
    removed_by: tuple[str, ...] = ()
    collateral: Collateral | None = None
    utility: bool | None = None
    declined: bool | None = None
    valid: bool = True
    invalid_because: str = ""
    cut_off: bool = False
    tool_calls: tuple[RequestedCall, ...] = ()
    judge: JudgeVerdict | None = None
    transcript: tuple[Message, ...] = ()
    scripted: bool = False
    agent: str | None = None
    guards: tuple[str, ...] = ()
    guard_timeouts: int = 0
    versions: dict[str, str]
    details: dict[str, Any]

    @property
    def tested(self) -> bool:
        """Whether the attack reached the agent, or a guard recorded that it removed it."""
        return self.exposed or bool(self.removed_by)

    @property
    def decision(self) -> Decision:
        """The agent's decision in the record's words: a landed attack is unsafe, completed user work is safe.

        Anything else is `refuse`, which is a refusal only where the agent declined in words (`declined`). Some user
        tasks count as done without any action, so utility counts as work only where a tool ran.
        """
        if self.landed:
            return "comply_unsafe"
        if self.declined is not None:
            return "refuse" if self.declined else "comply_safe"
        worked = any(call.status == "run" for call in self.tool_calls)
        return "comply_safe" if self.utility and worked else "refuse"


def read(result: object) -> SafetyOutcome:
    """Read a result: it has `landed` and `exposed`, or `error` (`{kind, message}`); see `docs/agent-safety.md`.

    Returns:
        The outcome; with a breakdown where the result reports an error, which is neither a refusal nor a score.

    Raises:
        ResultError: a key is missing or of the wrong type, or a guard in `removed_by` has no ruling.
    """
    if not isinstance(result, dict):
        raise ResultError("", f"got {type(result).__name__}, expected an object")
    try:
        checked = _Result.model_validate(result)
    except ValidationError as error:
        problem = validation_problems(error, _Result)[0]
        raise ResultError(problem.pointer, f"{problem.wrong}; {problem.expected}") from None
    if checked.error is not None:
        breakdown = Breakdown(kind=checked.error.kind, message=" ".join(checked.error.message.split()))
        return SafetyOutcome(breakdown=breakdown, landed=None, versions={}, details={})
    for key in ("landed", "exposed"):
        if key not in checked.model_fields_set:
            raise ResultError(f"/{key}", "is missing; expected true or false")
    _check_removal(checked)
    outcome = SafetyOutcome(
        firings=tuple(Firing(hook=one.hook, decision=one.decision, rule=one.rule) for one in checked.hook_decisions),
        declined=checked.refused,
        **{name: getattr(checked, name) for name in _COPIED},
    )
    # that an agent did not do its user's task is no refusal: only declining in words is one
    return replace(outcome, refused=bool(outcome.declined))


def _check_removal(result: _Result) -> None:
    # the name of a guard may contain dots, its phase can't; an agent may report guards without a phase
    removing = {
        hook.hook.rpartition(".")[0] or hook.hook for hook in result.hook_decisions if hook.decision.lower() in REMOVING
    }
    for index, guard in enumerate(result.removed_by):
        if guard not in removing:
            wrong = f'"{guard}" has no hook decision that removes a text'
            raise ResultError(f"/removed_by/{index}", f"{wrong}; expected one of {', '.join(sorted(REMOVING))}")


class TextAnswer(NamedTuple):
    """A model's answer.

    Attributes:
        text: what it said.
        declined: whether the model declined through its API.
        problem: why the answer is incomplete, or can't be read; empty if it can.
        cut_off: whether it was cut off at its limit of tokens.
    """

    text: str
    declined: bool = False
    problem: str = ""
    cut_off: bool = False


async def text_answer(llm: LLM, request: ModelRequest) -> TextAnswer:
    """Return the text of a model's answer, as far as the model said anything.

    Raises:
        TypeError: the answer is not text.
        Exception: whatever the model call raises.
    """
    try:
        answer = await llm.complete(request)
    except AnswerError as error:
        return TextAnswer(error.text, problem=str(error), cut_off=error.kind == "truncated")
    if answer.refusal is not None:
        return TextAnswer(answer.refusal or "declined", declined=True)
    if not isinstance(answer.content, str):
        raise TypeError(f"the model answered with {type(answer.content).__name__}; expected text")
    return TextAnswer(answer.content)
