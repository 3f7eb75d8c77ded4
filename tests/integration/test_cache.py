"""`--packbench-cache`: repeated calls are answered from a folder, marked, and not counted as used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import SECRET, cassettes, json_lines, live, model_server, prepare

if TYPE_CHECKING:
    from tests.integration.conftest import Project

CACHE = "--packbench-cache=answers"


def test_a_second_run_calls_the_model_for_errors_only(both: Project) -> None:
    prepare(both, "points 0.9", "points 0.5", "bad")
    with model_server() as server:
        both.run_toy(*live(server, CACHE)).assert_outcomes(passed=1, failed=1, errors=1)
        assert len(server.requests) == 3
        second = both.run_toy(*live(server, CACHE, "--packbench-max-tokens=2", mode="record"))
        second.assert_outcomes(passed=1, failed=1, errors=1)
        assert len(server.requests) == 4
    second.stdout.fnmatch_lines(["used: 1 model call, 0 tokens*, 2 more answered from the cache"])
    oldest, newest = both.folders()
    records = json_lines(newest / "records.jsonl")
    counts = [(record["packbench"]["cached"], record["packbench"]["calls"]) for record in records]
    assert counts == [(1, 1), (1, 1)]
    assert [(record["tokens_input"], record["tokens_output"]) for record in records] == [(11, 7), (11, 7)]
    rows = json.loads((newest / "report.json").read_text("utf-8"))["packbench"]["cases"]
    assert [row["cached"] for row in rows] == [1, 1, 0]
    remark = "2 of 2 answers came, wholly or partly, from the response cache: the model was not called again for them."
    assert remark in (newest / "summary.md").read_text("utf-8")
    assert remark in " ".join(second.stdout.str().split())
    assert "response cache" not in (oldest / "summary.md").read_text("utf-8")
    assert json.loads(cassettes(both)["case_00.json"])["exchanges"][0]["answer"] == {"points": 0.9}
    stored = [path.read_text("utf-8") for path in (both.root / "answers").rglob("*.json")]
    assert (len(stored), SECRET in "".join(stored)) == (2, False)


def test_each_trial_is_a_call_of_its_own(project: Project) -> None:
    prepare(project, "points 1", "points 1")
    with model_server() as server:
        project.run_toy(*live(server, CACHE, "--packbench-trials=3")).assert_outcomes(passed=2)
        # both cases send the same text
        assert len(server.requests) == 3
        again = project.run_toy(*live(server, CACHE, "--packbench-trials=4"))
        assert len(server.requests) == 4
    again.stdout.fnmatch_lines(["used: 1 model call, *, 7 more answered from the cache"])


def test_without_the_option_no_answer_is_stored(project: Project) -> None:
    prepare(project, "points 1")
    with model_server() as server:
        for _ in range(2):
            project.run_toy(*live(server)).assert_outcomes(passed=1)
        assert len(server.requests) == 2
    assert "cached" not in (project.folders()[-1] / "records.jsonl").read_text("utf-8")


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("file", "* is not a folder; expected a folder, or a new name"),
        ("file/below", "*file/below can't be written to: Not a directory; expected*"),
    ],
)
def test_a_folder_that_cannot_be_written_is_a_usage_error_before_any_call(
    both: Project, folder: str, message: str
) -> None:
    prepare(both, "points 1")
    (both.root / "file").touch()
    with model_server() as server:
        result = both.run_toy(*live(server, f"--packbench-cache={folder}"))
        assert not server.requests
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --packbench-cache: {message}"])
