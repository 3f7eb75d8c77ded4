"""`packbench rescore`: today's rules on stored results, without running anything."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.places import add_root, find_suite, run_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_packbench.cases.load import LoadedCase
    from pytest_packbench.cases.suite import Suite
    from pytest_packbench.engine.attempt import Bench
    from pytest_packbench.engine.protocols.pack import Pack
    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.stored import StoredRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, help="the run's folder, or SUITE/latest")
    add_root(parser)
    parser.add_argument("--out", type=Path, help="write the page there instead of printing it")
    parser.add_argument("--fail-on", metavar="CONDITIONS", help='such as "regressed>0, mean<-0.02" (points of score)')


def run(arguments: argparse.Namespace) -> int:
    """Score the stored results again and print how the scores change."""
    from pytest_packbench.records.stored import StoredRun, load_run
    from pytest_packbench.reports.comparison import compare
    from pytest_packbench.reports.condition import parse_conditions
    from pytest_packbench.reports.diff import diff_markdown
    from pytest_packbench.reports.files import write_atomic

    folder = run_folder(arguments.run)
    stored = load_run(folder)
    suite = find_suite(stored.run.suite, arguments.root)
    entries = tuple(rescored(stored, folder / "payloads.jsonl", suite))
    pack = _pack(suite)
    now = replace(stored.run, suite_sha256=suite.sha256, pack=pack.name, pack_version=pack.version)
    comparison = compare(stored, StoredRun(source=f"{folder} rescored", run=now, entries=entries))
    figures = comparison.counts()
    conditions = parse_conditions(arguments.fail_on, figures) if arguments.fail_on is not None else ()
    failed = [condition for condition in conditions if condition.holds(figures)]
    page = diff_markdown(replace(comparison, differences=()), failed)
    if arguments.out is None:
        sys.stdout.write(page)
    else:
        write_atomic(arguments.out, page)
    return FAILED if failed else FINE


def rescored(stored: StoredRun, payloads: Path, suite: Suite) -> Iterator[Entry]:
    """Score each stored result by the suite's rules of today, against the case as it is today.

    Args:
        stored: the run.
        payloads: its stored results.
        suite: the suite.

    Yields:
        One entry for each entry of the run: scored again where its result was stored and its case is still
        there, the stored one otherwise.

    Raises:
        UsageError: the run kept no results, or a line of them can't be read.
    """
    from pytest_packbench.engine.attempt import Bench
    from pytest_packbench.engine.targets import Caller

    results = dict(_results(payloads))
    pack = _pack(suite)
    bench = Bench(suite=suite, pack=pack, caller=Caller(_never), target_name=stored.run.target)
    cases = dict(_cases(suite, pack))
    for entry in stored.entries:
        key = (entry.test_id, entry.trial)
        loaded = cases.get(entry.case_id)
        yield entry if key not in results or loaded is None else _again(entry, results[key], loaded, bench)


def _again(entry: Entry, result: Any, loaded: LoadedCase, bench: Bench) -> Entry:
    from pytest_packbench.engine.attempt import rejudge
    from pytest_packbench.engine.entries import Place, entry_of

    place = Place(
        suite=bench.suite,
        pack=bench.pack,
        case_id=entry.case_id,
        nodeid=entry.nodeid,
        file=entry.file,
        folder=Path(entry.file).parent.name,
        loaded=loaded,
    )
    fresh, _ = entry_of(place, rejudge(bench, loaded, result), bench, "rescored")
    # who answered, and how long it took, is the stored run's to tell
    kept = {name: getattr(entry, name) for name in ("llm_backend", "llm_model", "cassette_sha256", "stale", "trial")}
    return replace(fresh, **kept, timestamp=entry.timestamp, duration_ms=entry.duration_ms)


def _never(_request: object) -> None:
    raise RuntimeError("a stored result is scored without running its target")


def _pack(suite: Suite) -> Pack:
    from pytest_packbench.packs import builtin

    return builtin()[suite.config.pack].for_suite(suite.config)


def _cases(suite: Suite, pack: Pack) -> Iterator[tuple[str, LoadedCase]]:
    from pytest_packbench.cases.load import parse_case
    from pytest_packbench.cases.problem import CaseError

    for path in sorted(suite.cases_path.rglob("*.json")):
        try:
            loaded = parse_case(
                path.read_bytes(), pack.case_model, source=str(path), stem=path.stem, pack=suite.config.pack
            )
        except CaseError as error:
            sys.stderr.write(f"packbench: left as it was: {error}\n")
            continue
        yield path.stem, loaded


def _results(path: Path) -> Iterator[tuple[tuple[str, int], Any]]:
    if not path.is_file():
        raise UsageError(f"{path}: the run kept no results; nothing can be scored again")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                data = json.loads(line)
                yield (str(data["test_id"]), int(data.get("trial", 0))), data["result"]
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{path}:{number}: not a stored result: {error}") from None
