"""`packbench accept`: what a recording run leaves for approval, and old recordings that state no conditions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cli import main
from tests.integration.model_server import json_lines, live, model_server, points, prepare
from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project
    from tests.servers.fake import Received, Reply

FIXTURES = "storage/benchmarks/toy/fixtures"
TARGET = "--packbench-target=pipeline:ask"


def low(_: Received) -> Reply:
    return openai_reply('{"points": 0.25}')


def recordings(project: Project) -> dict[str, Any]:
    folder = project.root / FIXTURES
    return {
        path.relative_to(folder).as_posix(): json.loads(path.read_bytes())["exchanges"][0]["answer"]
        for path in folder.rglob("*.json")
    }


@pytest.fixture
def recorded(both: Project) -> Project:
    """A suite of three cases, recorded twice: of one case the second answer is the first."""
    prepare(both, "points 0.9", "points 0.25", "points 1")
    for handler in (points, low):
        with model_server(handler) as server:
            both.run_toy(*live(server, mode="record"))
    return both


def test_a_changed_recording_waits_until_it_is_accepted(
    recorded: Project, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    older = {"case_00.json": {"points": 0.9}, "case_01.json": {"points": 0.25}, "case_02.json": {"points": 1.0}}
    new = {"points": 0.25}
    pending = {".pending/case_00.json": new, ".pending/case_02.json": new}
    assert recordings(recorded) == older | pending
    result = recorded.run_toy(TARGET)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*2 recordings wait for approval: packbench accept toy*"])
    options = ["toy", f"--option={TARGET}"]
    capsys.readouterr()
    assert main(["accept", *options, "--dry-run"]) == 0
    assert recordings(recorded) == older | pending
    dry = capsys.readouterr()
    assert main(["accept", "toy", "case_00", f"--option={TARGET}"]) == 0
    one = capsys.readouterr()
    assert recordings(recorded) == older | {"case_00.json": new, ".pending/case_02.json": new}
    assert main(["accept", *options]) == 0
    assert main(["accept", *options]) == 0
    assert main(["accept", "toy", "case_00", f"--option={TARGET}"]) == 2
    rest = capsys.readouterr()
    assert recordings(recorded) == older | {"case_00.json": new, "case_02.json": new}
    assert recorded.run_toy(TARGET).parseoutcomes() == {"failed": 3}
    texts = (dry.out, one.out, rest.out, rest.err.replace(str(recorded.root), "ROOT"))
    expected.check("\n".join(texts))


def test_what_cannot_be_replayed_is_not_accepted(recorded: Project, capsys: pytest.CaptureFixture[str]) -> None:
    changed = recorded.root / FIXTURES / ".pending" / "case_00.json"
    data = json.loads(changed.read_bytes())
    changed.write_text(json.dumps(data | {"input_sha256": "0" * 64}))
    (changed.with_name("gone.json")).write_text(json.dumps(data | {"case_id": "gone"}))
    before = (recorded.root / FIXTURES / "case_00.json").read_bytes()
    assert main(["accept", "toy", f"--option={TARGET}"]) == 1
    output = capsys.readouterr()
    assert output.out.endswith("1 of 3 taken over\n")
    assert "case_00.json: fixtures/.pending/case_00.json: /input_sha256: outdated" in output.err
    assert "gone.json: no case that can be read has this id; remove the recording" in output.err
    assert (recorded.root / FIXTURES / "case_00.json").read_bytes() == before


def test_recordings_that_state_nothing_are_errors_until_they_are_adopted(
    recorded: Project, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    folder = recorded.root / FIXTURES
    data = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    for old in data:
        old["cassette_version"] = 1
        del old["conditions"]
    for path in folder.glob("*.json"):
        path.unlink()
    (folder / "case_00.json").write_text(json.dumps(data[0]))
    (folder / "recordings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in data[1:]))
    result = recorded.run_toy(TARGET)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(
        ["*fixtures/case_00.json: /conditions: the key is missing (version 1)*packbench accept --adopt SUITE*"]
    )
    capsys.readouterr()
    assert main(["accept", "toy", f"--option={TARGET}", "--adopt", "--dry-run"]) == 0
    assert recorded.run_toy(TARGET).parseoutcomes() == {"errors": 3}
    capsys.readouterr()
    assert main(["accept", "toy", f"--option={TARGET}", "--adopt"]) == 0
    expected.check(capsys.readouterr().out)
    assert recorded.run_toy(TARGET).parseoutcomes() == {"passed": 2, "failed": 1}
    lines = json_lines(folder / "recordings.jsonl")
    assert [line["conditions"]["target"]["address"] for line in lines] == ["pipeline:ask"] * 2


def test_in_ci_nothing_is_recorded_again(both: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(both, "points 0.9", "points 1")
    with model_server() as server:
        monkeypatch.setenv("CI", "true")
        both.run_toy(*live(server, "-k", "case_00", mode="record")).assert_outcomes(passed=1)
        result = both.run_toy(*live(server, mode="record"))
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert len(server.requests) == 1
    message = "ERROR: --packbench-mode=record: CI is set, and case_00 has a recording; select cases without one, *"
    result.stderr.fnmatch_lines([message])


def test_a_suite_of_the_package_has_nothing_to_accept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert main(["accept", "bundled/tariff"]) == 2
    assert "recordings of the installed package can't be changed" in capsys.readouterr().err
