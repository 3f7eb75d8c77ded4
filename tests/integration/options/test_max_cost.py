"""`--packbench-max-cost`: a run ends when it has cost so much."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


def test_a_limit_of_cost_ends_a_run(project: Project, model: Model) -> None:
    # 11 tokens of input cost 1.10
    prices = "prices: {fake-1: {input_per_million: 100000, output_per_million: 0}}\n"
    project.suite(text=f"pack: toy\n{prices}")
    project.prepare(*["points 1"] * 4)
    result = model.run(project, "--packbench-max-cost=2", "--packbench-concurrency=1")
    result.stdout.fnmatch_lines(["*caps: cost 2*", "*used: 2 model calls, 36 tokens, 2.2000 USD*"])
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["max_cost"] * 2
