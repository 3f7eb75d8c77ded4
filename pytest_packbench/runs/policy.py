"""The acceptance policy that a run was decided by, from its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.model.policy import POLICY_VERSION, CaseFacts, Policy, PolicyError
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.runs.report import open_report

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.run import Run


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
