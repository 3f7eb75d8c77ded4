"""`--packbench-case-timeout`: an attempt is given up after so long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project


@pytest.mark.parametrize("mode", ["live", "fixture"])
def test_a_process_ends_although_a_target_hangs(project: Project, mode: str) -> None:
    project.prepare("hang", "fine")
    options = ("--packbench-target=pipeline:hang", "--packbench-case-timeout=0.3", f"--packbench-mode={mode}")
    result = project.pytester.runpytest_subprocess("--packbench-suite=toy", *options, timeout=120)
    result.assert_outcomes(errors=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["timeout"]
    result.stdout.fnmatch_lines(["*took longer than 0.3 s and was abandoned*"])
    # a function without a model needs no backend
    assert [record["llm_backend"] for record in project.lines("records.jsonl")] == ["unknown"]
