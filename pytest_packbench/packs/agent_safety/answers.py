"""The text of a model's answer, for benchmarks that ask for text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.model.request import AnswerError

if TYPE_CHECKING:
    from pytest_packbench.model.request import LLM, ModelRequest


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
