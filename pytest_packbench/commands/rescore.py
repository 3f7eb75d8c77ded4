"""`packbench rescore`: today's rules on stored results, without running anything."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import FAILED, FINE
from pytest_packbench.commands.compare import add_fail_on, met
from pytest_packbench.commands.paths import add_packs, add_root, suite_and_pack, write_asked
from pytest_packbench.model.errors import describe_error
from pytest_packbench.runs.folder import PAYLOADS, find_run_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from pytest_packbench.analysis.comparison import RunComparison
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite


_Terms = tuple[dict[str, Any], ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, help="the run's folder, or SUITE/latest")
    add_root(parser)
    add_packs(parser)
    parser.add_argument("--out", type=Path, help="write the page there instead of printing it")
    add_fail_on(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score the stored results again and print how the scores change."""
    from pytest_packbench.analysis.comparison import compare
    from pytest_packbench.reports.diff import diff_markdown
    from pytest_packbench.runs.report import OpenRun, open_report
    from pytest_packbench.runs.stored import StoredRun

    folder = find_run_folder(arguments.run)
    report = open_report(folder)
    suite, pack = suite_and_pack(report.run.suite, arguments)
    terms: dict[Hashable, _Terms] = {}
    before = tuple(_light(entry, terms) for entry in report.results)
    after = rescored(before, report.run, folder / PAYLOADS, suite, pack)
    now = replace(report.run, suite_sha256=suite.sha256, pack=pack.name, pack_version=pack.version)
    comparison = compare(
        StoredRun(source=report.source, run=report.run, results=before),
        OpenRun(source=f"{folder} rescored", run=now, status="", results=after),
    )
    failed = met(arguments.fail_on, comparison)
    page = diff_markdown(replace(comparison, differences=()), failed, [_note(comparison)])
    if arguments.out is None:
        sys.stdout.write(page)
    else:
        write_asked(arguments.out, page)
    return FAILED if failed else FINE


def rescored(entries: Iterable[CaseResult], run: Run, payloads: Path, suite: Suite, pack: Pack) -> Iterator[CaseResult]:
    """Score each stored result by the suite's rules of today, against the case as it is today.

    Args:
        entries: those of the run.
        run: what is true of them.
        payloads: the run's stored results, read one by one.
        suite: the suite.
        pack: its pack, as the suite uses it.

    Yields:
        One entry for each entry of the run, in the order of the results, then the others: scored again where its
        result was stored and its case is still there, the stored one otherwise.

    Raises:
        StoredRunError: the run kept no results, or a line of them can't be read.
    """
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.runs.lines import read_payloads

    left = {(entry.test_id, entry.trial): entry for entry in entries}
    context = SuiteContext.of_results(suite, pack, run.target)
    load = _cases(suite, pack)
    for key, result in read_payloads(payloads):
        entry = left.pop(key, None)
        if entry is not None:
            loaded = load(entry.case_id)
            yield entry if loaded is None else _again(entry, result, loaded, context)
    yield from left.values()


def _note(comparison: RunComparison) -> str:
    changed = f": {'; '.join(comparison.differences)}" if comparison.differences else ", which are those of the run"
    return f"Current is the same run: its stored results, scored by today's rules{changed}. Nothing was run."


def _light(entry: CaseResult, known: dict[Hashable, _Terms]) -> CaseResult:
    """Give an entry with no more than a comparison reads; terms, of which there are few, are held once."""
    key = tuple((term["name"], term["effect"], term["value"]) for term in entry.terms)
    terms = tuple({"name": name, "effect": effect, "value": value} for name, effect, value in key)
    return replace(entry, record=None, payload=None, message="", answer=None, terms=known.setdefault(key, terms))


def _again(entry: CaseResult, result: Any, loaded: LoadedCase, context: SuiteContext) -> CaseResult:
    from pytest_packbench.engine.attempt import score_payload
    from pytest_packbench.engine.result_builder import CaseRef, build_result, unscored_result

    place = CaseRef(
        suite=context.suite,
        pack=context.pack,
        case_id=entry.case_id,
        nodeid=entry.nodeid,
        file=entry.file,
        folder=Path(entry.file).parent.name,
        loaded=loaded,
    )
    try:
        fresh = build_result(place, score_payload(context, loaded, result), context, "rescored")
    except Exception as error:  # noqa: BLE001 - a pack may be anybody's, and breaks one case as it does in a run
        message = f"the pack {context.pack.name} raised {describe_error(error)}"
        fresh = unscored_result(place, "error", "pack_error", message, timestamp=entry.timestamp)
    # who answered, and how long it took, is the stored run's to tell
    kept = {name: getattr(entry, name) for name in ("llm_backend", "llm_model", "cassette_sha256", "stale", "trial")}
    return replace(fresh, **kept, timestamp=entry.timestamp, duration_ms=entry.duration_ms)


def _cases(suite: Suite, pack: Pack) -> Callable[[str], LoadedCase | None]:
    """Give what reads a case of today by its id; None for one that is gone or can't be read."""
    from pytest_packbench.cases.files import CaseIndex, load_case
    from pytest_packbench.model.errors import CaseError
    from pytest_packbench.reports.terminal import printable

    index = CaseIndex(suite.cases_path)

    # trials of a case come one after the other
    @lru_cache(maxsize=1)
    def load(case_id: str) -> LoadedCase | None:
        place = index.find(case_id)
        if place is None:
            sys.stderr.write(f"packbench: left as it was: {case_id}: the suite has no such case any more\n")
            return None
        try:
            return load_case(place, pack.case_model, file=place.path, pack=pack.name)
        except CaseError as error:
            sys.stderr.write(f"packbench: left as it was: {printable(str(error))}\n")
            return None

    return load
