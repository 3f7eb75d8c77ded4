"""Resuming a run: finds it, checks that it is unchanged, and turns what prevents it into usage errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cases.files import CaseIndex, case_file_sha256, suite_locations
from pytest_packbench.cases.recordings import find_recording
from pytest_packbench.model.errors import CassetteError
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.runs.resume import MISSING_CASE, ResumeError, check_unchanged, find_resumed

if TYPE_CHECKING:
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.suites import SessionSuites
    from pytest_packbench.runs.resume import ResumedRun

OPTION = "--packbench-resume"


def resume(contexts: SessionSuites, *, collecting: bool) -> None:
    """Find and read the run to resume, which no other session resumes until the end of this one.

    Args:
        contexts: the suites of the session, which gets the run.
        collecting: whether collection has started, so that cases come from marked tests only.

    Raises:
        pytest.UsageError: the run does not exist, or it can't be read.
    """
    if collecting:
        raise pytest.UsageError(f"{OPTION}: tests marked with packbench_cases can't be resumed; run them without it")
    config, settings = contexts.config, contexts.settings
    # a worker of xdist must not look for the latest run itself
    from_controller = getattr(config, "workerinput", {}).get(OPTION, "")
    try:
        resumed = find_resumed(
            from_controller or settings.resume,
            settings.output,
            contexts.suites,
            relative_to=settings.home,
            rerun_changed=settings.resume_changed,
            recording_sha256=_recording_sha256 if settings.mode == FIXTURE else None,
            is_worker=bool(from_controller),
        )
    except ResumeError as error:
        raise _usage_error(error) from None
    config.add_cleanup(resumed.release)
    contexts.run_id, contexts.resumed = resumed.run_id, resumed


def check_resumed(resumed: ResumedRun, suite: Suite, now: Run) -> None:
    """Check that a suite's run is still the one that was started.

    Raises:
        pytest.UsageError: something changed, and changed cases are not to be run again.
    """
    index = CaseIndex(suite_locations(suite) if suite.name in resumed.prior else ())

    def case_sha256(case_id: str) -> str | None:
        location = index.find(case_id)
        return MISSING_CASE if location is None else case_file_sha256(location)

    try:
        check_unchanged(resumed, now, case_sha256)
    except ResumeError as error:
        raise _usage_error(error) from None


def _usage_error(error: ResumeError) -> pytest.UsageError:
    return pytest.UsageError(f"{OPTION}: {error}")


def _recording_sha256(suite: Suite, case_id: str) -> str | None:
    try:
        return find_recording(suite, case_id).load()[1]
    except (OSError, CassetteError):
        return None
