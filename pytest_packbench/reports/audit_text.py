"""The text of an audit: what was broken, what noticed it, and what to do."""

from __future__ import annotations

from itertools import groupby, islice
from typing import TYPE_CHECKING

from pytest_packbench.analysis.audit import UNREADABLE
from pytest_packbench.analysis.formatting import format_percent
from pytest_packbench.analysis.listing import name_some
from pytest_packbench.model.errors import pluralize
from pytest_packbench.reports.terminal import one_line, text_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.analysis.audit import Audit, Count

_MAX = 20
_SENTENCE = 1000
_HEADINGS = {
    "rule": "Rules that notice nothing:",
    "share": "Rules that notice too little:",
    "case": "Cases that can't fail, or pass with an empty result:",
    "result": "Results of other cases that pass:",
    "input": "Other inputs with which all cases pass:",
}


def audit_lines(audit: Audit) -> Iterator[str]:
    """Yield the lines of an audit for a terminal."""
    broken = audit.broken
    tried = sum(case.tried for case in broken)
    yield one_line(f"Audit of {audit.suite}: does the suite notice wrong results?", _SENTENCE)
    looked = f"{len(audit.cases)} of " if len(audit.cases) < audit.total else ""
    passing = f"{len(broken):,} {'passes' if len(broken) == 1 else 'pass'} with the {audit.source}"
    yield one_line(f"{looked}{pluralize(audit.total, 'case')}; {passing}.", _SENTENCE)
    if broken:
        ways = f"{'Its result was' if len(broken) == 1 else 'Their results were'} broken in {pluralize(tried, 'way')}"
        yield f"{ways}, and each broken result was scored (--seed {audit.seed}, --count {audit.count})."
    yield from _not_broken(audit)
    if not broken:
        return
    yield from _table("How the results were broken", "change", audit.kinds)
    yield from _table("What the rules noticed, of the changes of what they read", "rule", audit.rules)
    yield from _untried(audit)
    yield from _expectations(audit)
    yield from _unnoticed(audit)
    yield from _inputs(audit)
    yield from _findings(audit)


def _not_broken(audit: Audit) -> Iterator[str]:
    others = [case for case in audit.cases if case.problem]
    if others:
        yield f"Not audited, because there is no right result to break: {pluralize(len(others), 'case')}"
        for case in others[:_MAX]:
            yield f"  {one_line(case.file, _SENTENCE)}: {one_line(case.problem)}"
        yield from _more(len(others))


def _table(title: str, name: str, counts: Mapping[str, Count]) -> Iterator[str]:
    rows = [
        (one_line(key), str(count.tried), _share(count.noticed, count.tried), _share(count.failed, count.tried))
        for key, count in counts.items()
        if count.tried
    ]
    if rows:
        yield ""
        yield f"{title}:"
        yield from _indented(text_table([(name, "tried", "noticed", "case fails"), *rows], numbers=True))


def _share(part: int, whole: int) -> str:
    return f"{part} ({format_percent(part, whole)})"


def _untried(audit: Audit) -> Iterator[str]:
    if UNREADABLE in audit.rules:
        yield f"  {UNREADABLE}: the result can't be read, or tests nothing; the case does not pass"
    shallow = [
        one_line(name) for name, count in audit.rules.items() if count.missing < count.noticed == count.misshapen
    ]
    if shallow:
        yield f"  notice only missing values and values of another type: {', '.join(shallow)}"
    names = [one_line(name) for name, count in audit.rules.items() if not count.tried]
    if names:
        yield f"  not tried, because no result is known that they notice: {', '.join(names)}"


def _expectations(audit: Audit) -> Iterator[str]:
    rows = [
        (one_line(key), str(count.tried), str(count.noticed), str(count.failed))
        for key, count in audit.expectations.items()
    ]
    if rows:
        yield ""
        yield "Optional keys of expected, and the broken results that score differently because of them:"
        head = ("key", "tried", "score differs", "case fails by it")
        yield from _indented(text_table([head, *rows], numbers=True))
    idle = [one_line(key) for key, count in audit.expectations.items() if not count.noticed]
    if idle:
        yield f"  no broken result needed: {', '.join(idle)}; if none of your own does, correct or remove the key"


def _unnoticed(audit: Audit) -> Iterator[str]:
    parts = list(_outermost(audit.parts))
    if parts:
        yield ""
        yield "Parts of the results whose changes no rule noticed (is that what you want?):"
        shown = parts[:_MAX]
        for part, count in shown:
            yield f"  {one_line(part)}  ({pluralize(count, 'change')})"
        yield from _more(len(parts))


def _outermost(parts: Mapping[str, Count]) -> Iterator[tuple[str, int]]:
    """Yield the parts of which nothing is noticed, without those inside another, and the number of their changes."""
    read = [part for part, count in parts.items() if count.noticed]
    unread: list[str] = []
    for part in sorted(parts, key=len):
        is_inside = any(part.startswith(f"{outer}/") for outer in unread)
        if not is_inside and not any(part == inner or inner.startswith(f"{part}/") for inner in read):
            unread.append(part)
    for part in sorted(unread):
        yield part, sum(count.tried for name, count in parts.items() if name == part or name.startswith(f"{part}/"))


def _inputs(audit: Audit) -> Iterator[str]:
    yield ""
    if audit.inputs_note:
        yield one_line(f"The target was not run with other inputs: {audit.inputs_note}.", _SENTENCE)
        yield "Instead, results were scored as those of other cases (result of another case)."
        return
    if not audit.inputs:
        yield "The target was not run with other inputs: all inputs are the same."
        return
    yield "Cases that pass although the target gets another input (by chance, or because they expect the same):"
    for count in audit.inputs:
        names = f": {name_some(count.passed[:3], len(count.passed))}" if count.passed else ""
        errors = f"; {pluralize(count.errors, 'run')} without a score" if count.errors else ""
        line = f"{count.kind} input: {len(count.passed)} of {count.tried}{names}{errors}"
        yield f"  {one_line(line, _SENTENCE)}"


def _findings(audit: Audit) -> Iterator[str]:
    yield ""
    if not audit.findings:
        yield "No finding: every rule noticed something, and every case can fail."
        return
    yield f"{pluralize(len(audit.findings), 'finding')}:"
    for kind, group in groupby(audit.findings, key=lambda finding: finding.kind):
        found = list(group)
        yield _HEADINGS[kind]
        for finding in islice(found, _MAX):
            name = f"{finding.file} ({finding.name})" if finding.file else finding.name
            line = f"{name}: {finding.message}"
            yield f"  {one_line(line, _SENTENCE)}"
        yield from _more(len(found))


def _more(count: int) -> Iterator[str]:
    if count > _MAX:
        yield f"  and {count - _MAX} more (all of them: --json FILE)"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
