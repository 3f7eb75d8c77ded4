"""`packbench merge`: join runs of the same kind, or the shards of one run, and apply the suite's gates."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.analysis.conclusion import conclude, run_verdict, with_figures
from pytest_packbench.cases.files import CaseIndex, CaseLocation, case_file_sha256, suite_locations
from pytest_packbench.cases.recordings import find_controls, find_recording, load_control
from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.open import project_page
from pytest_packbench.commands.paths import add_shared, code_of, say, suite_and_pack
from pytest_packbench.engine.result_builder import read_case_ref, unscored_result
from pytest_packbench.model.control import ControlResult, ControlTally, tally_of
from pytest_packbench.model.errors import CassetteError, ControlError, pluralize
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.result import Attempt, Result
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.reports.document import run_document
from pytest_packbench.reports.page import write_pages
from pytest_packbench.reports.story import NOWHERE, control_lines, summary_lines
from pytest_packbench.runs.folder import PAGE, find_run_folder, find_run_source, new_run_id
from pytest_packbench.runs.merge import Merge
from pytest_packbench.runs.reading import open_run
from pytest_packbench.runs.stored import BaselineLookup
from pytest_packbench.runs.writer import RunWriter

if TYPE_CHECKING:
    import argparse

    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite

_ONE_COMMIT = "merge the runs of one commit, where that commit is checked out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", type=Path, nargs="+", help="the folders of the runs, or of all shards of a run")
    add_shared(parser, "--root", "--pack", "--output")
    parser.add_argument("--baseline", type=Path, help="the run to compare with")
    add_shared(parser, "--fail-on")
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="merge even if shards are missing: the merged run is partial and fails",
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge, write the merged run, and return 1 if it fails.

    Raises:
        UsageError: the runs can't be merged, or a file of the merged run can't be written.
    """
    folders = [find_run_folder(path, arguments.output) for path in arguments.runs]
    merge = Merge(folders, new_run_id())
    merged = merge.run
    if merge.missing_shards and not arguments.allow_missing:
        raise UsageError(f"{merge.shards_text}; add them, or pass --allow-missing")
    suite, pack = suite_and_pack(merged.requested_suite, arguments, by_name=True)
    _check_rules(merged, suite, pack)
    if arguments.fail_on and not arguments.baseline:
        raise UsageError(f"--fail-on: got {arguments.fail_on!r} without a baseline; expected --baseline as well")
    earlier = BaselineLookup()
    if arguments.baseline:
        stored = open_run(find_run_source(arguments.baseline), complete=True).read()
        earlier = BaselineLookup(stored=stored, requested=str(arguments.baseline), fail_on=arguments.fail_on or "")
    index = CaseIndex(suite_locations(suite))
    # shards together cover the suite: a case in none of them did not run
    absent = partial(_absent, merged, suite, pack, index)
    writer = RunWriter(arguments.output, merged.suite, merged.run_id, atomic=True)
    try:
        with writer:
            changed = partial(_changed, suite, index, merged.mode)
            results = writer.writing(merge.results(sorted(index), absent, changed))
            conclusion = conclude(merged, results, suite.config, pack.depths, earlier)
            # results are read one by one, so once more; a pack without figures reads none
            again = partial(writer.written_results, merged.suite)
            with code_of(pack, "figures"):
                conclusion = with_figures(conclusion, pack, again)
            # what is missing is known once all is read
            run = replace(merged, partial=merge.partial())
            conclusion = replace(conclusion, run=run, controls=_controls(merge, suite))
            of, path, folder = (suite, pack), writer.folder / PAGE, writer.folder
            page = project_page(conclusion, again, of, path, arguments, folder=folder, options=merge.rerun)
            write_pages(writer, page, NOWHERE, Redactor(os.environ).json)
            writer.complete(run_document(conclusion, merge.rerun))
    except OSError as error:
        raise UsageError(f"the merged run can't be written to {writer.folder.parent}: {error}") from None
    say(*summary_lines(conclusion), *control_lines(conclusion.controls), f"reports: {writer.folder}")
    # as in the summary: a failing or missing case fails a merge as it fails a run
    return FINE if run_verdict(conclusion).status == "passed" else FAILED


def _check_rules(merged: Run, suite: Suite, pack: Pack) -> None:
    of_runs = {"rules": merged.suite_sha256, "pack": merged.pack, "version of the pack": merged.pack_version}
    here = {"rules": suite.sha256, "pack": pack.name, "version of the pack": pack.version}
    changed = [f"{what} {here[what]}, not {used}" for what, used in of_runs.items() if used != here[what]]
    if changed:
        raise UsageError(f"suite {merged.suite} is not that of the runs: {', '.join(changed)}; {_ONE_COMMIT}")


def _changed(suite: Suite, index: CaseIndex, mode: str, result: Result) -> str:
    """Return why the case of a result, or its recording, is not the one of the suite here; empty if it is."""
    case = result.case
    location = index.find(case.case_id)
    if location is None or case.case_sha256 not in {None, case_file_sha256(location)}:
        return f"case {case.case_id} is not the one of the suite here; {_ONE_COMMIT}"
    if mode == FIXTURE and result.attempt.cassette_sha256 is not None:
        with suppress(OSError, CassetteError):
            if find_recording(suite, case.case_id).load()[1] == result.attempt.cassette_sha256:
                return ""
        return f"the recording of case {case.case_id} is not the one of the suite here; {_ONE_COMMIT}"
    return ""


def _controls(merge: Merge, suite: Suite) -> ControlTally | None:
    """Return the controls of the merged runs, which are in fixture mode; None if there are none.

    Raises:
        UsageError: they are not those of the suite here.
    """
    if merge.run.mode != FIXTURE:
        return None
    present = {found.name: found for found in find_controls(suite.controls_path)}
    results, count = merge.controls()
    changed = next((result.control for result in results if not _is_same(result, present.get(result.control))), None)
    if changed is not None:
        raise UsageError(f"the control {changed} is not the one of the suite here; {_ONE_COMMIT}")
    if merge.missing_shards == [] and count != len(present):
        had = pluralize(count, "control")
        raise UsageError(f"the suite of the runs had {had}, the suite here has {len(present)}; {_ONE_COMMIT}")
    return tally_of(results, len(present))


def _is_same(result: ControlResult, found: CaseLocation | None) -> bool:
    """Return whether a control of a run is the one of the suite here, as far as its line tells."""
    if found is None:
        return False
    try:
        control = load_control(found, source=result.file)
    except ControlError:
        return result.outcome == "broken"
    if result.expected is None:
        # one that was broken or did not run may have a line without it
        return True
    return (result.case, result.expected.as_json()) == (control.case, control.expected.as_json())


def _absent(run: Run, suite: Suite, pack: Pack, index: CaseIndex, case_id: str) -> Result:
    """Return the result of a case that is in none of the shards."""
    case = index[case_id]
    file = Path(os.path.relpath(case.path)).as_posix()
    # a case that can't be read did not run either
    case_ref = read_case_ref(suite, pack, case, file=file, nodeid=f"{file}::{case.name}")
    message = "in none of the merged shards"
    return unscored_result(case_ref, "not_run", "in_no_shard", message, Attempt(timestamp=run.finished_at))
