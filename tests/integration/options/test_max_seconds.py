"""`--packbench-max-seconds`: a run ends after so long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


def test_a_limit_of_time_ends_a_run(project: Project, model: Model) -> None:
    project.prepare(*["points 1"] * 4)
    model.latency_s = 0.3
    model.run(project, "--packbench-max-seconds=0.2", "--packbench-concurrency=1")
    assert len(model.requests) == 1
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["max_seconds"] * 3
