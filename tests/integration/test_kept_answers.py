"""What a live run keeps, and when: before the first request, when a target has ended, and for a resumed run."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.model.result import Attempt, EndedAttempt, format_timestamp
from pytest_packbench.runs.journal import Journal, read_journal
from pytest_packbench.runs.reading import open_run
from tests.integration.conftest import json_lines, without_times
from tests.integration.options.conftest import points
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received, Reply

RESUME = "--packbench-resume=latest"


def journals(project: Project) -> list[Path]:
    return list((project.root / "reports").rglob("journal*.jsonl"))


def test_the_journal_is_written_before_the_first_request(both: Project, model: Model) -> None:
    both.prepare("points 1", "points 0.5")
    headers: list[dict[str, Any]] = []

    def look(received: Received) -> Reply:
        (path,) = (path for path in journals(both) if path.name == "journal.jsonl")
        headers.append(json.loads(path.read_text("utf-8").splitlines()[0]))
        return points(received)

    model.handler = look
    model.run(both).assert_outcomes(passed=1, failed=1)
    assert [header["run"]["mode"] for header in headers] == ["live", "live"]


@pytest.mark.parametrize(
    ("path", "mode", "message"),
    [
        ("taken", "live", "cannot write reports to */taken/toy*: *"),
        ("storage/benchmarks/toy/fixtures", "record", "cannot write recordings to */toy/fixtures: Not a directory"),
    ],
)
def test_a_folder_that_cannot_be_written_is_told_before_the_first_request(
    both: Project, model: Model, path: str, mode: str, message: str
) -> None:
    both.prepare("points 1")
    both.write(path, "a file")
    result = model.run(both, "--packbench-output=taken", mode=mode)
    assert (result.ret, len(model.requests)) == (pytest.ExitCode.USAGE_ERROR, 0)
    result.stderr.fnmatch_lines([f"ERROR: {message}; no model was called"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def in_processes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = project.pytester.runpytest_subprocess
    monkeypatch.setattr(project.pytester, "runpytest", lambda *arguments, **_: run(*arguments))


def test_a_full_disk_is_told_before_the_first_request(project: Project, model: Model, monkeypatch: Any) -> None:
    project.prepare("points 1")
    project.extend_conftest("""
        import resource, signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
    """)
    in_processes(project, monkeypatch)
    result = model.run(project)
    assert (result.ret, len(model.requests)) == (pytest.ExitCode.USAGE_ERROR, 0)
    result.stderr.fnmatch_lines(["ERROR: cannot write reports to *: File too large; no model was called"])
    assert list(project.root.rglob("*.tmp")) == []


def test_no_model_is_called_any_more_once_answers_cannot_be_stored(
    both: Project, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.prepare(*["points 1"] * 12)
    # the third entry of a journal is one too many; workers run in processes of their own
    code = """
        from pytest_packbench.runs.journal import Journal

        appended = Journal.append
        count = []

        def append(self, entry):
            count.append(entry)
            if len(count) > 2:
                raise OSError(28, "No space left on device")
            appended(self, entry)

        Journal.append = append
    """
    monkeypatch.setattr(Journal, "append", Journal.append)
    both.extend_conftest(code)
    model.run(both, "--packbench-concurrency=1")
    assert len(model.requests) <= (6 if both.workers else 3)
    reasons = {error["message"].partition(": ")[2] for error in both.errors().values() if error["verdict"] == "not_run"}
    assert reasons == {"No space left on device; answers would be lost"}
    assert {error["kind"] for error in both.errors().values()} >= {"output_unwritable"}


def test_an_answer_whose_scoring_ends_the_process_is_not_asked_for_again(project: Project, model: Model) -> None:
    project.prepare("points 1", "points 0.5", "points 0.9")
    project.extend_conftest("""
        import os
        from pathlib import Path

        terms_of = Toy.terms

        def terms(self, case, answer, rules):
            if Path("dying").exists():
                os._exit(9)
            return terms_of(self, case, answer, rules)

        Toy.terms = terms
    """)
    (project.root / "dying").touch()
    options = ("--packbench-concurrency=1",)
    with pytest.MonkeyPatch.context() as patch:
        in_processes(project, patch)
        for _ in range(2):
            resume = [RESUME] * bool(journals(project))
            assert model.run(project, *options, *resume).ret == 9
    asked = len(model.requests)
    (journal,) = journals(project)
    entries = read_journal(journal)[1]
    assert all(isinstance(entry, EndedAttempt) for entry in entries)
    assert 1 <= len(entries) <= asked <= 3
    (project.root / "dying").unlink()
    model.run(project, *options, RESUME).assert_outcomes(passed=2, failed=1)
    assert len(model.requests) == 3 + asked - len(entries)
    assert not journals(project)
    first = project.records()
    model.run(project, "--packbench-output=whole")
    (whole,) = project.root.glob("whole/toy/*/records.jsonl")
    for record in json_lines(whole):
        assert without_times(record) == without_times(first[record["packbench"]["case_id"]])


def test_answers_of_cases_that_are_not_selected_are_scored(project: Project, model: Model) -> None:
    project.prepare("points 1", "points 0.5")
    model.run(project)
    results = project.lines("records.jsonl")
    assert len(results) == len(model.requests) == 2
    journal_of_answers(project, project.left())
    model.run(project, "--deselect=storage/benchmarks/toy/cases/plain/case_01.json::case_01", RESUME)
    assert len(model.requests) == 2
    assert without_times(project.lines("records.jsonl")) == without_times(results)


def test_answers_of_a_run_in_fixture_mode_are_scored_and_not_asked_for_again(project: Project) -> None:
    for name, value in (("a", 1.0), ("b", 0.5)):
        project.case(name, points=value, python="with open('called', 'a') as file: file.write(context.case_id)")
    project.run_toy().assert_outcomes(passed=1, failed=1)
    journal_of_answers(project, project.left())
    project.run_toy(RESUME).assert_outcomes(passed=1, failed=1)
    assert (project.root / "called").read_text("utf-8") == "ab"
    assert {name: record["packbench"]["score"] for name, record in project.records().items()} == {"a": 1.0, "b": 0.5}


def test_a_changed_case_with_an_answer_is_refused(project: Project, model: Model) -> None:
    project.prepare("points 1", "points 0.5")
    model.run(project)
    journal_of_answers(project, project.left())
    project.case("case_01", text="points 0.25")
    refused = model.run(project, RESUME)
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "can't be resumed: case case_01 changed; " in refused.stderr.str()
    model.run(project, RESUME, "-o", "packbench_resume_changed=run").assert_outcomes(passed=1, failed=1)
    assert len(model.requests) == 3


@pytest.mark.parametrize("pending", [False, True])
def test_a_record_run_does_not_repeat_what_it_recorded(project: Project, model: Model, pending: bool) -> None:
    project.prepare("points 1", "points 0.5")
    better = openai_reply('{"points": 0.9}')
    if pending:
        model.run(project, mode="record")
        model.handler = lambda received: points(received) if "bad" in parse_request(received).text else better
        model.requests.clear()
    project.case("broken", text="bad")
    model.run(project, mode="record").assert_outcomes(errors=1, passed=2 if pending else 1, failed=not pending)
    model.requests.clear()
    model.run(project, RESUME, mode="record").assert_outcomes(errors=1, passed=2 if pending else 1, failed=not pending)
    assert {parse_request(received).text for received in model.requests} == {"bad"}


def journal_of_answers(project: Project, folder: Path) -> None:
    """Replace a run by the journal that it had when its targets had ended."""
    report = open_run(folder, checked=False)
    payloads = {line["case_id"]: line["result"] for line in project.lines("payloads.jsonl")}
    with Journal(folder / "journal.jsonl", lambda: report.run) as journal:
        for result in report.results:
            record = project.records()[result.case.case_id]
            journal.append(
                EndedAttempt(
                    case=result.case,
                    attempt=Attempt(
                        timestamp=format_timestamp(time.time_ns()),
                        duration_ms=1,
                        llm_backend="openai",
                        llm_model="fake-1",
                        tokens_input=record.get("tokens_input"),
                        tokens_output=record.get("tokens_output"),
                        calls=1,
                        payload=payloads[result.case.case_id],
                    ),
                )
            )
    for path in folder.iterdir():
        if path.name != "journal.jsonl":
            path.unlink()


def test_a_run_with_answers_that_could_not_be_read_is_rescored(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.case("a")
    raises = "from pytest_packbench import AnswerError; raise AnswerError('answer_unreadable', 'no JSON')"
    project.case("b", python=raises)
    # a pack may take results for what its targets return
    project.extend_conftest("""
    from pydantic import model_validator

    class Trusting(ToyAnswer):
        @model_validator(mode="before")
        @classmethod
        def _has_points(cls, result):
            return {**result, "points": result["points"]}

    Toy.answer_model = Trusting
    """)
    project.run_toy().assert_outcomes(passed=1, failed=1)
    assert main(["rescore", str(project.left())]) == 0
    assert "1 passed, 1 failed" in capsys.readouterr().out
