"""What a later run is held against: the committed baseline of a suite, and the acceptance policy of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.atomic import write_atomic
from pytest_packbench.limits import LIMITS, read_regular
from pytest_packbench.model.policy import POLICY_VERSION, CaseFacts, Policy, PolicyError
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.run import BUNDLED, Run
from pytest_packbench.model.strict_json import parse_strict
from pytest_packbench.runs.folder import StoredRunError
from pytest_packbench.runs.report import open_report

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


def results_of(baseline: CommittedBaseline, file: str) -> tuple[CaseResult, ...]:
    """Return one result for each case of a baseline, with hash, score and verdict only, sorted by test id."""
    return tuple(
        CaseResult(
            suite=baseline.run.suite,
            test_id=test_id,
            case_id=test_id.rpartition(":")[2],
            nodeid=test_id,
            file=file,
            verdict=case.verdict,
            kind=case.kind or "",
            message="",
            timestamp=baseline.run.finished_at,
            score=case.score,
            case_sha256=case.sha256,
            judge=case.judge,
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


def run_policy(folder: Path, suite: str) -> tuple[Policy, str]:
    """Read the acceptance policy of a run.

    Args:
        folder: its folder.
        suite: the name of the suite, without `bundled/`.

    Returns:
        The policy, whose cases have hashes only, and the mode of the run.

    Raises:
        PolicyError: the run is not of the suite, is partial, or stores no policy.
        StoredRunError: its report can't be read.
        OSError: likewise.
    """
    if not folder.is_dir():
        raise PolicyError(f"there is no run {folder.name} of suite {suite} here; name another run, or a commit")
    report = open_report(folder)
    run, stored = report.run, report.policy
    if run.suite.removeprefix(BUNDLED) != suite:
        raise PolicyError(f"run {run.run_id} is of suite {run.suite}; expected a run of {suite}")
    if report.policy_failed:
        raise PolicyError(
            f"run {run.run_id} itself failed for its acceptance policy; name a run that passed, or a commit"
        )
    if run.partial:
        raise PolicyError(f"run {run.run_id} is partial ({run.partial}); expected a complete run")
    keys = {"config": dict, "files": dict, "code": dict, "recordings": dict, "settings": dict}
    is_valid = isinstance(stored, dict) and stored.get("version") == POLICY_VERSION
    if not is_valid or stored is None or not all(isinstance(stored.get(key), kind) for key, kind in keys.items()):
        raise PolicyError(f"run {run.run_id} stores no acceptance policy; run the suite again, or name a commit")
    cases: dict[str, CaseFacts] = {}
    recordings: dict[str, str] = dict(stored["recordings"])
    for result in report.results:
        cases.setdefault(result.case_id, CaseFacts(result.file, result.case_sha256))
        if run.mode == "fixture" and result.cassette_sha256 is not None:
            recordings[result.case_id] = result.cassette_sha256
    policy = Policy(
        suite=suite,
        config=stored["config"],
        files=stored["files"],
        code=stored["code"],
        pack_version=run.pack_version,
        settings=stored["settings"],
        baseline=stored.get("baseline"),
        recordings=recordings,
        cases=cases,
        hooks=stored.get("hooks"),
        pipeline=pipeline_of(run),
    )
    return policy, run.mode


def pipeline_of(run: Run) -> dict[str, str]:
    """Return what a run tested, as it was found in the end."""
    return {
        "target": run.target,
        "model": " / ".join(filter(None, (run.backend, run.model))),
        "guards": ",".join(run.settings.get("guards", ())),
    }
