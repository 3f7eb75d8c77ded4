"""The reference target: ask a model to convert, and ask again if its unit is unknown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from packbench_units.table import UNITS
from pytest_packbench import ModelRequest

if TYPE_CHECKING:
    from pytest_packbench import VerifyContext, VerifyRequest

SYSTEM = (
    "Convert the amount that the question names. Use the units of this list only. Show the calculation. Where the "
    "question can't be answered, give a refusal instead: different_quantities or unknown_unit. Units: "
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["value", "unit", "working", "refusal"],
    "properties": {
        "value": {"type": ["number", "null"]},
        "unit": {"type": ["string", "null"]},
        "working": {"type": ["string", "null"]},
        "refusal": {"enum": ["different_quantities", "unknown_unit", None]},
    },
}


async def convert(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Answer a question.

    Args:
        request: its `input` contains the `question`.
        context: answers the roles `convert` and `revise`: the cassette in fixture mode, a model in live mode.

    Returns:
        `value`, `unit` and `working`, or `refusal`; `checks` lists the checks of the answer.
    """
    question = request.input["question"]
    messages = [{"role": "user", "content": question}]
    first = await _asked("convert", messages, context)
    if _fits(first):
        return {**first, "checks": [_check(passed=True)]}
    messages += [
        {"role": "assistant", "content": json.dumps(first)},
        {"role": "user", "content": f"The unit {first.get('unit')!r} is not in the list. Answer again."},
    ]
    second = await _asked("revise", messages, context)
    return {**second, "checks": [_check(passed=False), _check(passed=_fits(second))]}


async def _asked(role: str, messages: list[dict[str, Any]], context: VerifyContext) -> dict[str, Any]:
    system = SYSTEM + ", ".join(UNITS)
    ask = ModelRequest(role=role, system=system, messages=tuple(messages), output_schema=SCHEMA)
    answer = await context.llm.complete(ask)
    return dict(answer.content)


def _fits(answer: dict[str, Any]) -> bool:
    return answer.get("refusal") is not None or answer.get("unit") in UNITS


def _check(*, passed: bool) -> dict[str, Any]:
    return {"name": "known_unit", "passed": passed}
