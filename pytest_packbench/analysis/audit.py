"""What the rules of a suite notice of broken results: counted by rule, by kind of change, by part and by case.

A broken result is a copy of a right one that differs from it in one respect. Making one takes no knowledge of a domain:
a result is JSON, and every part of it can be removed, emptied, changed or replaced.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.errors import json_pointer, pluralize
from pytest_packbench.model.score import UNREAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random

    from pytest_packbench.model.score import Score

AUDIT_VERSION = 1
INPUTS = ("empty", "shuffled", "another case's")
"""The inputs with which targets are run, in the order of reports."""
UNREADABLE = "(no score)"
"""What notices a result that the pack can't read, or that it gives no score."""

Points = dict[str, tuple[tuple[str, float], ...]]


class Scored(NamedTuple):
    """A scored result.

    Attributes:
        passed: whether the case passes.
        points: what each term does to the score, by its name; empty tuples for remarks.
        is_readable: whether the pack could read the result and give it a score.
    """

    passed: bool
    points: Points
    is_readable: bool = True

    @property
    def given(self) -> Points:
        """The points without remarks."""
        return {name: points for name, points in self.points.items() if points}


class AuditedCase(NamedTuple):
    """A case whose right result was broken, or could not be.

    Attributes:
        case_id: its id.
        file: its file, as it is shown.
        problem: why its result was not broken: it does not pass, or there is none; empty if it was.
        tried: the number of broken results.
        judged: those that could be read.
        passed: those with which the case still passes.
        passes_empty: whether it passes with an empty result.
    """

    case_id: str
    file: str
    problem: str = ""
    tried: int = 0
    judged: int = 0
    passed: int = 0
    passes_empty: bool = False


@dataclass(slots=True)
class Count:
    """How many broken results were tried, noticed, and made the case fail.

    Attributes:
        tried: all.
        noticed: those that change the score.
        failed: those with which the case fails.
        missing: of the noticed ones, those without the value that the rule reads.
        misshapen: of the noticed ones, those without it or with one of another type.
    """

    tried: int = 0
    noticed: int = 0
    failed: int = 0
    missing: int = 0
    misshapen: int = 0

    @property
    def share(self) -> float | None:
        """The share that was noticed; None if none was tried."""
        return self.noticed / self.tried if self.tried else None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A reason for which an audit fails.

    Attributes:
        kind: `rule`, `share`, `case`, `input` or `result`.
        name: the rule, the case, or the kind of input or of broken result.
        file: the file of a case; empty for others.
        message: one line: what was found and what to do.
    """

    kind: str
    name: str
    message: str
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class InputCount:
    """The cases that were run with another input.

    Attributes:
        kind: one of `INPUTS`.
        tried: the number of runs.
        passed: the cases that pass all the same, by id.
        errors: the number of runs without a score.
        different: of the runs with another case's input, those whose two cases expect different results.
        different_passed: of these, those that pass all the same.
    """

    kind: str
    tried: int
    passed: tuple[str, ...]
    errors: int
    different: int = 0
    different_passed: int = 0


@dataclass(kw_only=True)
class Audit:
    """What was found out about a suite.

    Attributes:
        suite: its name.
        pack: the name of its pack.
        source: where the right results come from, in a few words.
        seed: what chose the changes.
        count: the largest number of changed parts for a case.
        total: the number of cases of the suite.
        cases: the cases that were looked at.
        rules: by the name of a term or rule: the changes of what it reads.
        expectations: by key of `expected`: the changes of all results of cases that have it.
        kinds: by kind of change.
        parts: by part of the results, as a JSON pointer; `*` is any position in a list.
        other_results: the results of other cases that expect something else.
        inputs: the runs with other inputs; empty if the target can't be run without a model.
        inputs_note: why there are none; empty otherwise.
        findings: why the audit fails.
    """

    suite: str
    pack: str
    source: str
    seed: int
    count: int
    total: int = 0
    cases: list[AuditedCase] = field(default_factory=list)
    rules: dict[str, Count] = field(default_factory=dict)
    expectations: dict[str, Count] = field(default_factory=dict)
    kinds: dict[str, Count] = field(default_factory=dict)
    parts: dict[str, Count] = field(default_factory=dict)
    other_results: Count = field(default_factory=Count)
    inputs: list[InputCount] = field(default_factory=list)
    inputs_note: str = ""
    findings: list[Finding] = field(default_factory=list)

    @property
    def broken(self) -> list[AuditedCase]:
        """The cases whose result was broken."""
        return [case for case in self.cases if not case.problem]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"audit_version": AUDIT_VERSION, **asdict(self), "cases": [case._asdict() for case in self.cases]}


class Tally:
    """Counts what the rules of a suite notice.

    Args:
        criteria: the criteria that every answer of the suite is scored by: the name of the term of each, and the
            location of the part of the result that it reads. Other rules are those that occur.
    """

    def __init__(self, criteria: Mapping[str, Location]) -> None:
        self._criteria = criteria
        # of the case under way: its changes, and the rules that occur in it
        self._of_case: Counter[Location] = Counter()
        self._in_case: set[str] = set()
        self._right: Any = None
        # by rule, the changes of the cases in which it occurs
        self._changes: dict[str, Counter[Location]] = {name: Counter() for name in criteria}
        self._noticed: dict[str, Counter[Location]] = {name: Counter() for name in criteria}
        self._failed: Counter[str] = Counter()
        self._missing: Counter[str] = Counter()
        self._misshapen: Counter[str] = Counter()
        self._wrong: dict[str, Count] = {}
        self._expectations: dict[str, Count] = {}
        self._kinds = {kind: Count() for kind in KINDS}
        self._parts: dict[Location, Count] = {}
        self._unreadable = 0

    def start_case(self, right: Scored, result: Any) -> None:
        """Begin with the broken results of another case; its right result is given with its score."""
        self._right = result
        self._of_case.clear()
        self._in_case = {name for name, points in right.points.items() if points}

    def end_case(self) -> None:
        """Count the changes of the case for each rule that occurs in it."""
        for name in self._in_case:
            self._changes.setdefault(name, Counter()).update(self._of_case)

    def add_rule(self, name: str) -> None:
        """Add a rule for which no wrong result may be known."""
        self._wrong.setdefault(name, Count())

    def add(self, right: Scored, broken: Scored, change: Change, result: Any) -> None:
        """Count a broken result.

        Args:
            right: the score of the right result.
            broken: that of the broken one.
            change: how it was broken.
            result: the broken result.
        """
        failed = not broken.passed
        noticed = set(self._noticing(right, broken))
        is_seen = failed or bool(noticed)
        counts = [self._kinds[change.kind], self._parts.setdefault(change.part, Count())]
        if change.kind == WRONG:
            counts[1:] = [self._wrong.setdefault(change.rule, Count())]
        for count in counts:
            count.tried += 1
            count.noticed += is_seen
            count.failed += failed
        if change.kind == WRONG:
            return
        if not broken.is_readable:
            self._unreadable += 1
            return
        self._of_case[change.part] += 1
        self._in_case |= noticed
        for name in noticed:
            self._noticed.setdefault(name, Counter())[change.part] += 1
            self._failed[name] += failed
            if name in self._criteria:
                before, now = (_type_at(each, self._criteria[name]) for each in (self._right, result))
                self._missing[name] += now is None
                self._misshapen[name] += now is not before

    def add_expectation(self, key: str, right: Scored, without: Scored) -> None:
        """Count a broken result, scored with and without a key of `expected`."""
        count = self._expectations.setdefault(key, Count())
        count.tried += 1
        count.noticed += (right.passed, right.given) != (without.passed, without.given)
        count.failed += without.passed and not right.passed

    def _noticing(self, right: Scored, broken: Scored) -> Iterator[str]:
        """Yield the terms by which the score of a broken result differs."""
        if not broken.is_readable:
            return
        for name in right.points.keys() | broken.points.keys():
            # a criterion that is not applied, as in a refusal, has noticed nothing
            is_applied = name in broken.points or name not in self._criteria
            if is_applied and right.points.get(name, ()) != broken.points.get(name, ()):
                yield name

    def fill(self, audit: Audit) -> None:
        """Write the counts into an audit."""
        audit.rules = {name: self._rule(name) for name in self._names()}
        audit.rules |= self._wrong
        if self._unreadable:
            audit.rules[UNREADABLE] = Count(self._unreadable, self._unreadable, self._unreadable)
        audit.expectations = dict(sorted(self._expectations.items()))
        audit.kinds = {kind: count for kind, count in self._kinds.items() if count.tried}
        audit.parts = {json_pointer(part): count for part, count in sorted(self._parts.items(), key=_by_text) if part}

    def _names(self) -> list[str]:
        return [*self._criteria, *sorted(self._changes.keys() - self._criteria.keys())]

    def _rule(self, name: str) -> Count:
        """Count the changes of the parts that a rule reads; of one that noticed nothing, of all parts."""
        changes, noticed = self._changes[name], self._noticed.get(name, Counter())
        if name in self._criteria:
            read = [part for part in changes if _overlap(part, self._criteria[name])]
        else:
            read = list(noticed) if noticed else list(changes)
        tried = sum(changes[part] for part in read)
        return Count(tried, noticed.total(), self._failed[name], self._missing[name], self._misshapen[name])


def _by_text(item: tuple[Location, Count]) -> tuple[str, ...]:
    return tuple(map(str, item[0]))


def _overlap(part: Location, read: Location) -> bool:
    """Whether one part of a result is, or is in, the other."""
    return all(one in {other, ANY} or other == ANY for one, other in zip(part, read, strict=False))


def _type_at(result: Any, location: Location) -> type | None:
    """Return the type of the value at a location of a result; None if there is no value."""
    for key in location:
        if isinstance(result, list) and str(key).isdecimal() and int(key) < len(result):
            result = result[int(key)]
        elif isinstance(result, dict) and key in result:
            result = result[key]
        else:
            return None
    return type(result)


def conclude(audit: Audit, *, fail_under: float) -> None:
    """Write into an audit why it fails.

    Args:
        audit: with all counts.
        fail_under: the smallest share of the changes of what a rule reads that it has to notice, 0 to 1.
    """
    audit.findings = [
        *_rule_findings(audit.rules, fail_under),
        *_case_findings(audit.broken),
        *_result_findings(audit.other_results),
        *_input_findings(audit.inputs),
    ]


def _rule_findings(rules: Mapping[str, Count], fail_under: float) -> Iterator[Finding]:
    for name, count in rules.items():
        if count.tried and not count.noticed:
            message = f"noticed none of {pluralize(count.tried, 'broken result')}; make it stricter, or remove it"
            yield Finding(kind="rule", name=name, message=message)
        elif count.tried and count.noticed == count.missing:
            message = "noticed only missing values, and no wrong one; make it stricter, or remove it"
            yield Finding(kind="rule", name=name, message=message)
        elif count.share is not None and count.share < fail_under:
            message = f"noticed {count.noticed} of {count.tried} changes of what it reads, less than {fail_under:.0%}"
            yield Finding(kind="share", name=name, message=f"{message}; make it stricter")


def _case_findings(cases: Iterable[AuditedCase]) -> Iterator[Finding]:
    for case in cases:
        message = ""
        if case.judged and case.passed == case.judged:
            message = f"passes with all {case.judged} broken results that can be read; expect more, or remove the case"
        elif case.passes_empty:
            message = "passes with an empty result; expect something that an empty result does not have"
        if message:
            yield Finding(kind="case", name=case.case_id, message=message, file=case.file)


def _result_findings(others: Count) -> Iterator[Finding]:
    if others.tried > 1 and not others.failed:
        message = f"all {others.tried} results of another case pass, although the cases expect different results"
        yield Finding(kind="result", name=OTHER_RESULT, message=f"{message}; make the rules stricter")


def _input_findings(inputs: Sequence[InputCount]) -> Iterator[Finding]:
    for count in inputs:
        # words in another order may mean the same, and cases may be alike; one right guess shows nothing
        if count.kind == INPUTS[0] and count.tried > 1 and len(count.passed) == count.tried:
            message = f"all {count.tried} cases pass with {count.kind} input: the target does not read its input"
            yield Finding(kind="input", name=count.kind, message=f"{message}, or the cases can be guessed")
        elif count.different > 1 and count.different_passed == count.different:
            message = (
                f"all {count.different} cases pass with {count.kind} input, although they expect different results"
            )
            yield Finding(kind="input", name=count.kind, message=f"{message}; make the rules stricter")


def scored(score: Score | None) -> Scored:
    """Return what an audit compares of a score; None for a result that can't be read or scored."""
    if score is None or score.score is None or any(term.name in UNREAD for term in score.terms):
        return Scored(passed=False, points={}, is_readable=False)
    points: dict[str, list[tuple[str, float]]] = {}
    for term in score.terms:
        # the clamp follows from the other terms
        if term.effect != "clamp":
            entries = points.setdefault(term.name, [])
            # a remark and a term without points are the same
            if term.effect == "zero" or term.value:
                entries.append((term.effect, term.value))
    return Scored(passed=score.passed, points={name: tuple(sorted(entries)) for name, entries in points.items()})


def is_empty(change: Change) -> bool:
    """Whether a change leaves an empty result."""
    return change.kind == EMPTY


Location = tuple[str | int, ...]

EMPTY = "empty result"
OTHER_RESULT = "result of another case"
WRONG = "result that a rule forbids"
KINDS = (
    EMPTY,
    OTHER_RESULT,
    "all values emptied",
    "value removed",
    "value of another type",
    "value of another case",
    "text emptied",
    "text changed",
    "number changed",
    "true and false swapped",
    "list emptied",
    "list shortened",
    "expected value in the wrong place",
    WRONG,
)
"""The ways in which results are broken, in the order of reports."""

ANY = "*"
"""Stands for the position in a list."""
_OTHERS = 2
_VALUES = 50
_MAX_DEPTH = 100


class Change(NamedTuple):
    """One way to break a result.

    Attributes:
        kind: one of `KINDS`.
        location: the keys and positions of the part that changes; empty for the whole result.
        value: what replaces it.
        is_removed: whether it is removed instead.
        rule: the rule that has to notice it; empty if that is not known.
    """

    kind: str
    location: Location = ()
    value: Any = None
    is_removed: bool = False
    rule: str = ""

    @property
    def part(self) -> Location:
        """The location without positions in lists: the same part of the results of all cases."""
        return part_of(self.location)

    def apply(self, text: str) -> Any:
        """Return the broken copy of a result.

        Args:
            text: the result as JSON.
        """
        if not self.location:
            return json.loads(json.dumps(self.value))
        result = parent = json.loads(text)
        for step in self.location[:-1]:
            parent = parent[step]
        if self.is_removed:
            del parent[self.location[-1]]
        else:
            # a copy, so that a pack that changes its argument changes no other result
            parent[self.location[-1]] = json.loads(json.dumps(self.value))
        return result


def part_of(location: Location) -> Location:
    """Return a location without positions in lists."""
    return tuple(ANY if isinstance(step, int) else step for step in location)


class ResultBreaker:
    """Chooses changes for the results of a suite, so that each part of them is changed in each way.

    Args:
        results: the right results of all cases, as plain JSON.
        random: decides between equally good changes.
    """

    def __init__(self, results: Sequence[Any], random: Random) -> None:
        self._results = results
        self._random = random
        self._values: dict[Location, dict[str, Any]] = {}
        self._tried: Counter[tuple[str, Location]] = Counter()
        for result in results:
            for location, value in parts(result):
                if location and not isinstance(value, dict):
                    known = self._values.setdefault(part_of(location), {})
                    if len(known) < _VALUES:
                        known.setdefault(json.dumps(value, sort_keys=True), value)

    def changes(
        self, result: Any, expected: Any, wrong: Iterable[tuple[str, Any]], count: int
    ) -> tuple[list[Change], list[Change]]:
        """Choose among the changes of one result: those of the whole, and some of those of its parts.

        Args:
            result: the right result.
            expected: the key `expected` of its case.
            wrong: results that rules of the suite forbid, each with the name of its rule.
            count: the largest number of changes of parts, 1 or more.

        Returns:
            The chosen changes, the parts that were changed least so far first, and all others. After each of them the
            result differs.
        """
        text = json.dumps(result, sort_keys=True)
        whole = [change for change in self._whole(result, wrong) if json.dumps(change.value, sort_keys=True) != text]
        candidates = [
            (self._tried[change.kind, change.part], self._random.random(), position, change)
            for position, change in enumerate(self._partial(result, _leaves(expected)))
        ]
        ordered = [change for *_, change in sorted(candidates, key=lambda each: each[:3])]
        self._tried.update((change.kind, change.part) for change in ordered[:count])
        return whole + ordered[:count], ordered[count:]

    def _whole(self, result: Any, wrong: Iterable[tuple[str, Any]]) -> Iterator[Change]:
        yield Change(EMPTY, value=None)
        yield Change(EMPTY, value={})
        yield Change("all values emptied", value=_emptied(result))
        yield Change("value of another type", value=_of_another_type(result))
        for other in self._random.sample(self._results, min(_OTHERS, len(self._results))):
            yield Change(OTHER_RESULT, value=other)
        for rule, value in wrong:
            yield Change(WRONG, value=value, rule=rule)

    def _partial(self, result: Any, expected: Sequence[Any]) -> Iterator[Change]:
        for location, value in parts(result):
            if not location:
                continue
            if isinstance(location[-1], str):
                yield Change("value removed", location, is_removed=True)
            if value is not None:
                yield Change("value of another type", location, _of_another_type(value))
            yield from _own_changes(location, value)
            if isinstance(value, dict):
                continue
            own = json.dumps(value, sort_keys=True)
            others = [other for key, other in self._values.get(part_of(location), {}).items() if key != own]
            if others:
                yield Change("value of another case", location, self._random.choice(others))
            planted = [other for other in expected if _is_alike(other, value) and other != value]
            if planted:
                yield Change("expected value in the wrong place", location, self._random.choice(planted))


def parts(value: Any, location: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield every part of a JSON value with its location, the whole first."""
    yield location, value
    if len(location) < _MAX_DEPTH:
        members: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            members = value.items()
        elif isinstance(value, list):
            members = enumerate(value)
        for key, member in members:
            yield from parts(member, (*location, key))


def _of_another_type(value: Any) -> Any:
    return 1 if isinstance(value, str) else "text"


def _own_changes(location: Location, value: Any) -> Iterator[Change]:
    if isinstance(value, bool):
        yield Change("true and false swapped", location, not value)
    elif isinstance(value, int):
        yield Change("number changed", location, value + 1)
    elif isinstance(value, float):
        yield Change("number changed", location, value * 1.5 + 1)
    elif isinstance(value, str) and value:
        yield Change("text emptied", location, "")
        yield Change("text changed", location, value[:-1] + _next(value[-1]))
    elif isinstance(value, list) and value:
        yield Change("list emptied", location, [])
        if len(value) > 1:
            yield Change("list shortened", location, value[:-1])


def _next(character: str) -> str:
    """Return another character of the same kind."""
    if character.isdecimal():
        return str((int(character) + 1) % 10)
    return "x" if character != "x" else "y"


def _emptied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _emptied(member) for key, member in value.items()}
    if isinstance(value, str | list):
        return type(value)()
    if isinstance(value, bool):
        return False
    return None if value is None else 0


def _leaves(value: Any) -> list[Any]:
    return [part for _, part in parts(value) if isinstance(part, str | int | float) and not isinstance(part, bool)]


def _is_alike(one: Any, other: Any) -> bool:
    if isinstance(other, bool):
        return False
    return isinstance(one, str) if isinstance(other, str) else isinstance(one, int | float) and _is_number(other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def changed_input(kind: str, value: Any, random: Random) -> Any:
    """Return the input of a case with other content.

    Args:
        kind: `empty` (without any text or number) or `shuffled` (words of texts and members of lists in another order).
        value: the input, as plain JSON.
        random: decides about the order.
    """
    if kind == "empty":
        return _emptied(value)
    if isinstance(value, dict):
        return {key: changed_input(kind, member, random) for key, member in value.items()}
    if isinstance(value, list):
        members = [changed_input(kind, member, random) for member in value]
        random.shuffle(members)
        return members
    if isinstance(value, str):
        words = value.split()
        random.shuffle(words)
        return " ".join(words)
    return value
