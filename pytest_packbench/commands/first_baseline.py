"""The first committed baseline of a new suite: its cases are run offline, as a run in fixture mode does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.commands.paths import without_traces
from pytest_packbench.model.errors import describe_error
from pytest_packbench.model.suite import BASELINE_NAME

if TYPE_CHECKING:
    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.engine.contexts import SuiteContext, SuiteContexts
    from pytest_packbench.model.baseline import CommittedBaseline
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.suite import Suite

_REASON = "first baseline, written by packbench init"


class FirstBaselineError(Exception):
    """The cases can't be run; the message is one line."""


def write_first_baseline(name: str, root: Path) -> Path:
    """Run the cases of a suite, and write its baseline.

    Args:
        name: the name of the suite.
        root: the folder of suites.

    Returns:
        The file that was written.

    Raises:
        FirstBaselineError: pytest can't start here, or a case ended without a score.
        OSError: the file can't be written.
    """
    from pytest_packbench.pytest_plugin.project import ProjectError, with_suite
    from pytest_packbench.runs.committed import write_baseline

    def use(suites: SuiteContexts, suite: Suite) -> CommittedBaseline:
        return _baseline(suites.context(suite))

    try:
        with without_traces():
            baseline = with_suite(name, [f"--override-ini=packbench_root={root.resolve()}", "-pno:cacheprovider"], use)
    except (FirstBaselineError, OSError):
        raise
    except ProjectError as error:
        raise FirstBaselineError(str(error)) from None
    except Exception as error:  # noqa: BLE001 - packs and targets are the user's code
        raise FirstBaselineError(describe_error(error)) from None
    path = root / name / BASELINE_NAME
    write_baseline(path, baseline)
    return path


def _baseline(context: SuiteContext) -> CommittedBaseline:
    from ulid import ULID

    from pytest_packbench.analysis.committing import committed_baseline
    from pytest_packbench.cases.files import iter_cases
    from pytest_packbench.model.baseline import BaselineChange
    from pytest_packbench.model.result import format_timestamp
    from pytest_packbench.model.run import Run

    suite, run_id = context.suite, str(ULID())
    results = [_result(context, location, run_id) for location in iter_cases(suite.cases_path)]
    now = format_timestamp(time.time_ns())
    run = Run(
        run_id=run_id,
        suite=suite.record_name,
        description="",
        pack=context.pack.name,
        pack_version=context.pack.version,
        suite_sha256=suite.sha256,
        bundled=False,
        mode="fixture",
        target=context.target_name,
        started_at=now,
        finished_at=now,
    )
    return committed_baseline(run, results, [BaselineChange(set_at=now, run_id=run_id, reason=_REASON)])


def _result(context: SuiteContext, location: CaseLocation, run_id: str) -> CaseResult:
    """Make one attempt at a case.

    Raises:
        FirstBaselineError: it ended without a score.
    """
    from pytest_packbench.cases.files import load_case
    from pytest_packbench.engine.attempt import attempt
    from pytest_packbench.engine.result_builder import CaseRef, build_result
    from pytest_packbench.model.errors import CaseError

    path = location.path
    try:
        loaded = load_case(location, context.pack.case_model, file=path, pack=context.pack.name)
    except CaseError as error:
        raise FirstBaselineError(str(error)) from None
    case_ref = CaseRef(
        suite=context.suite,
        pack=context.pack,
        case_id=location.name,
        nodeid=f"{path}::{location.name}",
        file=path,
        folder=Path(path).parent.name,
        loaded=loaded,
    )
    result = build_result(case_ref, attempt(context, loaded), context, run_id)
    # a hole of the benchmark is no failure
    if not result.counted and result.verdict != "known_hole":
        raise FirstBaselineError(f"{location.name}: {result.message}")
    return result
