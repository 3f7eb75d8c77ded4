"""`--packbench-max-unreadable`: a run that asks models ends after so many results that are unreadable for their form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import two_workers
from tests.integration.options.conftest import SECRET, points, recordings
from tests.integration.test_marked_cases import marked
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received, Reply

ONE = "--packbench-concurrency=1"
GO_ON = "--packbench-max-unreadable=0"


def answer(received: Received) -> Reply:
    """Answer with points, or as the text asks: in another form, cut off, garbled, or not at all."""
    text = parse_request(received).text
    if "form" in text or "secret" in text:
        key = "said" if "form" in text else "points"
        return openai_reply(json.dumps({key: SECRET if "secret" in text else 1.0}))
    if "cut" in text:
        return openai_reply('{"points": 1', finish_reason="length")
    if "garbled" in text:
        return openai_reply("well, one point")
    return points(received)


@two_workers
@pytest.mark.parametrize("mode", ["live", "record"])
def test_a_run_ends_after_three_and_keeps_what_was_paid_for(both: Project, model: Model, mode: str) -> None:
    both.prepare(*["form"] * 14)
    model.handler, model.latency_s = answer, 0.05
    result = model.run(both, ONE, mode=mode)
    # each of two workers counts its own, and one more attempt may be under way
    each = 2 if both.workers else 1
    made = len(model.requests)
    assert 3 <= made <= (3 + 1) * each
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert {record["packbench"]["score"] for record in both.records().values()} == {0.0}
    assert len(both.records()) == made
    whose = " of this worker" if both.workers else ""
    message = f"3 unreadable results{whose}, as many as a run may have (the last one: the target's result can't be read"
    errors = both.errors().values()
    assert {(line["verdict"], line["kind"]) for line in errors} == {("not_run", "max_unreadable")}
    assert len(errors) == 14 - made
    assert all(line["message"].startswith(message) for line in errors)
    assert both.partial().startswith(message)
    result.stdout.fnmatch_lines_random([f"*{message}*resume this one with {GO_ON}*", "*completeness*FAIL*"])

    model.run(both, ONE, GO_ON, "--packbench-resume=latest", mode=mode).assert_outcomes(failed=14)
    # nothing is paid for twice
    assert len(model.requests) == len(both.records()) == 14
    assert both.errors() == {}
    assert both.partial() == ""


def test_a_reason_is_told_without_a_secret(project: Project, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    project.extend_conftest("""
        class Numbers(ToyAnswer):
            points: float

        Toy.answer_model = Numbers
        """)
    project.prepare(*["points secret"] * 3)
    model.handler = answer
    result = model.run(project, ONE, "--packbench-max-unreadable=1")
    result.stdout.fnmatch_lines(
        ['*1 unreadable result, as many as a run may have*got "[[]redacted]"; expected a*number*']
    )
    assert SECRET not in result.stdout.str() + project.all_text()


def test_only_results_of_another_form_count(project: Project, model: Model) -> None:
    # neither what was cut off, nor what the model garbled, nor a call that failed
    project.prepare(*["cut", "garbled", "bad"] * 2, "form", "form", "points 1")
    model.handler = answer
    model.run(project, ONE).assert_outcomes(failed=6, errors=2, passed=1)
    assert {line["kind"] for line in project.errors().values()} == {"bad_request"}


OWN = """
import sys


def a_set(request):
    return {1, 2}


if __name__ == "__main__":
    for line in sys.stdin:
        print("one point", flush=True)
"""


@pytest.mark.parametrize("target", ["own:a_set", "cmd:python own.py"])
def test_a_result_that_is_no_json_counts(project: Project, model: Model, target: str) -> None:
    project.prepare(*["points 1"] * 6)
    project.write("own.py", OWN)
    model.run(project, ONE, "--packbench-max-unreadable=2", target=target)
    # it is counted before the next attempt starts
    assert len(project.records()) == 2
    assert [line["kind"] for line in project.errors().values()] == ["max_unreadable"] * 4


def test_a_test_of_ones_own_ends_so_too(project: Project) -> None:
    for name in "abcde":
        project.case(name)
    project.write("test_own.py", marked("packbench_check({'pints': 1.0})"))
    project.run("--packbench-mode=live").assert_outcomes(failed=3, skipped=2)
    project.run().assert_outcomes(failed=5)


def test_an_error_does_not_count(project: Project, model: Model) -> None:
    # nothing is recorded of an answer with a secret
    project.prepare(*["form and secret"] * 4)
    model.handler = answer
    model.run(project, ONE, mode="record").assert_outcomes(errors=4)
    assert {line["kind"] for line in project.errors().values()} == {"secret_in_answer"}


def test_a_run_of_recordings_never_ends_so(project: Project, model: Model) -> None:
    project.prepare(*["form"] * 5)
    model.handler = answer
    model.run(project, ONE, GO_ON, mode="record").assert_outcomes(failed=5)
    assert len(recordings(project)) == 5
    options = ("--packbench-target=pipeline:ask", "--packbench-max-unreadable=1", "--packbench-concurrency=2")
    project.run_toy(*options).assert_outcomes(failed=5)
