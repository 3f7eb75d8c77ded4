"""What a later run is held against: the committed baseline of a suite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.atomic import write_atomic
from pytest_packbench.limits import LIMITS, read_regular
from pytest_packbench.model.result import Attempt, CaseInfo, Result
from pytest_packbench.model.run import Run
from pytest_packbench.model.score import Score
from pytest_packbench.model.strict_json import NumberError, parse_strict, position_of
from pytest_packbench.runs.folder import StoredRunError

_RESTORE = "restore it, or set it again with packbench baseline set"

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.model.baseline import CommittedBaseline


def read_baseline(path: Path) -> CommittedBaseline:
    """Read the committed baseline of a suite.

    Raises:
        StoredRunError: the file is not a valid baseline; one line with the place in it.
        OSError: it can't be read.
    """
    from pydantic import ValidationError

    from pytest_packbench.model.baseline import CommittedBaseline
    from pytest_packbench.model.errors import validation_problems

    try:
        raw = read_regular(path, LIMITS["baseline.json"])
        data = parse_strict(raw.decode("utf-8"))
    except RecursionError:
        raise StoredRunError(f"{path}: not a committed baseline: nested too deeply; {_RESTORE}") from None
    except NumberError as error:
        line, column = position_of(error.token, raw)
        raise StoredRunError(f"{path}: line {line} column {column}: {error}; {_RESTORE}") from None
    except ValueError as error:
        raise StoredRunError(f"{path}: not a committed baseline: {error}; {_RESTORE}") from None
    try:
        return CommittedBaseline.model_validate(data)
    except ValidationError as error:
        problem = validation_problems(error, CommittedBaseline, data)[0]
        raise StoredRunError(f"{path}: {problem}") from None


def write_baseline(path: Path, baseline: CommittedBaseline) -> None:
    """Write a committed baseline, a line for each case, so that a diff shows which cases changed.

    Raises:
        OSError: it can't be written; an existing file is unchanged.
    """
    data = baseline.model_dump(mode="json", exclude_defaults=True)
    cases = [f"    {_compact(test_id)}: {_compact(case)}" for test_id, case in sorted(data["cases"].items())]
    history = [f"    {_compact(change)}" for change in data.get("history", [])]
    text = "\n".join(
        [
            "{",
            f'  "baseline_version": {baseline.baseline_version},',
            f'  "run": {_compact(data["run"])},',
            '  "history": [',
            *([",\n".join(history)] if history else []),
            "  ],",
            '  "cases": {',
            *([",\n".join(cases)] if cases else []),
            "  }",
            "}",
        ]
    )
    write_atomic(path, text + "\n")


def run_of(baseline: CommittedBaseline) -> Run:
    """Return the metadata of the run that a baseline was taken from, as far as the file contains them."""
    of = baseline.run
    trials: dict[str, Any] = {"trials": of.trials, "trials_rule": of.trials_rule} if of.trials > 1 else {}
    return Run(
        run_id=of.run_id,
        suite=of.suite,
        description="",
        pack=of.pack,
        pack_version=of.pack_version,
        suite_sha256=of.suite_sha256,
        bundled=False,
        mode=of.mode,
        target=of.target,
        model=", ".join(of.models) or None,
        started_at="",
        finished_at=of.finished_at,
        settings=trials,
    )


def results_of(baseline: CommittedBaseline, file: str) -> tuple[Result, ...]:
    """Return one result for each case of a baseline, with hash, score and verdict only, sorted by test id."""
    return tuple(
        Result(
            case=CaseInfo(
                suite=baseline.run.suite,
                test_id=test_id,
                case_id=test_id.rpartition(":")[2],
                nodeid=test_id,
                file=file,
                case_sha256=case.sha256,
            ),
            attempt=Attempt(timestamp=baseline.run.finished_at),
            score=Score(verdict=case.verdict, kind=case.kind or "", score=case.score, judge=case.judge),
        )
        for test_id, case in sorted(baseline.cases.items())
    )


def attempts_of(baseline: CommittedBaseline) -> Mapping[str, tuple[int, int]]:
    """Return for each case how many of its trials passed, and how many there were."""
    return {
        test_id: (int(case.verdict == "passed") if case.passed is None else case.passed, case.trials)
        for test_id, case in baseline.cases.items()
    }


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
