"""Resuming a run: finds it, checks that it is unchanged, and turns what prevents it into usage errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cases.files import case_file_sha256, find_case, split_location
from pytest_packbench.cases.recordings import find_recording
from pytest_packbench.model.errors import CassetteError
from pytest_packbench.plugin import rootdir_of
from pytest_packbench.pytest_plugin.case_run import run_of
from pytest_packbench.pytest_plugin.suites import refuse
from pytest_packbench.runs.resume import MISSING_CASE, ResumeError, check_unchanged, find_resumed, name_cases

if TYPE_CHECKING:
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.case_run import CaseRun
    from pytest_packbench.pytest_plugin.suites import SessionSuites
    from pytest_packbench.runs.journal import Entry
    from pytest_packbench.runs.resume import ResumedRun

OPTION = "--packbench-resume"


def resumed_run(config: pytest.Config, contexts: SessionSuites) -> ResumedRun:
    """Find and read the run to resume.

    Raises:
        pytest.UsageError: the run does not exist, or it can't be read.
    """
    settings = contexts.settings
    # a worker of xdist must not look for the latest run itself
    from_controller = getattr(config, "workerinput", {}).get(OPTION, {})
    try:
        resumed = find_resumed(
            from_controller.get("folder", settings.resume),
            settings.output,
            contexts.suites,
            relative_to=settings.home,
            rerun_changed=settings.resume_changed == "run",
            recording_sha256=_recording_sha256 if settings.mode == "fixture" else None,
            is_worker=bool(from_controller),
        )
    except ResumeError as error:
        raise _usage_error(error) from None
    for name in from_controller.get("dropped", ()):
        if name in resumed.prior:
            resumed.prior[name].clear()
    return resumed


def check_resumed(config: pytest.Config, resumed: ResumedRun, now: Run) -> None:
    """Check that a suite's run is still the one that was started.

    Raises:
        pytest.UsageError: something changed, and changed cases are not to be run again.
    """

    def case_sha256(result: Entry) -> str | None:
        if result.case.file.startswith("bundled:"):
            return result.case.case_sha256
        location = find_case(str(rootdir_of(config) / split_location(result.case.file)[0]), result.case.case_id)
        return MISSING_CASE if location is None else case_file_sha256(location)

    try:
        check_unchanged(resumed, now, case_sha256)
    except ResumeError as error:
        raise _usage_error(error) from None


class ChangedCases:
    """Checks that no collected case has changed since it was scored."""

    def __init__(self, resumed: ResumedRun) -> None:
        self._resumed = resumed

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse to resume if scored cases have changed, or forget their results."""
        for suite, prior in self._resumed.prior.items():
            runs = [run for item in session.items if (run := run_of(item)) is not None and not run.test_function]
            of_suite = [run for run in runs if run.suite.name == suite]
            changed = [run.name for run in of_suite if prior.was_scored_differently(run.name, _sha256(run))]
            try:
                if changed:
                    self._resumed.require_rerun(suite, [f"{name_cases(changed)} changed"])
            except ResumeError as error:
                refuse(session.config, f"{OPTION}: {error}")
            for case_id in changed:
                prior.discard(case_id)


def _usage_error(error: ResumeError) -> pytest.UsageError:
    return pytest.UsageError(f"{OPTION}: {error}")


def _sha256(run: CaseRun) -> str | None:
    return run.loaded.sha256 if run.loaded is not None and not run.problem else None


def _recording_sha256(suite: Suite, case_id: str) -> str | None:
    try:
        return find_recording(suite, case_id).load()[1]
    except (OSError, CassetteError):
        return None
