"""`--packbench-case-timeout`: a target that hangs costs its own case, and the process ends all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import prepare

if TYPE_CHECKING:
    from tests.integration.conftest import Project

OPTIONS = ("--packbench-suite=toy", "--packbench-target=pipeline:hang", "--packbench-case-timeout=0.3")


@pytest.mark.parametrize("mode", ["live", "fixture"])
def test_a_process_ends_although_a_target_hangs(project: Project, mode: str) -> None:
    prepare(project, "hang", "fine")
    result = project.pytester.runpytest_subprocess(*OPTIONS, f"--packbench-mode={mode}", timeout=120)
    result.assert_outcomes(errors=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["timeout"]
    result.stdout.fnmatch_lines(["*took longer than 0.3 s and was abandoned*"])
