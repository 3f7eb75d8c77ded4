"""Earlier runs of a suite: which belong to one trend, and what each case came to in them."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.analysis.conclusion import QUARANTINED, like_runs, verdict_of
from pytest_packbench.commands import main
from pytest_packbench.runs.reading import earlier_runs, open_run
from pytest_packbench.runs.writing import RunWriter, sort_results
from tests.unit.run_builders import case_result, document, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_packbench.analysis.conclusion import EarlierRun
    from pytest_packbench.model.report import StoredRun
    from pytest_packbench.model.result import Result
    from tests.conftest import ExpectedTexts


def ulid(number: int) -> str:
    return f"01K{number:023d}"


NOW = run(run_id=ulid(900))
SIX = [
    case_result("a", answer="yes \ud800"),
    case_result("b", "failed"),
    *(case_result(name, name) for name in ("error", "vacuous", "not_run")),
    case_result("q", "not_run", kind="skip"),
]


def write(output: Path, number: int, results: Sequence[Result] = SIX, **changes: Any) -> Path:
    """Write a run as a session does, beside the document of another program with keys of the same names."""
    of = run(run_id=ulid(number), **changes)
    writer = RunWriter(output, "toy", of.run_id)
    results = sort_results(results)
    writer.write_results(results)
    tests = [{"nodeid": '"packbench":{"version":1,"cases":[', "packbench": {"version": 1, "x": 1, "cases": [1]}}]
    writer.complete({**document(of, results), "cases": []}, {"tests": tests})
    return writer.folder


def test_like_runs_are_the_complete_earlier_runs_of_the_same_pipeline(tmp_path: Path) -> None:
    write(tmp_path, 1, settings={"gate": "case", "cases": [1]})
    unlike: list[dict[str, Any]] = [
        {"partial": "interrupted"},
        {"mode": "live"},
        {"target": "mine"},
        {"settings": {"guards": ["g"]}},
    ]
    for number, changes in enumerate(unlike, start=2):
        write(tmp_path, number, **changes)
    folder = write(tmp_path, 6, suite_sha256="cd" * 32)
    # as another program writes it
    report = folder / "report.json"
    report.write_text(json.dumps(json.loads(report.read_bytes()), indent=1), encoding="utf-8")
    (write(tmp_path, 7) / "report.json").write_text("{", encoding="utf-8")
    (write(tmp_path, 8) / "report.json").write_bytes(b"")
    whole = (write(tmp_path, 11) / "report.json").read_bytes()
    for number, (old, new) in enumerate(
        [
            (b'"version":1,"status"', b'"version":2,"status"'),
            (b'"verdict":"failed"', b'"verdict":"great"'),
            (b',"cases":[', b',"rows":['),
        ]
    ):
        assert old in whole
        (write(tmp_path, 11 + number) / "report.json").write_bytes(whole.replace(old, new))
    write(tmp_path, 9).rename(tmp_path / "toy" / ulid(10))
    write(tmp_path, 901)

    def found(opened: StoredRun | None = None, **options: Any) -> list[EarlierRun]:
        return like_runs(NOW, (), earlier_runs(tmp_path / "toy", NOW, opened), **options)

    runs = found()
    assert [(each.outline.run.run_id, each.outline.run.suite_sha256[:2]) for each in runs] == [
        (ulid(1), "ab"),
        (ulid(6), "cd"),
    ]
    verdicts = {f"toy:plain:{name}": name for name in ("error", "vacuous", "not_run")}
    verdicts |= {"toy:plain:a": "passed", "toy:plain:b": "failed", "toy:plain:q": QUARANTINED}
    assert [{name: verdict_of(case) for name, case in each.cases.items()} for each in runs] == [verdicts] * 2
    assert runs[0].cases == runs[1].cases
    assert [each.outline.run.run_id for each in found(limit=1)] == [ulid(6)]
    assert like_runs(NOW, (), earlier_runs(tmp_path / "none", NOW)) == []
    opened = open_run(tmp_path / "toy" / ulid(6), checked=False).read()
    for each in opened, replace(opened, source=str(tmp_path / "gone" / "report.json")):
        assert [old.outline.run.run_id for old in found(each)] == [ulid(1), ulid(6)]
    # a copy in another folder is not the run in this one
    copy = dataclasses.replace(opened, source=str(tmp_path / "copy" / "report.json"), results=())
    assert [each.cases for each in found(copy)] == [each.cases for each in runs]


def test_runs_of_another_model_are_unlike_whether_the_run_or_its_answers_name_it(tmp_path: Path) -> None:
    for number, name in enumerate(("m-1", "m-2")):
        write(tmp_path, number, [case_result("a", llm_model=name)], mode="live")
        write(tmp_path, number + 10, [case_result("a", llm_model=name)], mode="live", backend="openai", model=name)

    def found(*models: str, **changes: Any) -> list[str]:
        of = run(run_id=ulid(900), mode="live", **changes)
        return [each.outline.run.run_id for each in like_runs(of, models, earlier_runs(tmp_path / "toy", of))]

    assert found() == []
    assert found("anthropic/m-2") == [ulid(1)]
    assert found("anthropic/m-2", backend="openai", model="m-1") == [ulid(10)]


def test_only_the_latest_cases_are_read_of_large_reports(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number)
    runs = like_runs(NOW, (), earlier_runs(tmp_path / "toy", NOW), max_cases=8)
    assert [(each.outline.overall.n, len(each.cases)) for each in runs] == [(2, 0), (2, 0), (2, 6)]


A, B, NEW_CASE = ({"case_sha256": digit * 64, "cassette_sha256": digit * 64} for digit in "abc")
AGAIN = {**B, "cassette_sha256": "d" * 64}
EDITED = {**AGAIN, "case_sha256": "e" * 64}
RULES_CHANGED = {"suite_sha256": "cd" * 32}
# the verdicts of two cases in each of these runs
ROWS: list[tuple[list[Result], dict[str, Any]]] = [
    ([case_result("a", **A, answer="yes"), case_result("b", **B)], {}),
    ([case_result("a", "failed", **A, answer="n|o \ud800"), case_result("b", **B)], {}),
    ([case_result("a", **A), case_result("b", "failed", **AGAIN), case_result("n", **NEW_CASE)], {}),
    ([case_result("a", "failed", **A), case_result("b", **AGAIN), case_result("n", **NEW_CASE)], RULES_CHANGED),
    ([case_result("b", "failed", **EDITED, trial=number) for number in range(2)], RULES_CHANGED),
    ([case_result("b", "error", kind="timeout", case_sha256="e" * 64)], RULES_CHANGED),
]


@pytest.fixture
def history(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., str]:
    """Call the command on these runs, runs of two other kinds, one that is partial and one that can't be read."""
    for number, (results, changes) in enumerate(ROWS, start=10):
        write(tmp_path, number, results, **{"settings": {"gate": "case", "trials": 2}, **changes})
    live = {"mode": "live", "backend": "openai", "model": "m-1"}
    write(tmp_path, 1, SIX, **live, settings={"guards": ["g"]})
    write(tmp_path, 2, SIX, **live)
    write(tmp_path, 3, partial="shard 1/2", settings={"shard": "1/2"})
    (write(tmp_path, 20) / "report.json").write_text("{", encoding="utf-8")

    def call(*arguments: str, code: int = 0) -> str:
        assert main(["history", "toy", *arguments, "--output", str(tmp_path)]) == code
        out, err = capsysbinary.readouterr()
        return (out + err).decode().replace(str(tmp_path), "TMP")

    return call


def test_history_shows_like_runs_with_their_trend_and_flaky_cases(
    history: Callable[..., str], expected: ExpectedTexts
) -> None:
    expected.check(history(), "md")
    expected.check(history("--all", "--limit", "2"), "all.md")
    assert history("--limit", "1").count("\n| 01K") == 1


def test_a_copy_of_a_run_does_not_count(history: Callable[..., str], tmp_path: Path) -> None:
    toy, before = tmp_path / "toy", history("--all")
    # others have no run's name
    for name in (ulid(21), "copied", f"{ulid(14)}-copy"):
        shutil.copytree(toy / ulid(14), toy / name)
    shown = history("--all")
    assert shown.startswith(before.partition("\n## Runs in no trend")[0])
    assert re.search(rf"{ulid(21)}: .*contains the run {ulid(14)}, which counts in the folder of this name", shown)
    assert f"3 runs in no trend ({ulid(21)}, {ulid(20)}, {ulid(3)})" in history()


def test_runs_of_which_none_is_complete_are_shown_with_their_reasons(
    tmp_path: Path, history: Callable[..., str]
) -> None:
    for folder in (tmp_path / "toy").glob("*/"):
        if folder.name not in {ulid(3), ulid(20)}:
            shutil.rmtree(folder)
    (tmp_path / "toy" / "notes").mkdir()
    partial = f"TMP/toy/{ulid(3)}: partial: shard 1/2"
    error = history(code=2)
    assert error.startswith(f"packbench: no complete run under TMP/toy; the latest: {ulid(20)}: ")
    assert (error.endswith(f"; {ulid(3)}: {partial}\n"), "notes" in error) == (True, False)
    assert history("--all").startswith(f"## Runs in no trend\n\n- {ulid(3)}: {partial}\n- {ulid(20)}: ")
    document = json.loads(history("--all", "--format", "json"))
    assert (document["trends"], document["others"][0]) == ([], {"run": ulid(3), "trouble": partial})
    assert history("a", "--all", code=2) == error


def test_history_of_a_case_shows_its_verdicts_and_what_changed(
    history: Callable[..., str], expected: ExpectedTexts
) -> None:
    texts = [history(name) for name in ("a", "toy:plain:b", "n")]
    expected.check("\n".join(texts), "md")
    message = "expected one of a, b, n"
    assert history("q", code=2) == f'packbench: TMP/toy: no case "q" in these runs; {message}\n'
    # runs of other kinds have it
    assert history("q", "--all").count("quarantined") > 1


def test_a_run_whose_cases_can_t_be_read_is_no_part_of_a_trend_and_two_cases_are_told_apart(
    history: Callable[..., str], tmp_path: Path
) -> None:
    report = tmp_path / "toy" / ulid(15) / "report.json"
    report.write_bytes(report.read_bytes().replace(b'"verdict":"error"', b'"verdict":"great"'))
    assert re.search(rf"{ulid(15)}: .*/verdict: ", history("--all"))
    write(tmp_path, 16, [case_result("a", test_id="toy:odd:a"), case_result("b", score=1.0 - 2e-6)], **RULES_CHANGED)
    message = "the id of several cases; expected one of the test ids toy:odd:a, toy:plain:a"
    assert history("a", code=2) == f"packbench: a: {message}\n"
    write(tmp_path, 17, [case_result("a", test_id="toy:odd:a"), case_result("b")], **RULES_CHANGED)
    assert "| +0.000001 " in history()
