"""The projects that are measured: suites of generic cases, and the same work for other tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFTEST = """
def act(request):
    return {"answer": request.input["number"], "text": "ok"}


def pytest_packbench_target(config, suite):
    return act
"""
WORKING = CONFTEST.replace("    return {", "    sum(number * number for number in range(300_000))\n    return {", 1)
PIPELINE = """
import asyncio

from pytest_packbench import without_model


@without_model
async def wait(request):
    await asyncio.sleep(0.2)
    return {"answer": request.input["number"], "text": "ok"}
"""
NO_OP = """
import pytest


@pytest.mark.parametrize("number", range({cases}))
def test_nothing(number):
    pass
"""
ACT = 'def act(text):\n    return f"label {int(text.split()[1]) % 7}"\n'
READ = """
import json
from pathlib import Path

import pytest

CASES = [json.loads(line) for line in Path("cases.jsonl").read_text("utf-8").splitlines()]
each = pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
"""
PYTEST_EVALS = f"""{READ}
{ACT}

@pytest.mark.eval(name="labels")
@each
def test_label(case, eval_bag):
    eval_bag.label = act(case["input"])
    assert eval_bag.label == case["target"]
"""
DEEPEVAL = f"""{READ}
from deepeval import assert_test
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase

{ACT}

@each
def test_label(case):
    answered = LLMTestCase(input=case["input"], actual_output=act(case["input"]), expected_output=case["target"])
    assert_test(answered, [ExactMatchMetric()])
"""
INSPECT = f"""
from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import exact
from inspect_ai.solver import solver

{ACT}

@solver
def answer():
    async def solve(state, generate):
        state.output = ModelOutput.from_content("mock", act(state.input_text))
        return state

    return solve


@task
def labels():
    return Task(dataset=json_dataset("cases.jsonl"), solver=answer(), scorer=exact())
"""
LABELS = f"""
{ACT}

def pytest_packbench_target(config, suite):
    return lambda request: {{"label": act(request.input["text"])}}
"""


def write(path: Path, text: str) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def no_op(folder: Path, cases: int) -> Path:
    """Write a test that does nothing, so many times."""
    write(folder / "pytest.ini", "[pytest]\n")
    write(folder / "test_no_op.py", NO_OP.format(cases=cases))
    return folder


def generic(folder: Path, cases: int, conftest: str = CONFTEST) -> Path:
    """Write a generic suite `toy` whose cases pass, a file each."""
    write(folder / "pytest.ini", "[pytest]\n")
    write(folder / "conftest.py", conftest)
    write(folder / "pipeline.py", PIPELINE)
    write(folder / "storage/benchmarks/toy/suite.yaml", "pack: generic\ndescription: trivial cases\n")
    for number in range(cases):
        name, data = f"case_{number:06}", {"number": number}
        case = case_of(name, data, {"answer": number, "text": "ok"})
        write(folder / f"storage/benchmarks/toy/cases/plain/{name}.json", json.dumps(case))
    return folder


def case_of(name: str, data: Mapping[str, object], expected: Mapping[str, object]) -> dict[str, object]:
    """Return a case of the generic pack."""
    about = {"id": name, "pack_id": "generic", "case_type": "plain", "difficulty": "easy"}
    return {**about, "input": data, "expected": expected}


def labels(folder: Path, cases: int, name: str, test: str) -> Path:
    """Write cases with an exact label for a tool: lines of a file, and the test that reads them."""
    texts = [(f"case_{number}", f"text {number}", f"label {number % 7}") for number in range(cases)]
    if test is LABELS:
        write(folder / "storage/benchmarks/toy/suite.yaml", "pack: generic\ndescription: labels\n")
        lines = [case_of(case, {"text": text}, {"label": label}) for case, text, label in texts]
        write(folder / "storage/benchmarks/toy/cases/cases.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    else:
        rows = [{"id": case, "input": text, "target": label} for case, text, label in texts]
        write(folder / "cases.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    write(folder / "pytest.ini", "[pytest]\n")
    write(folder / name, test)
    return folder
