"""`--packbench-cache`: repeated calls are answered from a folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_packbench.testing import SuiteResults
from tests.integration.options.conftest import SECRET, recordings

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

CACHE = "--packbench-cache=answers"


def test_a_second_run_with_a_cache_calls_the_model_for_errors_only(project: Project, model: Model) -> None:
    project.prepare("points 0.9", "points 0.5", "bad")
    model.run(project, CACHE).assert_outcomes(passed=1, failed=1, errors=1)
    assert "response cache" not in project.text()
    second = model.run(project, CACHE, "--packbench-max-tokens=2", mode="record")
    second.assert_outcomes(passed=1, failed=1, errors=1)
    assert len(model.requests) == 4
    second.stdout.fnmatch_lines(["used: 1 model call, tokens not known*, 2 more answered from the cache"])
    after = SuiteResults(folder=project.left())
    counts = [(one["packbench"]["cached"], one["packbench"]["calls"], one["tokens_output"]) for one in after.records]
    assert counts == [(1, 1, 7)] * 2
    assert [row["cached"] for row in after.report["packbench"]["cases"]] == [1, 1, 0]
    remark = "2 of 2 answers came, wholly or partly, from the response cache: the model was not called again for them."
    assert remark in after.summary
    assert remark in " ".join(second.stdout.str().split())
    assert json.loads(recordings(project)["case_00.json"])["exchanges"][0]["answer"] == {"points": 0.9}
    stored = [path.read_text("utf-8") for path in (project.root / "answers").rglob("*.json")]
    assert (len(stored), SECRET in "".join(stored)) == (2, False)
