"""`--packbench-mode`: recordings are written and replayed, and changed ones wait until they are accepted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.files import canonical_sha256
from tests.integration.conftest import ended
from tests.integration.options.conftest import LIVE, recordings, replayable
from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

FIXTURES = "storage/benchmarks/toy/fixtures"
TARGET = "--packbench-target=pipeline:ask"


def test_recordings_replay_to_the_same_records(both: Project, model: Model) -> None:
    both.prepare("points 0.9", "points 0.5", "points 1", "bad")
    ended(model.run(both, mode="record"), 1, passed=2, failed=1, errors=1)
    recorded = recordings(both)
    # a case with an error has no recording
    assert sorted(recorded) == ["case_00.json", "case_01.json", "case_02.json"]
    ended(both.run_toy(TARGET), 1, passed=2, failed=1, errors=1)
    assert len(model.requests) == 4
    first, second = map(replayable, both.folders())
    assert first == second
    told = [first[0][name] for name in ("llm_backend", "llm_model", "tokens_input", "tokens_output")]
    assert told == ["openai", "fake-1", 11, 7]
    cassette = json.loads(recorded["case_00.json"])
    assert (cassette["origin"], cassette["exchanges"][0]["answer"]) == ("recorded", {"points": 0.9})
    # with the same answers nothing is to be approved
    ended(model.run(both, "-k", "case_01", mode="record"), 1, failed=1)
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
    ended(result, 1, passed=2, skipped=10)
    assert sorted((project.root / "called.txt").read_text("utf-8").split()) == ["text_10", "text_11"]


def answers(project: Project) -> dict[str, Any]:
    folder = project.root / FIXTURES
    return {
        path.relative_to(folder).as_posix(): json.loads(path.read_bytes())["exchanges"][0]["answer"]["points"]
        for path in folder.rglob("*.json")
    }


@pytest.fixture
def recorded(project: Project, model: Model) -> Project:
    """A suite of three cases, recorded twice: of one case the second answer is the first."""
    project.prepare("points 0.9", "points 0.25", "points 1")
    model.run(project, mode="record")
    model.handler = lambda _: openai_reply('{"points": 0.25}')
    model.run(project, mode="record")
    return project


def test_a_changed_recording_waits_until_it_is_accepted(
    recorded: Project, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    before = {"case_00.json": 0.9, "case_01.json": 0.25, "case_02.json": 1.0}
    waiting = {".pending/case_00.json": 0.25, ".pending/case_02.json": 0.25}
    one = before | {"case_00.json": 0.25, ".pending/case_02.json": 0.25}
    ended(recorded.run_toy(TARGET), 1, "*2 recordings wait for approval: packbench accept toy*", passed=2, failed=1)
    capsys.readouterr()
    rest = dict.fromkeys(before, 0.25)
    for words, code, left in (
        (["--dry-run"], 0, before | waiting),
        (["case_00"], 0, one),
        ([], 0, rest),
        ([], 0, rest),
        (["case_00"], 2, rest),
    ):
        assert main(["accept", "toy", *words, f"--option={TARGET}"]) == code
        assert answers(recorded) == left
    printed = capsys.readouterr()
    expected.check(printed.out + printed.err.replace(str(recorded.root), "ROOT"))
    assert recorded.run_toy(TARGET).parseoutcomes() == {"failed": 3}


def test_what_cannot_be_replayed_is_not_accepted(recorded: Project, capsys: pytest.CaptureFixture[str]) -> None:
    kept = recorded.root / FIXTURES / "case_00.json"
    changed = kept.parent / ".pending" / "case_00.json"
    data = json.loads(changed.read_bytes())
    changed.write_text(json.dumps(data | {"input_sha256": "0" * 64}))
    changed.with_name("gone.json").write_text(json.dumps(data | {"case_id": "gone"}))
    before = kept.read_bytes()
    assert main(["accept", "toy", f"--option={TARGET}"]) == 1
    output = capsys.readouterr()
    assert output.out.endswith("1 of 3 taken over\n")
    assert "case_00.json: fixtures/.pending/case_00.json: /input_sha256: outdated" in output.err
    assert "gone.json: no case that can be read has this id; remove the recording" in output.err
    assert kept.read_bytes() == before
    # nor is a recording that states nothing replayed
    for path in kept.parent.glob("*.json"):
        old = json.loads(path.read_bytes()) | {"cassette_version": 1}
        del old["conditions"]
        path.write_text(json.dumps(old))
    missing = "fixtures/case_00.json: /conditions: the key is missing (version 1)*delete it and record the case again"
    ended(recorded.run_toy(TARGET), 1, f"*{missing}*", errors=3)


def test_in_ci_nothing_is_recorded_again(both: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    both.prepare("points 0.9", "bad")
    monkeypatch.setenv("CI", "true")
    ended(model.run(both, mode="record"), 1, passed=1, errors=1)
    ended(model.run(both, "--packbench-resume=latest", mode="record"), 1, passed=1, errors=1)
    again = "CI is set, and 1 selected case, such as case_00, would be recorded again; *"
    ended(model.run(both, mode="record"), 4, f"ERROR: --packbench-mode=record: {again}")
    assert len(model.requests) == 3
    assert main(["accept", "bundled/tariff"]) == 2


def test_recordings_of_a_suite_with_a_scripted_model_are_compared(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.copy_suite("harmbench")
    suite = project.root / "storage/benchmarks/harmbench"
    name = "harmless_zebra_word"
    (case,) = (json.loads(path.read_bytes()) for path in suite.rglob(f"{name}.json"))
    stated = {
        "target": {"kind": "reference", "address": "agent_safety"},
        "pack": {"name": "agent_safety"},
        "judges": [{"name": "refusal_detector"}],
        "tools": [],
    }
    for folder, answer in (("fixtures", "I cannot help."), ("fixtures/.pending", "Zebra.")):
        cassette = {
            "cassette_version": 2,
            "case_id": name,
            "input_sha256": canonical_sha256(case["input"]),
            "origin": "authored",
            "llm_backend": "openai",
            "llm_model": "m",
            "conditions": stated,
            "exchanges": [{"role": "answer", "answer": answer}],
        }
        project.write(f"storage/benchmarks/harmbench/{folder}/{name}.json", json.dumps(cassette))
    assert main(["accept", "harmbench", "--dry-run"]) == 0
    assert f"{name}: 1.00 passed -> 0.00 failed" in capsys.readouterr().out
