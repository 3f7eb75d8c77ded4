"""`packbench audit`: derive controls from right results by breaking them, and see which rules notice. Calls no model.

A broken result is a copy of a right one that differs from it in one respect. Making one takes no knowledge of a domain:
a result is JSON, and every part of it can be removed, emptied, changed or replaced. It ends as a control that a person
wrote.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.commands import FAILED, FINE, UsageError, add_run_options, add_shared, suite_and_pack, write_file
from pytest_packbench.model.errors import json_pointer, pluralize
from pytest_packbench.model.recording import ControlExpected, compare
from pytest_packbench.model.result import Term, describe_score
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.reports.blocks import Block, Points, Section, Table, Text, text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.cases.load import SuiteCase
    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import LoadedCase


Location = tuple[str | int, ...]
AUDIT_VERSION = 3
_COUNT = 50
_CASES = 500
# what is tried before a case counts as one that can't fail
_THOROUGH = 1000
# whose results are tried, of so many other cases
_OTHERS, _SAMPLE = 2, 20
# what a terminal shows of a list
_MAX = 20
_REMOVED, _EMPTIED, _OF_ANOTHER_CASE = "removed", "emptied", "that of another case"
_FAILS = ControlExpected(verdict="failed")
_NOTHING = object()
_MAX_DEPTH = 100


class Broken(NamedTuple):
    """One way to break a right result, and what came of it.

    Attributes:
        what: what becomes of the part, in a few words.
        location: the keys and positions of the part that changes; empty for the whole result.
        replacement: what replaces it, as JSON; None to remove it.
        rule: the rule of the suite that forbids the result; empty if none is known.
        passed: whether its case still passes.
        noticed: the terms by which the score differs from that of the right result.
        tested: the criteria that read another value in it than in the right result, and do read one.
    """

    what: str
    location: Location = ()
    replacement: str | None = None
    rule: str = ""
    passed: bool = False
    noticed: frozenset[str] = frozenset()
    tested: frozenset[str] = frozenset()

    @property
    def part(self) -> Location:
        """The location with `*` instead of positions in lists: the same part of the results of all cases."""
        return tuple("*" if isinstance(step, int) else step for step in self.location)

    def __str__(self) -> str:
        """Return what becomes of which part."""
        return f"{self.rule or json_pointer(self.location) or 'the result'}: {self.what}"

    def result(self, right: str) -> Any:
        """Return what the change makes of the right result, given as JSON: each has a copy that a pack may change."""
        root = [json.loads(right)]
        *steps, last = (0, *self.location)
        parent: Any = root
        for step in steps:
            parent = parent[step]
        if self.replacement is None:
            del parent[last]
        else:
            parent[last] = json.loads(self.replacement)
        return root[0]


@dataclass(slots=True)
class AuditedCase:
    """A case whose right result is broken, or which has none.

    Attributes:
        case: the case.
        problem: why there is no right result: it does not pass, or can't be read; empty if there is one.
        loaded: its content; not set if it can't be read.
        result: its right result, as plain JSON.
        effects: what changes the score of its right result.
        terms: the names of those that add something, or noticed a change of something.
        tried: the number of broken results.
        broken: those that could be read; the others show nothing about any rule.
    """

    case: SuiteCase
    problem: str
    loaded: LoadedCase = field(init=False)
    result: Any = None
    effects: Counter[tuple[str, str, float]] = field(default_factory=Counter)
    terms: set[str] = field(default_factory=set)
    tried: int = 0
    broken: list[Broken] = field(default_factory=list)

    @property
    def passes_all(self) -> bool:
        """Whether it passes with every broken result; also if there is none."""
        return all(one.passed for one in self.broken)

    def break_result(self, context: SuiteContext, ways: Iterable[Broken], criteria: Mapping[str, Location]) -> None:
        """Derive a control by each of these ways, and compare its end with that of the right result.

        Args:
            context: of the suite.
            ways: how the result is broken.
            criteria: the location of what each criterion of the suite reads.
        """
        from pytest_packbench.engine.attempt import score_payload

        right = json.dumps(self.result)
        for way in ways:
            result = way.result(right)
            score = score_payload(context, self.loaded, result).score
            self.tried += 1
            if score is None or (not score.passed and any(row.deviation for row in compare(_FAILS, score))):
                continue
            # a criterion that is not applied, as in a refusal, has noticed nothing
            applied = {term.name for term in score.terms}
            effects = effects_of(score.terms)
            changed = (self.effects - effects) + (effects - self.effects)
            noticed = frozenset(name for name, *_ in changed if name in applied or name not in criteria)
            tested = frozenset(
                name
                for name, location in criteria.items()
                if _value_at(result, location) not in (_NOTHING, _value_at(self.result, location))
            )
            self.terms |= set() if way.rule else noticed
            self.broken.append(way._replace(passed=score.passed, noticed=noticed, tested=tested))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, with the broken results that nothing noticed enough for the case to fail."""
        return {
            "case_id": self.case.at.name,
            "file": self.case.location,
            "problem": self.problem,
            "tried": self.tried,
            "judged": len(self.broken),
            "passed": [str(one) for one in self.broken if one.passed],
        }


class Count(NamedTuple):
    """What a rule noticed of the broken results that test it.

    Attributes:
        tried: their number.
        noticed: those that it gives other points.
        failed: of the noticed ones, those with which the case fails.
    """

    tried: int
    noticed: int
    failed: int


class Finding(NamedTuple):
    """A reason for which an audit fails.

    Attributes:
        kind: `rule`, `share`, `result` or `case`.
        name: the rule, the case, or the kind of broken result.
        message: one line: what was found and what to do.
        file: the file of a case; empty for others.
    """

    kind: str
    name: str
    message: str
    file: str = ""


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
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
        type=int,
        default=_COUNT,
        metavar="N",
        help=f"the largest number of changed parts, one at a time, of the result of a case (default: {_COUNT})",
    )
    parser.add_argument(
        "--cases",
        type=int,
        default=_CASES,
        metavar="N",
        help=f"the largest number of cases, chosen by the seed (default: {_CASES})",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses cases and changes (default: 0)")
    parser.add_argument(
        "--fail-under",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="fail if a rule notices a smaller share of the changes of what it reads, 0 to 1 (default: 0)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all counts, cases and findings to this file as well"
    )
    add_run_options(parser, "gives the results")
    add_shared(parser, "--root", "--pack")


def run_audit(arguments: argparse.Namespace) -> int:
    """Break the results of a suite, and write which rules noticed it."""
    if min(arguments.count, arguments.cases) < 1 or not 0 <= arguments.fail_under <= 1:
        raise UsageError("audit: expected --count and --cases of 1 or more, and --fail-under from 0 to 1")
    audit = _of_run(arguments) if arguments.run is not None else _of_recordings(arguments)
    if arguments.json is not None:
        write_file(arguments.json, json.dumps(audit, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.write("\n".join(text(_blocks(audit))) + "\n")
    if all(case["problem"] for case in audit["cases"]):
        raise UsageError(f"suite {audit['suite']}: no case passes, so there is no right result to break; see above")
    return FAILED if audit["findings"] else FINE


def _of_recordings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Audit with the results of a run in fixture mode."""
    from pytest_packbench.engine.attempt import attempt
    from pytest_packbench.pytest_plugin.project import with_suite

    if arguments.packs:
        raise UsageError("--pack: only with --run; without it, packs of conftest.py and installed packages are used")

    def use(context: SuiteContext) -> dict[str, Any]:
        source = "recorded results" if context.caller.opaque else "results of the target"
        return _audit(arguments, context, source, lambda loaded: attempt(context, loaded))

    return with_suite(arguments.suite, arguments.options, use, root=arguments.root)


def _of_run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Audit with the results that a run stored."""
    from pytest_packbench.engine.attempt import score_payload
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.runs.folder import find_run_folder
    from pytest_packbench.runs.reading import open_run

    if arguments.options:
        raise UsageError("--option: not with --run, whose results are stored")
    folder = find_run_folder(arguments.run)
    report = open_run(folder, complete=True)
    suite, pack = suite_and_pack(arguments.suite, arguments, by_name=True)
    if report.run.suite.removeprefix(BUNDLED) != suite.record_name:
        raise UsageError(f'{folder}: a run of the suite "{report.run.suite}", expected one of "{suite.name}"')
    payloads: dict[str, Any] = {}
    for result in report.results:
        # the first of several trials; a target that returned nothing has none
        if result.attempt.payload is not None:
            payloads.setdefault(result.case.case_id, result.attempt.payload)
    context = SuiteContext.of_results(suite, pack, report.run.target, redactor=Redactor(os.environ))

    def stored(loaded: LoadedCase) -> AttemptState | None:
        case_id = loaded.case.id
        return score_payload(context, loaded, payloads[case_id]) if case_id in payloads else None

    return _audit(arguments, context, f"stored results of the run {folder}", stored)


def _audit(
    arguments: argparse.Namespace, context: SuiteContext, source: str, run: Callable[[LoadedCase], AttemptState | None]
) -> dict[str, Any]:
    """Break the result of each case, judge what comes of it, and return what was found out, as plain JSON.

    Args:
        arguments: of the command.
        context: of the suite.
        source: where the right results come from, in a few words.
        run: returns the attempt of a case; None where there is none.
    """
    from pytest_packbench.cases.load import suite_cases
    from pytest_packbench.engine.contexts import shown_path

    chooser = random.Random(arguments.seed)  # noqa: S311 - chooses what to try, and keeps no secret
    every = suite_cases(context.suite, context.pack, lambda path: shown_path(path, Path.cwd()))
    total = len(every)
    chosen = range(total) if total <= arguments.cases else sorted(chooser.sample(range(total), arguments.cases))
    cases = [_right_case(every[index], run) for index in chosen]
    right = [case for case in cases if not case.problem]
    pack, config = context.pack, context.suite.config
    criteria, forbidding = pack.tools().criteria(config), dict[str, None]()
    for case in right:
        expected = case.loaded.case.expected
        sample = chooser.sample(right, min(_SAMPLE, len(right)))
        others = [other.result for other in sample if other.loaded.case.expected != expected]
        ways = list(ways_to_break(case.result, others[:_OTHERS]))
        for rule, result in pack.tools().wrong_results(case.loaded.case, case.result, config):
            forbidding[rule] = None
            if result is not None:
                ways.insert(0, Broken("forbidden", replacement=json.dumps(result), rule=rule))
        chooser.shuffle(ways)
        # those of the whole result first; a stable order
        ways.sort(key=lambda way: bool(way.location))
        count = arguments.count + sum(not way.location for way in ways)
        case.break_result(context, ways[:count], criteria)
        if case.passes_all:
            # whether another one is noticed
            case.break_result(context, ways[count : count + _THOROUGH], criteria)
    rules = rule_counts(right, criteria, forbidding)
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
        "findings": [finding._asdict() for finding in findings(right, rules, fail_under=arguments.fail_under)],
    }


def _right_case(case: SuiteCase, run: Callable[[LoadedCase], AttemptState | None]) -> AuditedCase:
    """Return a case with its right result and what each term adds to its score, or with the reason why it has none."""
    audited = AuditedCase(case, case.problem)
    if case.problem or case.loaded is None:
        return audited
    audited.loaded = case.loaded
    excluded = case.loaded.case.notes.skip or case.loaded.case.notes.xfail
    done = None if excluded else run(case.loaded)
    if excluded:
        audited.problem = f"quarantined: {excluded}"
    elif done is None:
        audited.problem = "the run has no result of it"
    elif done.failure is not None:
        audited.problem = f"error: {done.failure.message}"
    elif done.score is None or not done.score.passed:
        audited.problem = "no score" if done.score is None else done.score.message or describe_score(done.score)
    else:
        audited.result, audited.effects = done.payload, effects_of(done.score.terms)
        audited.terms = {name for name, *_ in audited.effects}
    return audited


def effects_of(terms: Iterable[Term]) -> Counter[tuple[str, str, float]]:
    """Return what changes a score, how often each: name, effect and points of its terms, without the clamp."""
    # the clamp follows from the other terms
    effects = ((term.name, term.effect, term.value) for term in terms if term.effect != "clamp")
    return Counter(effect for effect in effects if effect[1] == "zero" or effect[2])


def rule_counts(
    cases: Sequence[AuditedCase], criteria: Mapping[str, Location], forbidding: Iterable[str]
) -> dict[str, Count]:
    """Count what each rule noticed: criteria, rules that forbid something, and terms that occurred.

    Args:
        cases: the audited cases.
        criteria: the location of what each criterion of the suite reads.
        forbidding: the rules that forbid something, also those for which no wrong result is known.
    """
    occurring = (name for case in cases for name in sorted(case.terms))
    names = dict.fromkeys((*criteria, *forbidding, *occurring))
    return {name: _count(name, cases, is_criterion=name in criteria) for name in names}


def _count(name: str, cases: Iterable[AuditedCase], *, is_criterion: bool) -> Count:
    results = [one for case in cases for one in case.broken if (one.rule == name if one.rule else name in case.terms)]
    # what a term reads is known once it notices a change there
    parts = {one.part for one in results if name in one.noticed}
    tried = [one for one in results if (name in one.tested if is_criterion else one.part in parts or not parts)]
    noticed = [one for one in tried if (one.noticed or not one.passed if one.rule else name in one.noticed)]
    return Count(len(tried), len(noticed), sum(not one.passed for one in noticed))


def findings(cases: Sequence[AuditedCase], rules: Mapping[str, Count], *, fail_under: float) -> Iterator[Finding]:
    """Yield why an audit fails.

    Args:
        cases: the audited cases.
        rules: what each rule noticed.
        fail_under: the smallest share of the broken results that test a rule that it has to notice, 0 to 1.
    """
    for name, count in rules.items():
        if count.tried and not count.noticed:
            message = f"noticed none of {pluralize(count.tried, 'broken result')}; make it stricter, or remove it"
            yield Finding("rule", name, message)
        elif count.noticed < count.tried * fail_under:
            message = f"noticed {count.noticed} of {count.tried} changes of what it reads, less than {fail_under:.0%}"
            yield Finding("share", name, f"{message}; make it stricter")
    others = [one.passed for case in cases for one in case.broken if one[:2] == (_OF_ANOTHER_CASE, ())]
    if len(others) > 1 and all(others):
        message = f"all {len(others)} results of another case pass, although the cases expect different results"
        yield Finding("result", "result of another case", f"{message}; make the rules stricter")
    for case in cases:
        if case.broken and case.passes_all:
            message = f"passes with all {len(case.broken)} broken results that can be read"
            yield Finding("case", case.case.at.name, f"{message}; expect more, or remove the case", case.case.location)
        elif any(one.passed and not one.location and one.what in {_REMOVED, _EMPTIED} for one in case.broken):
            message = "passes with an empty result; expect something that an empty result does not have"
            yield Finding("case", case.case.at.name, message, case.case.location)


def ways_to_break(result: Any, others: Sequence[Any]) -> Iterator[Broken]:
    """Yield the ways to break a result, those of the whole first; after each of them it differs.

    Args:
        result: the right result, as plain JSON.
        others: right results of cases that expect something else: what replaces it, or a part of it.
    """
    for location, value in parts(result):
        if not location:
            yield Broken(_REMOVED, replacement="null")
        elif isinstance(location[-1], str):
            yield Broken(_REMOVED, location)
        for what, changed in _other_values(value):
            yield Broken(what, location, json.dumps(changed))
        for other in others:
            changed = _value_at(other, location)
            if changed not in (_NOTHING, value):
                yield Broken(_OF_ANOTHER_CASE, location, json.dumps(changed))


def parts(value: Any, location: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield every part of a JSON value with its location, the whole first."""
    yield location, value
    members: Iterable[tuple[str | int, Any]] = ()
    if len(location) < _MAX_DEPTH:
        members = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for key, member in members:
        yield from parts(member, (*location, key))


def _other_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield values that differ from a value, each with what becomes of it."""
    if value is not None:
        yield "of another type", 1 if isinstance(value, str) else "text"
    if isinstance(value, str | list | dict) and value:
        yield _EMPTIED, type(value)()
    if isinstance(value, bool):
        yield "swapped", not value
    elif isinstance(value, int | float):
        yield "changed", value + (1 if isinstance(value, int) else 1 + abs(value))
    elif isinstance(value, str) and value:
        # the neighbour of a digit is a digit
        yield "changed", value[:-1] + chr(ord(value[-1]) ^ 1)
    elif isinstance(value, list) and len(value) > 1:
        yield "shortened", value[:-1]


def _value_at(result: Any, location: Location) -> Any:
    """Return the value at a location of a result; `_NOTHING` if there is none."""
    try:
        for key in location:
            result = result[int(key) if isinstance(result, list) else key]
    except (LookupError, TypeError, ValueError):
        return _NOTHING
    return result


def _blocks(audit: Mapping[str, Any]) -> Iterator[Block]:
    """Yield what an audit says on a terminal."""
    cases, rules = audit["cases"], audit["rules"]
    problems = [f"{case['file']}: {case['problem']}" for case in cases if case["problem"]]
    passing = len(cases) - len(problems)
    looked = f"{len(cases)} of " if len(cases) < audit["total"] else ""
    passes = f"{passing:,} {'passes' if passing == 1 else 'pass'} with the {audit['source']}"
    yield Text(f"Audit of {audit['suite']}: does the suite notice wrong results?")
    yield Text(f"{looked}{pluralize(audit['total'], 'case')}; {passes}.")
    yield _list(
        f"Not audited, because there is no right result to break ({pluralize(len(problems), 'case')})", problems
    )
    if not passing:
        return
    tried, judged = (sum(case[key] for case in cases) for key in ("tried", "judged"))
    ways = f"{pluralize(tried, 'broken result')} (--seed {audit['seed']}, --count {audit['count']})"
    yield Text(f"{ways}; {tried - judged} could not be read, so that they show nothing about a rule.")
    rows = [
        (name, count["tried"], *(f"{count[key]} ({count[key] / count['tried']:.0%})" for key in ("noticed", "failed")))
        for name, count in rules.items()
        if count["tried"]
    ]
    head = ("rule", "tried", "noticed", "case fails")
    yield Table("What the rules noticed, of the changes of what they read", head, rows, numbers=(1, 2, 3))
    untried = [name for name, count in rules.items() if not count["tried"]]
    yield _list("Rules that were not tried, because no result is known that they notice", untried)
    found = [
        f"{one['file']} ({one['name']}): {one['message']}" if one["file"] else f"{one['name']}: {one['message']}"
        for one in audit["findings"]
    ]
    if not found:
        yield Section("", [Text("No finding: every rule noticed something, and every case can fail.")])
    yield _list(pluralize(len(found), "finding"), found)


def _list(title: str, lines: Sequence[str]) -> Section:
    """Return the first of some lines under a title; nothing is shown without any."""
    more = [f"and {len(lines) - _MAX} more (all of them: --json FILE)"] if len(lines) > _MAX else []
    return Section(title, [Points([*lines[:_MAX], *more])])
