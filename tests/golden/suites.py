"""The project of the scenarios: a desk that sorts messages, by rules of the generic pack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.golden.project import Project

DESK = """\
import os
import pathlib

from pytest_packbench.model.request import ModelRequest


def sort(request, context):
    text = request.input["message"]
    print("sorting", context.case_id)
    if "raise" in text:
        raise OSError("the desk is closed")
    if "interrupt" in text and not pathlib.Path("open").exists():
        raise KeyboardInterrupt
    if "die" in text and not pathlib.Path("alive").exists():
        os._exit(9)
    queue = "billing" if "refund" in text or "money" in text else "general"
    return {"queue": queue, "order": int("".join(filter(str.isdigit, text)) or 0)}


def careless(request):
    return {"queue": "billing", "order": 7}


async def ask(request, context):
    question = ModelRequest(
        role="sort",
        system="Name the queue.",
        messages=({"role": "user", "content": request.input["message"]},),
        output_schema={"type": "object", "properties": {"queue": {"type": "string"}}, "required": ["queue"]},
    )
    answer = await context.llm.complete(question)
    if answer.refusal:
        return {"refusal": {"category": "declined"}}
    return {**answer.content, "order": 1017}
"""

RULES = """\
pack: generic
description: messages, sorted into queues
target: desk:sort
criteria:
  - {exact: /queue}
  - {exact: /order}
gates:
  - {metric: pass_rate, min: 0.9}
"""

REFUND = "a refund for order 1017"


def case(case_id: str, message: str, queue: str, order: int, *, hard: bool = False, **more: Any) -> dict[str, Any]:
    """Return a case of the desk."""
    return {
        "id": case_id,
        "pack_id": "generic",
        "case_type": "hidden" if hard else "plain",
        "difficulty": "hard" if hard else "easy",
        "input": {"message": message},
        "expected": {"queue": queue, "order": order},
        "notes": {"source": "made up", "tags": ["hidden" if hard else "refund"]},
        **more,
    }


def put(project: Project, case: dict[str, Any], suite: str = "desk") -> None:
    """Write a case of a suite."""
    project.write(f"storage/benchmarks/{suite}/cases/{case['case_type']}/{case['id']}.json", case)


def desk(project: Project, rules: str = RULES, suite: str = "desk") -> None:
    """Write the desk: two cases that pass and one that fails."""
    project.write("desk.py", DESK)
    project.write(f"storage/benchmarks/{suite}/suite.yaml", rules)
    put(project, case("refund", REFUND, "billing", 1017), suite)
    put(project, case("money", "my money for 2044", "billing", 2044, hard=True), suite)
    put(project, case("angry", "this is a scandal, 9", "complaints", 9, hard=True), suite)


def broken(project: Project) -> None:
    """Add cases with every kind of error, and quarantined ones."""
    put(project, case("raises", "please raise 5", "general", 5))
    folder = "storage/benchmarks/desk/cases/plain"
    project.write(f"{folder}/no_json.json", "{\n")
    project.write(
        f"{folder}/wrong_key.json", case("wrong_key", "x", "general", 0) | {"difficulty": "simple", "typo": 1}
    )
    put(project, case("held", "x", "general", 0, notes={"skip": "waits for the new desk"}))
    put(project, case("hoped", "a scandal, 3", "complaints", 3, notes={"xfail": "known since May"}))
