"""`baseline.json`: what is written is what is read, and it stands for its run in comparisons and gates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.analysis.changes import baseline_outcome, committed_baseline, compare, loosened
from pytest_packbench.model.errors import StoredRunError
from pytest_packbench.model.report import BaselineLookup, StoredRun
from pytest_packbench.model.stored import BaselineChange
from pytest_packbench.packs.agent_safety.metrics import GATES as ATTACK_METRICS
from pytest_packbench.runs.reading import open_run
from pytest_packbench.runs.writing import write_baseline
from tests.unit.run_builders import ONE_OF_EACH, case_result, changed, check_run, data, gate, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from pytest_packbench.model.result import Result

DATA: dict[str, Any] = data("committed_baseline.yaml")

CHANGE = BaselineChange(set_at="2026-01-01T00:00:00.000Z", run_id="01OLD", reason="a | b\u202e\n::error::")


def stored(results: Sequence[Result], **changes: Any) -> StoredRun:
    return StoredRun(source="f", run=run(**changes), results=tuple(results))


def committed(folder: Path, results: Sequence[Result], **changes: Any) -> StoredRun:
    path = folder / "baseline.json"
    write_baseline(path, committed_baseline(run(**changes), results, [CHANGE]))
    return open_run(path, checked=False).read()


TRIALS = [
    case_result(name, verdict, trial=trial, case_sha256="ab" * 32)
    for name in "ab"
    for trial, verdict in enumerate(("passed", "failed", "passed"))
]
SETTINGS = [{"trials": 3, "trials_rule": rule} for rule in ("mean", "all", "any", {"at_least": 2})]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_trials_are_one_case_with_their_number(tmp_path: Path, settings: dict[str, Any]) -> None:
    now = stored(TRIALS, settings=settings)
    comparison = compare(committed(tmp_path, TRIALS, settings=settings), now)
    assert (comparison.differences, comparison.trials, comparison.unchanged) == ((), (3, 3), 2)
    assert not any(comparison.counts().values())
    worse = [changed(result, score=0.0, verdict="failed") for result in TRIALS]
    comparison = compare(committed(tmp_path, TRIALS, settings=settings), stored(worse, settings=settings))
    (first, _) = (change for rows in comparison.listed.values() for change in rows.first)
    assert comparison.reasons(first) == ("2 / 3 trials passed before, 0 / 3 now",)


def test_a_case_without_its_passes_still_has_its_trials(tmp_path: Path) -> None:
    committed(tmp_path, TRIALS, settings=SETTINGS[0])
    path = tmp_path / "baseline.json"
    path.write_text(re.sub(r',\s*"passed": 2', "", path.read_text("utf-8")), encoding="utf-8")
    assert [result.folded for result in open_run(path).results] == [(0, 3), (0, 3)]
    assert compare(open_run(path), stored(TRIALS[::3])).trials == (3, 1)


def test_a_baseline_of_every_verdict_stands_for_its_run(tmp_path: Path) -> None:
    results = [changed(result, case_sha256=result.case.case_sha256 and "ab" * 32) for result in ONE_OF_EACH]
    before = committed(tmp_path, results)
    comparison = compare(before, stored(results))
    assert comparison.differences == ()
    assert not any(comparison.counts().values())
    assert list(loosened(before, stored(results))) == []
    assert baseline_outcome(BaselineLookup(), None, "whole") is None
    removed = list(loosened(before, stored([])))
    assert len(removed) == len({result.case.test_id for result in results})
    broken = [case_result(result.case.case_id, "error", kind="timeout") for result in results]
    assert "toy:plain:a: passed before, timeout now; the case was edited" in list(loosened(before, stored(broken)))
    other = next(iter(loosened(before, stored(results, suite_sha256="00" * 32))))
    assert other.startswith("scoring rules: ")


def test_a_ratio_needs_a_run_for_what_the_file_does_not_contain(tmp_path: Path) -> None:
    results = [case_result(f"c{number}", case_sha256="ab" * 32, decision="comply_unsafe") for number in range(5)]
    baseline = BaselineLookup(stored=committed(tmp_path, results))
    rules = [gate(metric, max_ratio_to_baseline=1.0) for metric in ("attack_success_rate", "pass_rate")]
    unknown, known = check_run(run(), results, rules, baseline, metrics=ATTACK_METRICS)
    assert "the committed baseline does not contain attack_success_rate; pass a run as the baseline" in unknown.text
    assert (unknown.passed, known.passed) == (False, True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    DATA["damages"],
)
def test_a_baseline_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(path, committed_baseline(run(), [case_result("a", case_sha256="ab" * 32)], [CHANGE]))
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    with pytest.raises(StoredRunError, match=re.escape(message)):
        open_run(path, checked=False).read()
