"""`packbench audit`: derive controls from right results, and see which rules notice them. No model is called."""

from __future__ import annotations

import json
import os
import random
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_packbench.analysis.audit import AuditedCase, Change, changes, findings, points_of, rule_counts, unread_parts
from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import (
    add_packs,
    add_root,
    add_run_options,
    suite_and_pack,
    without_traces,
    write_file,
)
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.score import describe_score
from pytest_packbench.reports.terminal import one_line, text_table
from pytest_packbench.runs.folder import PAYLOADS, find_run_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext, SuiteContexts
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.suite import Suite

_Item = TypeVar("_Item")
AUDIT_VERSION = 2
_COUNT = 50
_CASES = 500
_PROGRESS = 50
# what is tried before a case counts as one that can't fail
_THOROUGH = 1000
# whose results are tried, of so many other cases
_OTHERS, _SAMPLE = 2, 20
_REPLAY = ("--packbench-mode=fixture", "-pno:cacheprovider")
# what a terminal shows of a list, and of a sentence
_MAX = 20
_SENTENCE = 1000


class _Refused(Exception):  # noqa: N818 - not an error: the result is only not right
    """A case has no right result; the message says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the name of the suite")
    parser.add_argument(
        "--run",
        type=Path,
        metavar="RUN",
        help="break the stored results of this run instead: its folder, or SUITE/latest",
    )
    parser.add_argument(
        "--count",
        type=_positive,
        default=_COUNT,
        metavar="N",
        help=f"the largest number of changed parts, one at a time, of the result of a case (default: {_COUNT})",
    )
    parser.add_argument(
        "--cases",
        type=_positive,
        default=_CASES,
        metavar="N",
        help=f"the largest number of cases, chosen by the seed (default: {_CASES})",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses cases and changes (default: 0)")
    parser.add_argument(
        "--fail-under",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="fail if a rule notices a smaller share of the changes of what it reads, 0 to 1 (default: 0)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all counts, cases and findings to this file as well"
    )
    add_run_options(parser, "gives the results")
    add_root(parser)
    add_packs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Break the results of a suite, and write which rules noticed it."""
    audit = _of_run(arguments) if arguments.run is not None else _of_recordings(arguments)
    if arguments.json is not None:
        write_file(arguments.json, json.dumps(audit, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.write("\n".join(_lines(audit)) + "\n")
    if all(case["problem"] for case in audit["cases"]):
        raise UsageError(f"suite {audit['suite']}: no case passes, so there is no right result to break; see above")
    return FAILED if audit["findings"] else FINE


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() and text.isascii() else 0
    if not number:
        raise ArgumentTypeError(f"got {text!r}, expected a whole number, 1 or more")
    return number


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ArgumentTypeError(f"got {text!r}, expected a number from 0 to 1")
    return share


def _of_recordings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Audit with the results of a run in fixture mode."""
    from pytest_packbench.engine.attempt import attempt
    from pytest_packbench.pytest_plugin.project import ProjectError, with_suite

    if arguments.packs:
        raise UsageError("--pack: only with --run; without it, packs of conftest.py and installed packages are used")
    root = [] if arguments.root is None else [f"--override-ini=packbench_root={arguments.root.resolve()}"]

    def use(suites: SuiteContexts, suite: Suite) -> dict[str, Any]:
        context = suites.context(suite)
        source = "recorded results" if context.caller.opaque else "results of the target"
        if context.asks_model:
            source += " on the recordings"
        return _audit(arguments, context, source, lambda loaded: attempt(context, loaded))

    try:
        with without_traces():
            return with_suite(arguments.suite, [*arguments.options, *root, *_REPLAY], use)
    except ProjectError as error:
        raise UsageError(str(error)) from None


def _of_run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Audit with the results that a run stored."""
    from pytest_packbench.engine.attempt import score_payload
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.runs.lines import read_payloads
    from pytest_packbench.runs.report import open_report

    if arguments.options:
        raise UsageError("--option: not with --run, whose results are stored")
    folder = find_run_folder(arguments.run)
    report = open_report(folder)
    suite, pack = suite_and_pack(arguments.suite, arguments, by_name=True)
    if report.run.suite.removeprefix(BUNDLED) != suite.record_name:
        raise UsageError(f'{folder}: a run of the suite "{report.run.suite}", expected one of "{suite.name}"')
    ids = {(result.case.test_id, result.attempt.trial): result.case.case_id for result in report.results}
    payloads: dict[str, Any] = {}
    for key, payload in read_payloads(folder / PAYLOADS):
        if key in ids:
            # the first of several trials
            payloads.setdefault(ids[key], payload)
    context = SuiteContext.of_results(suite, pack, report.run.target, redactor=Redactor(os.environ))

    def stored(loaded: LoadedCase) -> AttemptState:
        if loaded.case.id not in payloads:
            raise _Refused("the run has no result of it")
        return score_payload(context, loaded, payloads[loaded.case.id])

    return _audit(arguments, context, f"stored results of the run {folder}", stored)


def _audit(
    arguments: argparse.Namespace, context: SuiteContext, source: str, run: Callable[[LoadedCase], AttemptState]
) -> dict[str, Any]:
    """Break the result of each case, judge what comes of it, and return what was found out, as plain JSON.

    Args:
        arguments: of the command.
        context: of the suite.
        source: where the right results come from, in a few words.
        run: returns the attempt of a case; raises `_Refused` where there is none.
    """
    from pytest_packbench.cases.files import iter_cases

    chooser = random.Random(arguments.seed)  # noqa: S311 - chooses what to try, and keeps no secret
    locations = list(iter_cases(context.suite.cases_path))
    total = len(locations)
    if total > arguments.cases:
        chosen = chooser.sample(range(total), arguments.cases)
        locations = [locations[index] for index in sorted(chosen)]
    cases, passing = [], []
    for location in _with_progress("results", locations):
        case = AuditedCase(location.name, location.label(_shown(location.path)))
        cases.append(case)
        try:
            passing.append((case, _right_case(context, location, case, run)))
        except _Refused as reason:
            case.problem = str(reason)
    pack, config = context.pack, context.suite.config
    criteria, forbidding = pack.criteria(config), dict[str, None]()
    for case, loaded in _with_progress("broken results", passing):
        sample = chooser.sample(passing, min(_SAMPLE, len(passing)))
        others = [other.result for other, also in sample if also.case.expected != loaded.case.expected]
        ways = list(changes(case.result, others[:_OTHERS]))
        for rule, result in pack.wrong_results(loaded.case, case.result, config):
            forbidding[rule] = None
            if result is not None:
                ways.insert(0, Change("forbidden", replacement=json.dumps(result), rule=rule))
        chooser.shuffle(ways)
        # those of the whole result first; a stable order
        ways.sort(key=lambda change: bool(change.location))
        count = arguments.count + sum(not change.location for change in ways)
        _break(context, loaded, case, ways[:count], criteria)
        if case.passes_all:
            # whether another one is noticed
            _break(context, loaded, case, ways[count : count + _THOROUGH], criteria)
    audited = [case for case, _ in passing]
    rules = rule_counts(audited, criteria, forbidding)
    return {
        "audit_version": AUDIT_VERSION,
        "suite": context.suite.name,
        "pack": pack.name,
        "source": source,
        "seed": arguments.seed,
        "count": arguments.count,
        "total": total,
        "cases": [case.as_json() for case in cases],
        "rules": {name: count._asdict() for name, count in rules.items()},
        "unread_parts": unread_parts(audited),
        "findings": [finding._asdict() for finding in findings(audited, rules, fail_under=arguments.fail_under)],
    }


def _right_case(
    context: SuiteContext, location: CaseLocation, case: AuditedCase, run: Callable[[LoadedCase], AttemptState]
) -> LoadedCase:
    """Return a case, and note its right result and what each term adds to its score."""
    from pytest_packbench.cases.files import load_case
    from pytest_packbench.engine.controls import end_of
    from pytest_packbench.model.errors import CaseError

    try:
        loaded = load_case(location, context.pack.case_model, file=case.file, pack=context.pack.name)
    except CaseError as error:
        raise _Refused(str(error)) from None
    notes = loaded.case.notes
    if notes.skip is not None or notes.xfail is not None:
        raise _Refused(f"quarantined: {notes.skip or notes.xfail}")
    done = run(loaded)
    if done.failure is not None:
        raise _Refused(f"error: {done.failure.message}")
    if done.score is None or not done.score.passed:
        raise _Refused("no score" if done.score is None else done.score.message or describe_score(done.score))
    case.result, case.points = done.payload, points_of(end_of(context, done))
    return loaded


def _break(
    context: SuiteContext,
    loaded: LoadedCase,
    case: AuditedCase,
    changes: Iterable[Change],
    criteria: Mapping[str, tuple[str | int, ...]],
) -> None:
    """Derive a control by each change, and judge its end."""
    from pytest_packbench.engine.controls import end_of_control

    right = json.dumps(case.result)
    for change in changes:
        control = change.control(case.case_id, right)
        case.judge(change, control, end_of_control(context, loaded, control, source=case.file), criteria)


def _shown(path: str) -> str:
    """Return a path relative to the current folder if it is inside, else as it is."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def _with_progress(what: str, items: Sequence[_Item]) -> Iterator[_Item]:
    terminal = sys.__stderr__
    is_shown = len(items) > _PROGRESS and terminal is not None and terminal.isatty()
    for number, item in enumerate(items, start=1):
        if is_shown:
            print(f"\r{what}: {number} of {len(items)}", end="", file=terminal, flush=True)
        yield item
    if is_shown:
        print(file=terminal)


def _lines(audit: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an audit for a terminal."""
    cases, rules = audit["cases"], audit["rules"]
    problems = [_line(case["file"], case["problem"]) for case in cases if case["problem"]]
    passing = len(cases) - len(problems)
    looked = f"{len(cases)} of " if len(cases) < audit["total"] else ""
    passes = f"{passing:,} {'passes' if passing == 1 else 'pass'} with the {audit['source']}"
    yield _line(f"Audit of {audit['suite']}", "does the suite notice wrong results?")
    yield _line(f"{looked}{pluralize(audit['total'], 'case')}; {passes}.")
    title = f"Not audited, because there is no right result to break: {pluralize(len(problems), 'case')}"
    yield from _section(title, problems)
    if not passing:
        return
    tried, judged = (sum(case[key] for case in cases) for key in ("tried", "judged"))
    ways = f"{pluralize(tried, 'broken result')} (--seed {audit['seed']}, --count {audit['count']})"
    yield f"{ways}; {tried - judged} could not be read, so that they show nothing about a rule."
    rows = [
        (one_line(name), str(tried), *(f"{part} ({part / tried:.0%})" for part in (count["noticed"], count["failed"])))
        for name, count in rules.items()
        if (tried := count["tried"])
    ]
    table = text_table([("rule", "tried", "noticed", "case fails"), *rows], numbers=True)
    yield from _section("What the rules noticed, of the changes of what they read:", table, len(table))
    untried = [_line(name) for name, count in rules.items() if not count["tried"]]
    yield from _section("Rules that were not tried, because no result is known that they notice:", untried)
    title = "Parts of the results whose changes no rule noticed (is that what you want?):"
    yield from _section(title, [*map(_line, audit["unread_parts"])])
    found = [
        _line(f"{one['file']} ({one['name']})" if one["file"] else one["name"], one["message"])
        for one in audit["findings"]
    ]
    if not found:
        yield from ("", "No finding: every rule noticed something, and every case can fail.")
    yield from _section(f"{pluralize(len(found), 'finding')}:", found)


def _line(*texts: str) -> str:
    return one_line(": ".join(texts), _SENTENCE)


def _section(title: str, lines: Sequence[str], limit: int = _MAX) -> Iterator[str]:
    """Yield a title and the first lines below it; nothing without any."""
    if lines:
        yield from ("", title, *(f"  {line}" for line in lines[:limit]))
    if len(lines) > limit:
        yield f"  and {len(lines) - limit} more (all of them: --json FILE)"
