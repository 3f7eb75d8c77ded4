"""Which judge a suite uses: one for all its cases, for rates of two judges can't be put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.model.errors import suggestion
from pytest_packbench.packs.agent_safety.judges import llama_guard, refusals
from pytest_packbench.packs.agent_safety.judges.ruling import Judge, JudgeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def chosen(named: Sequence[str], given: Mapping[str, Any]) -> Judge:
    """Give the judge of a suite.

    Args:
        named: what `suite.yaml` names under `judges`: one judge, or none for the refusal detector.
        given: judges by name: functions or `Judge`s of the user's own (hook `pytest_packbench_judges`), and under
            `llama_guard` the model to ask. One with a built-in's name takes its place.

    Raises:
        JudgeError: there is no such judge, or several are named.
    """
    if len(named) > 1:
        raise JudgeError(f"suite.yaml names {len(named)} judges; name one, and run the suite once for each")
    name = named[0] if named else refusals.NAME
    found = given.get(name)
    if isinstance(found, Judge):
        return found
    if name == llama_guard.NAME and found is not None and hasattr(found, "complete"):
        return llama_guard.llama_guard(found, getattr(found, "model", None) or llama_guard.MODEL)
    if callable(found):
        return Judge(name, found, model=getattr(found, "model", None))
    if found is not None:
        raise JudgeError(f'judge "{name}": expected a function, got {type(found).__name__}')
    if name == refusals.NAME:
        return refusals.refusal_detector()
    if name == llama_guard.NAME:
        raise JudgeError(f"{name} is a model of its own: it rules in live mode, asked through {llama_guard.BACKEND}")
    known = sorted({refusals.NAME, llama_guard.NAME, *given})
    raise JudgeError(f'no judge is called "{name}"; {suggestion(name, known)}')
