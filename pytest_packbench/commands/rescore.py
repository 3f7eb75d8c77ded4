"""`packbench rescore`: score the stored results of a run by the current rules, without running anything."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import FAILED, FINE
from pytest_packbench.commands.compare import add_fail_on, true_conditions
from pytest_packbench.commands.paths import add_packs, add_root, suite_and_pack, write_file
from pytest_packbench.model.errors import describe_error
from pytest_packbench.model.result import Result
from pytest_packbench.model.score import UNREAD
from pytest_packbench.runs.folder import PAYLOADS, StoredRunError, find_run_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from pytest_packbench.analysis.changes import Comparison
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.score import Term
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.runs.report import OpenRun


_Terms = tuple["Term", ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, help="the run: its folder, or SUITE/latest")
    add_root(parser)
    add_packs(parser)
    parser.add_argument("--out", type=Path, help="the Markdown file to write, instead of standard output")
    add_fail_on(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score the stored results again and write how the scores change."""
    from pytest_packbench.analysis.changes import compare
    from pytest_packbench.reports.diff import diff_markdown
    from pytest_packbench.runs.lines import checked_results
    from pytest_packbench.runs.report import open_report
    from pytest_packbench.runs.stored import StoredRun

    folder = find_run_folder(arguments.run)
    report = open_report(folder)
    suite, pack = suite_and_pack(report.run.requested_suite, arguments, by_name=True)
    terms: dict[Hashable, _Terms] = {}
    before = tuple(_reduced(result, terms) for result in checked_results(folder, report.results, report.run.run_id))
    after = rescored(before, report.run, folder / PAYLOADS, suite, pack)
    now = replace(report.run, suite_sha256=suite.sha256, pack=pack.name, pack_version=pack.version)
    comparison = compare(
        StoredRun(source=report.source, run=report.run, results=before),
        StoredRun(source=f"{folder} rescored", run=now, results=tuple(after)),
    )
    failed = true_conditions(arguments.fail_on, comparison)
    note = _note(comparison, report)
    comparison.differences = ()
    page = diff_markdown(comparison, failed, [note])
    if arguments.out is None:
        sys.stdout.write(page)
    else:
        write_file(arguments.out, page)
    return FAILED if failed else FINE


def rescored(results: Iterable[Result], run: Run, payloads: Path, suite: Suite, pack: Pack) -> Iterator[Result]:
    """Score each stored payload by the suite's current rules, against the current case.

    Args:
        results: the results of the run.
        run: the run.
        payloads: the file of the payloads, as the target returned them; read one by one.
        suite: the suite.
        pack: its pack, as the suite configures it.

    Yields:
        One result per result of the run: first those with a payload, in its order, then the others. It is scored again
        if its payload was stored and its case still exists; otherwise it is the stored result.

    Raises:
        StoredRunError: the run stored no payloads, or a line of them can't be read.
    """
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.runs.lines import read_payloads

    remaining = {(result.case.test_id, result.attempt.trial): result for result in results}
    context = SuiteContext.of_results(suite, pack, run.target, redactor=Redactor(os.environ))
    load = _case_loader(suite, pack)
    for key, payload in read_payloads(payloads, run.run_id):
        stored = remaining.pop(key, None)
        if stored is None:
            problem = f"the result of {key[0]} is there twice, or its case is missing in the run's report"
            raise StoredRunError(f"{payloads}: {problem}; restore both files from the run")
        loaded = load(stored.case.case_id)
        yield stored if loaded is None else _rescore(stored, payload, loaded, context)
    for stored in remaining.values():
        # an answer that could not be read is no result, and its score depends on no rule
        is_read = stored.score.counted and not any(term.name in UNREAD for term in stored.score.terms)
        loaded = load(stored.case.case_id) if is_read else None
        if loaded is None:
            yield stored
            continue
        # a target that returned nothing has no line; any other result must have one
        again = _rescore(stored, None, loaded, context)
        if (again.score.verdict, again.score.score) != (stored.score.verdict, stored.score.score):
            problem = f"the result of {stored.case.test_id} is missing, but the run's report counts it"
            raise StoredRunError(f"{payloads}: {problem}; restore the file from the run")
        yield again


def _note(comparison: Comparison, report: OpenRun) -> str:
    changed = f": {'; '.join(comparison.differences)}" if comparison.differences else ", which are those of the run"
    return (
        f"Current is the same run, its stored results scored with the current rules{changed}. The target was not run."
        f"{' Controls are not scored again.' if report.controls else ''}"
    )


def _reduced(result: Result, shared: dict[Hashable, _Terms]) -> Result:
    """Return a result with only what a comparison reads; equal terms are shared to save memory."""
    terms = tuple([replace(term, detail="") for term in result.score.terms])
    score = replace(result.score, message="", input_text="", expected_text="", actual_text="")
    return Result(
        case=result.case,
        attempt=replace(result.attempt, payload=None),
        score=replace(score, terms=shared.setdefault(terms, terms)),
    )


def _rescore(stored: Result, payload: Any, loaded: LoadedCase, context: SuiteContext) -> Result:
    from pytest_packbench.engine.attempt import score_payload
    from pytest_packbench.engine.result_builder import CaseRef, build_result, unscored_result
    from pytest_packbench.model.score import TRUNCATED

    case_ref = CaseRef(
        suite=context.suite,
        pack=context.pack,
        case_id=stored.case.case_id,
        nodeid=stored.case.nodeid,
        file=stored.case.file,
        folder=Path(stored.case.file).parent.name,
        loaded=loaded,
    )
    truncated = stored.score.kind == TRUNCATED or any(term.name == TRUNCATED for term in stored.score.terms)
    try:
        attempt = score_payload(context, loaded, payload, truncated=truncated)
        result = build_result(case_ref, attempt, context, "rescored")
    except Exception as error:  # noqa: BLE001 - an error of any pack is an error of this case, as in a run
        message = f"the pack {context.pack.name} raised {describe_error(error)}"
        result = unscored_result(case_ref, "error", "pack_error", message, stored.attempt)
    # the model, the duration and the cost are those of the stored run
    return replace(result, attempt=stored.attempt)


def _case_loader(suite: Suite, pack: Pack) -> Callable[[str], LoadedCase | None]:
    """Return a function that reads a current case by its id; it returns None if the case is gone or can't be read."""
    from pytest_packbench.cases.files import CaseIndex, load_case, suite_locations
    from pytest_packbench.model.errors import CaseError
    from pytest_packbench.reports.terminal import one_line, printable

    index = CaseIndex(suite_locations(suite))

    # the trials of a case are consecutive
    @lru_cache(maxsize=1)
    def load(case_id: str) -> LoadedCase | None:
        location = index.find(case_id)
        if location is None:
            sys.stderr.write(f"packbench: not rescored: {one_line(case_id)}: the suite no longer has this case\n")
            return None
        try:
            return load_case(location, pack.case_model, file=location.path, pack=pack.name)
        except CaseError as error:
            sys.stderr.write(f"packbench: not rescored: {printable(str(error))}\n")
            return None

    return load
