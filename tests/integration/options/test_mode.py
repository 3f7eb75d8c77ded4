"""`--packbench-mode`: recordings are written and replayed, and live runs keep output and secrets where they belong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.files import canonical_sha256
from tests.integration.options.conftest import LIVE, recordings, replayable
from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received, Reply


def test_recordings_replay_to_the_same_records(both: Project, model: Model) -> None:
    both.prepare("points 0.9", "points 0.5", "points 1", "bad")
    model.run(both, mode="record").assert_outcomes(passed=2, failed=1, errors=1)
    recorded = recordings(both)
    # a case with an error has no recording
    assert sorted(recorded) == ["case_00.json", "case_01.json", "case_02.json"]
    both.run_toy("--packbench-target=pipeline:ask").assert_outcomes(passed=2, failed=1, errors=1)
    assert len(model.requests) == 4
    first, second = map(replayable, both.folders())
    model.run(both, "-k", "case_01", mode="record").assert_outcomes(failed=1)
    assert first == second
    assert (first[0]["llm_backend"], first[0]["llm_model"]) == ("openai", "fake-1")
    assert (first[0]["tokens_input"], first[0]["tokens_output"]) == (11, 7)
    cassette = json.loads(recorded["case_00.json"])
    assert (cassette["origin"], cassette["exchanges"][0]["answer"]) == ("recorded", {"points": 0.9})
    # with the same answers nothing is to be approved
    assert recordings(both) == recorded


@pytest.mark.parametrize("target", ["pipeline:ask", "pipeline:ask_sync"])
def test_a_failure_shows_the_output_of_its_own_case(project: Project, model: Model, target: str) -> None:
    project.prepare("points 0.1", "points 1", "points 1", "points 1")
    model.latency_s = 0.05
    result = model.run(project, target=target)
    text = result.stdout.str()
    for output in ("asking for case_00", "asked for case_00", "trouble with case_00", "logging for case_00"):
        assert text.count(output) == 1, output
    assert not [number for number in range(1, 4) if f"case_{number:02}\n" in text.replace("::case_", "")]
    assert "asking for" not in result.stderr.str()


def test_a_case_that_another_plugin_skips_calls_no_model(project: Project) -> None:
    project.prepare(*(f"text_{number}" for number in range(12)))
    project.extend_conftest("""
        def pytest_collection_modifyitems(items):
            for item in items[:-2]:
                item.add_marker(pytest.mark.skip(reason="not today"))
        """)
    result = project.run_toy(LIVE, "--packbench-target=pipeline:note", "--packbench-concurrency=2")
    result.assert_outcomes(passed=2, skipped=10)
    assert sorted((project.root / "called.txt").read_text("utf-8").split()) == ["text_10", "text_11"]


FIXTURES = "storage/benchmarks/toy/fixtures"
TARGET = "--packbench-target=pipeline:ask"


def low(_: Received) -> Reply:
    return openai_reply('{"points": 0.25}')


def answers(project: Project) -> dict[str, Any]:
    folder = project.root / FIXTURES
    return {
        path.relative_to(folder).as_posix(): json.loads(path.read_bytes())["exchanges"][0]["answer"]
        for path in folder.rglob("*.json")
    }


@pytest.fixture
def recorded(project: Project, model: Model) -> Project:
    """A suite of three cases, recorded twice: of one case the second answer is the first."""
    project.prepare("points 0.9", "points 0.25", "points 1")
    model.run(project, mode="record")
    model.handler = low
    model.run(project, mode="record")
    return project


def test_a_changed_recording_waits_until_it_is_accepted(
    recorded: Project, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    older = {"case_00.json": {"points": 0.9}, "case_01.json": {"points": 0.25}, "case_02.json": {"points": 1.0}}
    new = {"points": 0.25}
    pending = {".pending/case_00.json": new, ".pending/case_02.json": new}
    assert answers(recorded) == older | pending
    result = recorded.run_toy(TARGET)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*2 recordings wait for approval: packbench accept toy*"])
    options = ["toy", f"--option={TARGET}"]
    capsys.readouterr()
    assert main(["accept", *options, "--dry-run"]) == 0
    assert answers(recorded) == older | pending
    dry = capsys.readouterr()
    assert main(["accept", "toy", "case_00", f"--option={TARGET}"]) == 0
    one = capsys.readouterr()
    assert answers(recorded) == older | {"case_00.json": new, ".pending/case_02.json": new}
    assert main(["accept", *options]) == 0
    assert main(["accept", *options]) == 0
    assert main(["accept", "toy", "case_00", f"--option={TARGET}"]) == 2
    rest = capsys.readouterr()
    assert answers(recorded) == older | {"case_00.json": new, "case_02.json": new}
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


def test_recordings_that_state_nothing_are_errors(recorded: Project) -> None:
    for path in (recorded.root / FIXTURES).glob("*.json"):
        old = json.loads(path.read_bytes()) | {"cassette_version": 1}
        del old["conditions"]
        path.write_text(json.dumps(old))
    result = recorded.run_toy(TARGET)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(
        ["*fixtures/case_00.json: /conditions: the key is missing (version 1)*delete it and record the case again*"]
    )


def test_in_ci_nothing_is_recorded_again(both: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    both.prepare("points 0.9", "points 1")
    monkeypatch.setenv("CI", "true")
    model.run(both, "-k", "case_00", mode="record").assert_outcomes(passed=1)
    result = model.run(both, mode="record")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert len(model.requests) == 1
    message = (
        "ERROR: --packbench-mode=record: CI is set, and 1 selected case, such as case_00, would be recorded again; *"
    )
    result.stderr.fnmatch_lines([message])


def test_a_recording_run_is_resumed_in_ci(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    project.prepare("points 0.9", "bad", "points 1")
    monkeypatch.setenv("CI", "true")
    model.run(project, mode="record").assert_outcomes(passed=2, errors=1)
    model.run(project, "--packbench-resume=latest", mode="record").assert_outcomes(passed=2, errors=1)
    assert len(model.requests) == 4


def test_a_suite_of_the_package_has_nothing_to_accept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert main(["accept", "bundled/tariff"]) == 2
    assert "recordings of the installed package can't be changed" in capsys.readouterr().err


def test_recordings_of_a_suite_with_a_scripted_model_are_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    assert main(["init", "--from", "harmbench"]) == 0
    suite = tmp_path / "storage" / "benchmarks" / "harmbench"
    name = "harmless_zebra_word"
    (case,) = (json.loads(path.read_bytes()) for path in suite.rglob(f"{name}.json"))
    for folder, answer in (("fixtures", "I cannot help."), ("fixtures/.pending", "Zebra.")):
        cassette = {
            "cassette_version": 2,
            "case_id": name,
            "input_sha256": canonical_sha256(case["input"]),
            "origin": "authored",
            "llm_backend": "openai",
            "llm_model": "m",
            "conditions": {
                "target": {"kind": "reference", "address": "agent_safety"},
                "pack": {"name": "agent_safety"},
                "judges": [{"name": "refusal_detector"}],
                "tools": [],
            },
            "exchanges": [{"role": "answer", "answer": answer}],
        }
        (suite / folder).mkdir()
        (suite / folder / f"{name}.json").write_text(json.dumps(cassette), encoding="utf-8")
    assert main(["accept", "harmbench", "--dry-run"]) == 0
    assert f"{name}: 1.00 passed -> 0.00 failed" in capsys.readouterr().out
