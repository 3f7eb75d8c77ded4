"""Controls that are derived from right results by breaking them, and what the rules of a suite notice of them.

A broken result is a copy of a right one that differs from it in one respect. Making one takes no knowledge of a domain:
a result is JSON, and every part of it can be removed, emptied, changed or replaced. Its end is judged as that of a
control that a person wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.control import Control, ControlEnd, ControlExpected, compare
from pytest_packbench.model.errors import json_pointer, pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Location = tuple[str | int, ...]
Points = dict[str, float]

_REMOVED, _EMPTIED, _OF_ANOTHER_CASE = "removed", "emptied", "that of another case"
_FAILS = ControlExpected(verdict="failed")
_NOTHING = object()
_MAX_DEPTH = 100


class Change(NamedTuple):
    """One way to break a result.

    Attributes:
        what: what becomes of the part, in a few words.
        location: the keys and positions of the part that changes; empty for the whole result.
        replacement: what replaces it, as JSON; None to remove it.
        rule: the rule of the suite that forbids the result; empty if none is known.
    """

    what: str
    location: Location = ()
    replacement: str | None = None
    rule: str = ""

    @property
    def part(self) -> Location:
        """The location with `*` instead of positions in lists: the same part of the results of all cases."""
        return tuple("*" if isinstance(step, int) else step for step in self.location)

    @property
    def description(self) -> str:
        """What becomes of which part."""
        return f"{self.rule or json_pointer(self.location) or 'the result'}: {self.what}"

    def control(self, case_id: str, right: str) -> Control:
        """Return the control that is derived by the change: its case has to fail.

        Args:
            case_id: the id of its case.
            right: the right result as JSON; each control has a copy of its own, which a pack may change.
        """
        root: dict[Any, Any] = {"": json.loads(right)}
        parent: Any = root
        *steps, last = ("", *self.location)
        for step in steps:
            parent = parent[step]
        if self.replacement is None:
            del parent[last]
        else:
            parent[last] = json.loads(self.replacement)
        return Control.model_construct(
            id=case_id, case=case_id, description=self.description, expected=_FAILS, payload=root.get("")
        )


class BrokenResult(NamedTuple):
    """What came of a derived control whose answer the pack could read.

    Attributes:
        change: how the result was broken.
        passed: whether its case still passes.
        noticed: the terms by which the score differs from that of the right result.
        tested: the criteria that read another value in it than in the right result, and do read one.
    """

    change: Change
    passed: bool
    noticed: frozenset[str]
    tested: frozenset[str]

    @property
    def is_seen(self) -> bool:
        """Whether anything noticed it."""
        return bool(self.noticed) or not self.passed


@dataclass(slots=True)
class AuditedCase:
    """A case whose right result was broken, or could not be.

    Attributes:
        case_id: its id.
        file: its file, as it is shown.
        problem: why its result was not broken: it does not pass, or there is none; empty if it was.
        result: its right result, as plain JSON.
        points: what each term adds to the score of its right result.
        broken: the broken results that could be read.
        unread: the number of those that could not: they show nothing about any rule.
    """

    case_id: str
    file: str
    problem: str = ""
    result: Any = None
    points: Points = field(default_factory=dict)
    broken: list[BrokenResult] = field(default_factory=list)
    unread: int = 0

    @property
    def passes_all(self) -> bool:
        """Whether it passes with every broken result; also if there is none."""
        return all(one.passed for one in self.broken)

    def judge(self, change: Change, control: Control, end: ControlEnd, criteria: Mapping[str, Location]) -> None:
        """Add a broken result: compare the end of its control with what it expects, and with the right result.

        Args:
            change: how it was broken.
            control: the control that was derived.
            end: how the control ended.
            criteria: the location of what each criterion of the suite reads.
        """
        passed = end.score.verdict == "passed"
        if not passed and any(row.deviation for row in compare(control.expected, end)):
            self.unread += 1
            return
        points = points_of(end)
        # a criterion that is not applied, as in a refusal, has noticed nothing
        names = points.keys() | (self.points.keys() - criteria.keys())
        noticed = frozenset(name for name in names if self.points.get(name, 0.0) != points.get(name, 0.0))
        tested = frozenset(
            name
            for name, location in criteria.items()
            if _value_at(control.payload, location) not in (_NOTHING, _value_at(self.result, location))
        )
        self.broken.append(BrokenResult(change, passed, noticed, tested))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, with the broken results that nothing noticed enough for the case to fail."""
        return {
            "case_id": self.case_id,
            "file": self.file,
            "problem": self.problem,
            "tried": len(self.broken) + self.unread,
            "judged": len(self.broken),
            "passed": [one.change.description for one in self.broken if one.passed],
        }


def points_of(end: ControlEnd) -> Points:
    """Return what each term adds to a score, by its name; 0 for a remark."""
    points: Points = {}
    for term in end.score.terms:
        # the clamp follows from the other terms
        if term.effect != "clamp":
            value = float("-inf") if term.effect == "zero" else term.value
            points[term.name] = points.get(term.name, 0.0) + value
    return points


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


def rule_counts(
    cases: Sequence[AuditedCase], criteria: Mapping[str, Location], forbidding: Iterable[str]
) -> dict[str, Count]:
    """Count what each rule noticed: criteria, rules that forbid something, and terms that occurred.

    Args:
        cases: the audited cases.
        criteria: the location of what each criterion of the suite reads.
        forbidding: the rules that forbid something, also those for which no wrong result is known.
    """
    found: dict[str, list[BrokenResult]] = {name: [] for name in (*criteria, *forbidding)}
    for case in cases:
        occurring = {name for name, points in case.points.items() if points}
        occurring.update(*(one.noticed for one in case.broken if not one.change.rule))
        for one in case.broken:
            for name in [one.change.rule] if one.change.rule else sorted(occurring):
                found.setdefault(name, []).append(one)
    return {name: _count(name, results, is_criterion=name in criteria) for name, results in found.items()}


def _count(name: str, results: Sequence[BrokenResult], *, is_criterion: bool) -> Count:
    # what a term reads is known once it notices a change there
    parts = {one.change.part for one in results if name in one.noticed}
    tried = [one for one in results if (name in one.tested if is_criterion else one.change.part in parts or not parts)]
    noticed = [one for one in tried if (one.is_seen if one.change.rule else name in one.noticed)]
    return Count(len(tried), len(noticed), sum(not one.passed for one in noticed))


def unread_parts(cases: Iterable[AuditedCase]) -> list[str]:
    """Return the parts of results whose changes no rule noticed, as JSON pointers, without parts of such parts."""
    general = [one for case in cases for one in case.broken if not one.change.rule]
    seen = {one.change.part for one in general if one.is_seen}
    read = {part[:depth] for part in seen for depth in range(len(part) + 1)}
    unread = {one.change.part for one in general} - read
    outermost = (part for part in unread if not any(part[:depth] in unread for depth in range(len(part))))
    return sorted(map(json_pointer, outermost))


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
    whole = [(case, one) for case in cases for one in case.broken if not one.change.location]
    others = [one.passed for _, one in whole if one.change.what == _OF_ANOTHER_CASE]
    if len(others) > 1 and all(others):
        message = f"all {len(others)} results of another case pass, although the cases expect different results"
        yield Finding("result", "result of another case", f"{message}; make the rules stricter")
    empty = {case.case_id for case, one in whole if one.passed and one.change.what in {_REMOVED, _EMPTIED}}
    for case in cases:
        if case.broken and case.passes_all:
            message = f"passes with all {len(case.broken)} broken results that can be read"
            yield Finding("case", case.case_id, f"{message}; expect more, or remove the case", case.file)
        elif case.case_id in empty:
            message = "passes with an empty result; expect something that an empty result does not have"
            yield Finding("case", case.case_id, message, case.file)


def changes(result: Any, others: Sequence[Any]) -> Iterator[Change]:
    """Yield the ways to break a result, those of the whole first; after each of them it differs.

    Args:
        result: the right result, as plain JSON.
        others: right results of cases that expect something else: what replaces it, or a part of it.
    """
    for location, value in parts(result):
        if not location:
            yield Change(_REMOVED, replacement="null")
        elif isinstance(location[-1], str):
            yield Change(_REMOVED, location)
        for what, changed in _other_values(value):
            yield Change(what, location, json.dumps(changed))
        for other in others:
            changed = _value_at(other, location)
            if changed not in (_NOTHING, value):
                yield Change(_OF_ANOTHER_CASE, location, json.dumps(changed))


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
