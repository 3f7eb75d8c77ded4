"""`--packbench-cache`: answered from a folder, marked, and never booked as spent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.test_live import SECRET, live, points, prepare
from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.wire import error_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def broken_or_points(received: Received) -> Reply:
    return error_reply(400, "no such parameter") if "bad" in parse_request(received).text else points(received)


def test_a_second_run_asks_only_what_broke(project: Project) -> None:
    prepare(project, "points 0.9", "points 0.5", "bad")
    with FakeServer(broken_or_points) as server:
        first = project.run_toy(*live(server, "--packbench-cache=kept"))
        first.assert_outcomes(passed=1, failed=1, errors=1)
        assert len(server.requests) == 3
        assert len(list((project.root / "kept").rglob("*.json"))) == 2
        second = project.run_toy(*live(server, "--packbench-cache=kept", "--packbench-max-tokens=2", mode="record"))
        second.assert_outcomes(passed=1, failed=1, errors=1)
        assert len(server.requests) == 4
    second.stdout.fnmatch_lines(["used: 1 model call, 0 tokens*, 2 more answered from the cache"])
    newest = project.folders()[-1]
    records = [json.loads(line) for line in (newest / "records.jsonl").read_text("utf-8").splitlines()]
    assert [record["packbench"]["cached"] for record in records] == [1, 1]
    assert [record["packbench"]["calls"] for record in records] == [1, 1]
    assert [(record["tokens_input"], record["tokens_output"]) for record in records] == [(11, 7), (11, 7)]
    rows = json.loads((newest / "report.json").read_text("utf-8"))["packbench"]["cases"]
    assert [row["cached"] for row in rows] == [1, 1, 0]
    told = "2 of 2 answers came, wholly or partly, from the response cache: the model was not called again for them."
    assert told in (newest / "summary.md").read_text("utf-8")
    assert told in " ".join(second.stdout.str().split())
    assert "response cache" not in (project.folders()[0] / "summary.md").read_text("utf-8")
    cassette = json.loads((project.root / "storage/benchmarks/toy/fixtures/case_00.json").read_text("utf-8"))
    assert cassette["exchanges"][0]["answer"] == {"points": 0.9}
    assert SECRET not in "".join(path.read_text("utf-8") for path in (project.root / "kept").rglob("*.json"))


def test_trials_are_calls_of_their_own(plain: Project) -> None:
    prepare(plain, "points 1", "points 1")
    with FakeServer(points) as server:
        plain.run_toy(*live(server, "--packbench-cache=kept", "--packbench-trials=3")).assert_outcomes(passed=2)
        # two cases ask the same, three trials do not
        assert len(server.requests) == 3
        again = plain.run_toy(*live(server, "--packbench-cache=kept", "--packbench-trials=4"))
        assert len(server.requests) == 4
    again.stdout.fnmatch_lines(["used: 1 model call, *, 7 more answered from the cache"])


def test_a_file_is_no_folder_for_answers(plain: Project) -> None:
    prepare(plain, "points 1")
    (plain.root / "kept").touch()
    with FakeServer(points) as server:
        result = plain.run_toy(*live(server, "--packbench-cache=kept"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --packbench-cache: * is not a folder; expected a folder, or a new name"])


def test_a_folder_that_can_not_be_written_is_said_before_anyone_is_asked(project: Project) -> None:
    prepare(project, "points 1")
    (project.root / "file").touch()
    with FakeServer(points) as server:
        result = project.run_toy(*live(server, "--packbench-cache=file/below"))
        assert not server.requests
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --packbench-cache: *file/below can't be written to: Not a directory; expected*"]
    )


def test_off_by_default(plain: Project) -> None:
    prepare(plain, "points 1")
    with FakeServer(points) as server:
        plain.run_toy(*live(server)).assert_outcomes(passed=1)
        plain.run_toy(*live(server)).assert_outcomes(passed=1)
        assert len(server.requests) == 2
    assert "cached" not in plain.folders()[-1].joinpath("records.jsonl").read_text("utf-8")
