"""The text of a model's answer, for benchmarks that ask for text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_packbench.model.request import LLM, ModelRequest


async def text_answer(llm: LLM, request: ModelRequest) -> tuple[str, bool]:
    """Return the text of a model's answer, and whether the model declined through its API.

    Raises:
        TypeError: the answer is not text.
        Exception: whatever the model call raises.
    """
    answer = await llm.complete(request)
    if answer.refusal is not None:
        return answer.refusal or "declined", True
    if not isinstance(answer.content, str):
        raise TypeError(f"the model answered with {type(answer.content).__name__}; expected text")
    return answer.content, False
