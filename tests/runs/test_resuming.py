"""What is kept of a run that is resumed, what is repeated, and what refuses it: on values, without pytest."""

from __future__ import annotations

from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_packbench.runs.journal import Journal, is_locked
from pytest_packbench.runs.resuming import (
    MISSING_CASE,
    PriorResults,
    ResumedRun,
    ResumeError,
    check_unchanged,
    fill_missing_trials,
    find_resumed,
)
from tests.runs.test_journal import ended
from tests.unit.run_builders import case_result, data, run
from tests.unit.stored_runs import run_of, suite, write

DATA: dict[str, Any] = data("resuming.yaml")

TOY: Any = SimpleNamespace(name="toy")
OTHER: Any = SimpleNamespace(name="other")
ONE, R1 = "1" * 64, "e" * 64
SCORED = [case_result("a", case_sha256=ONE, cassette_sha256=R1), case_result("b", "failed", trial=1, case_sha256=ONE)]
ENDED = ended("e", case_sha256=ONE, cassette_sha256=R1)
BROKEN = case_result("c", "error", kind="timeout", case_sha256=ONE)
QUARANTINED = case_result("q", "known_hole", kind="xfail", case_sha256=ONE)
ENTRIES: list[Any] = [*SCORED, ENDED, BROKEN, QUARANTINED]


def resumed(*entries: Any, recording: str | None = R1, live: bool = False, rerun_changed: bool = False) -> ResumedRun:
    prior = PriorResults.of(Path("out/toy/01RUN"), run(), entries or ENTRIES)
    return ResumedRun(
        run_id="01RUN",
        base=Path("out"),
        prior={"toy": prior},
        rerun_changed=rerun_changed,
        recording_sha256=None if live else lambda _suite, _case_id: recording,
    )


def test_scored_and_ended_attempts_are_kept_and_others_repeated() -> None:
    known = resumed()
    assert known.kept(TOY, "a", ONE) == {0: SCORED[0]}
    assert known.kept(TOY, "b", ONE) == {1: SCORED[1]}
    assert known.kept(TOY, "e", ONE) == {0: ENDED}
    assert [dict(known.kept(TOY, name, ONE)) for name in ("c", "none")] == [{}, {}]
    assert (known.kept(OTHER, "a", ONE), known.kept(OTHER, "e", ONE)) == ({}, {})
    assert [len(known.kept(TOY, name, ONE)) for name in "abceq"] == [1, 1, 0, 1, 1]
    assert (
        known.header_line("toy") == "packbench: suite toy: resuming run 01RUN: 4 attempts kept, 1 unfinished to repeat"
    )
    assert known.header_line("other") == "packbench: suite other: resuming run 01RUN: 0 attempts kept"
    assert resumed(SCORED[0]).header_line("toy") == "packbench: suite toy: resuming run 01RUN: 1 attempt kept"
    assert known.folder == Path("out/toy/01RUN")


def test_an_attempt_on_another_recording_is_repeated_in_fixture_mode() -> None:
    known = resumed(recording="r2")
    assert (known.kept(TOY, "a", ONE), known.kept(TOY, "e", ONE)) == ({}, {})
    # the second time as well
    assert known.kept(TOY, "a", ONE) == {}
    # it read no recording
    assert known.kept(TOY, "b", ONE) == {1: SCORED[1]}
    assert resumed(recording=None).kept(TOY, "a", ONE) == {}
    live = resumed(live=True)
    assert (live.kept(TOY, "a", ONE), live.kept(TOY, "e", ONE)) == ({0: SCORED[0]}, {0: ENDED})


CHANGES: Any = DATA["changes"]


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_by_other_rules_is_refused_or_dropped(name: str) -> None:
    before, now, line = CHANGES[name]
    known = resumed()
    known.prior["toy"].run = run(**before)
    with pytest.raises(ResumeError) as caught:
        check_unchanged(known, run(**now), lambda _: ONE)
    message = str(caught.value)
    assert message.startswith('run 01RUN of suite "toy" can\'t be resumed: ')
    advice = (
        "repeat the options of that run, start a new run, or set packbench_resume_changed = run to repeat what changed"
    )
    assert message.endswith(f"{line}; {advice}")
    known.rerun_changed = True
    check_unchanged(known, run(**now), lambda _: ONE)
    assert (known.prior["toy"].replaced, known.prior["toy"].entries()) == (4, [])


def test_cases_that_changed_or_are_gone_are_refused_or_discarded() -> None:
    known = resumed()
    known.prior["toy"].run = run()
    check_unchanged(known, run(), lambda _: ONE)
    assert len(known.prior["toy"].entries()) == 5
    for sha256, what in (("2", "changed"), (MISSING_CASE, "no longer exists")):
        hashes = {"a": sha256, "c": sha256}
        with pytest.raises(ResumeError, match=f"case a {what};"):
            check_unchanged(known, run(), lambda case_id, hashes=hashes: hashes.get(case_id, ONE))  # type: ignore[misc] # per loop
    known.rerun_changed = True
    check_unchanged(known, run(), lambda case_id: {"a": "2", "e": MISSING_CASE}.get(case_id, ONE))
    prior = known.prior["toy"]
    assert (list(prior.attempts), prior.replaced) == (["b", "c", "q"], 2)


def test_what_a_run_left_is_read_or_named(tmp_path: Path) -> None:
    def find(requested: str = "latest") -> ResumedRun:
        return find_resumed(
            requested, tmp_path / "out", ["toy"], relative_to=tmp_path, rerun_changed=False, recording_sha256=None
        )

    root = suite(tmp_path)
    folder = write(
        tmp_path / "out",
        run_of(root, run_id="01K00000000000000000000000"),
        [case_result("a", "error"), case_result("b")],
        root,
    )
    known = find()
    known.release()
    assert (known.run_id, len(known.prior["toy"].entries())) == (folder.name, 2)
    # a worker whose controller was killed may write its last entry
    worker = Journal(folder / "journal.gw0-1.jsonl")
    Timer(0.1, worker.close).start()
    find().release()
    assert not is_locked(folder / "journal.gw0-1.jsonl")
    (folder / "records.jsonl").unlink()
    problems = [f"{folder}: the report counts toy:plain:b, but it has no record", "report.json: not JSON: "]
    for problem in problems:
        with pytest.raises(ResumeError) as caught:
            find()
        assert problem in str(caught.value)
        (folder / "report.json").write_text("{", encoding="utf-8")
    with Journal(folder / "journal.jsonl") as journal:
        journal.append(case_result("a"))
    with pytest.raises(ResumeError, match=r"journal\.jsonl:1: the header is missing; "):
        find()


def test_missing_trials_are_filled() -> None:
    first, template = case_result("a", trial=1), case_result("a", "not_run", kind="budget")
    filled = fill_missing_trials({1: first}, template, 3)
    assert [(result.attempt.trial, result.score.verdict) for result in filled] == [
        (0, "not_run"),
        (1, "passed"),
        (2, "not_run"),
    ]
    assert [result.attempt.trial for result in fill_missing_trials({}, template, 3)] == [0]
