"""`packbench rescore`: score the stored results of a run by the current rules, without running anything."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.changes import Comparison, compare
from pytest_packbench.cases.files import CaseIndex, load_case, suite_locations
from pytest_packbench.cli import FAILED, FINE, warn
from pytest_packbench.commands.compare import true_conditions
from pytest_packbench.commands.paths import add_shared, suite_and_pack, write_file, write_stdout
from pytest_packbench.engine.attempt import score_payload
from pytest_packbench.engine.contexts import SuiteContext
from pytest_packbench.engine.result_builder import CaseRef, build_result, unscored_result
from pytest_packbench.model.errors import CaseError, describe_error
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.score import TRUNCATED, UNREAD
from pytest_packbench.reports.diff import diff_markdown
from pytest_packbench.runs.folder import LACKED, PAYLOADS, StoredRunError, find_run_folder
from pytest_packbench.runs.reading import StoredRun, open_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.suite import Suite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, help="the run: its folder, or SUITE/latest")
    add_shared(parser, "--root", "--pack")
    parser.add_argument("--out", type=Path, help="the Markdown file to write, instead of standard output")
    add_shared(parser, "--fail-on")


def run(arguments: argparse.Namespace) -> int:
    """Score the stored results again and write how the scores change."""
    folder = find_run_folder(arguments.run)
    stored = open_run(folder, complete=True)
    suite, pack = suite_and_pack(stored.run.requested_suite, arguments, by_name=True)
    if not (folder / PAYLOADS).exists():
        raise StoredRunError(f"{folder / PAYLOADS}: not found: the run stored no results to score again")
    before: list[Result] = []
    problems: list[str] = []
    now = replace(stored.run, suite_sha256=suite.sha256, pack=pack.name, pack_version=pack.version)
    after = replace(stored, run=now, results=tuple(rescored(stored, suite, pack, before, problems)))
    comparison = compare(replace(stored, results=before), after)
    for problem in problems:
        warn(f"not rescored: {problem}")
    failed = true_conditions(arguments.fail_on, comparison)
    note = _note(comparison, stored)
    comparison.differences = ()
    page = diff_markdown(comparison, failed, [note])
    if arguments.out is None:
        write_stdout(page)
    else:
        write_file(arguments.out, page)
    return FAILED if failed else FINE


def rescored(
    stored: StoredRun, suite: Suite, pack: Pack, before: list[Result], problems: list[str]
) -> Iterator[Result]:
    """Score each stored result of a target by the suite's current rules, against the current case.

    Args:
        stored: the run, opened with payloads.
        suite: the suite.
        pack: its pack, as the suite configures it.
        before: gets the stored results, with only what a comparison reads.
        problems: gets why a case can't be scored again.

    Yields:
        One result per result of the run. It is scored again if its payload was stored and its case still exists;
        otherwise it is the stored result.

    Raises:
        StoredRunError: a file of the run can't be read, or a result is missing.
    """
    context = SuiteContext.of_results(suite, pack, stored.run.target, redactor=Redactor(os.environ))
    load = _case_loader(suite, pack, problems)
    for result in stored.results:
        payload, was = result.attempt.payload, _reduced(result)
        before.append(was)
        # an answer that could not be read is no result, and its score depends on no rule
        is_read = result.score.counted and not any(term.name in UNREAD for term in result.score.terms)
        loaded = load(was.case.case_id) if is_read or payload is not None else None
        again = was if loaded is None else _rescore(was, payload, loaded, context)
        # a target that returned nothing has no line; any other result must have one
        if payload is None and (again.score.verdict, again.score.score) != (was.score.verdict, was.score.score):
            path = Path(stored.source).with_name(PAYLOADS)
            raise StoredRunError(f"{path}: the result of {was.case.test_id} {LACKED}")
        yield again


def _note(comparison: Comparison, stored: StoredRun) -> str:
    changed = f": {'; '.join(comparison.differences)}" if comparison.differences else ", which are those of the run"
    return (
        f"Current is the same run, its stored results scored with the current rules{changed}. The target was not run."
        f"{' Controls are not scored again.' if stored.header and stored.stated.controls else ''}"
    )


def _reduced(result: Result) -> Result:
    """Return a result with only what a comparison reads."""
    return replace(result, attempt=replace(result.attempt, payload=None), record=None)


def _rescore(stored: Result, payload: Any, loaded: LoadedCase, context: SuiteContext) -> Result:
    case = replace(stored.case, expects_refusal=None, case_sha256=loaded.sha256)
    case_ref = CaseRef(context.suite, context.pack, case, loaded)
    truncated = stored.score.kind == TRUNCATED or any(term.name == TRUNCATED for term in stored.score.terms)
    try:
        attempt = score_payload(context, loaded, payload, truncated=truncated)
        result = build_result(case_ref, attempt, context, "rescored")
    except Exception as error:  # noqa: BLE001 - an error of any pack is an error of this case, as in a run
        message = f"the pack {context.pack.name} raised {describe_error(error)}"
        result = unscored_result(case_ref, "error", "pack_error", message, stored.attempt)
    # the model, the duration and the cost are those of the stored run
    return replace(result, attempt=stored.attempt)


def _case_loader(suite: Suite, pack: Pack, problems: list[str]) -> Callable[[str], LoadedCase | None]:
    """Return a function that reads a current case by its id; it returns None if the case is gone or can't be read."""
    index = CaseIndex(suite_locations(suite))

    # the trials of a case are consecutive
    @lru_cache(maxsize=1)
    def load(case_id: str) -> LoadedCase | None:
        problem = f"{case_id}: the suite no longer has this case"
        try:
            if (location := index.find(case_id)) is not None:
                return load_case(location, pack.case_model, file=location.path, pack=pack.name)
        except CaseError as error:
            problem = str(error)
        problems.append(problem)
        return None

    return load
