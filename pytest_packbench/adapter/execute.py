"""Running one item: setup runs and scores the case, call compares. The arrows of design 4, in pytest's phases."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.adapter.collect import CaseBroken, CaseFailure, CaseItem
from pytest_packbench.adapter.explain import error_text, failure_text
from pytest_packbench.engine.attempt import Failure, attempt, frames
from pytest_packbench.engine.entries import Place, clock, entry_of, unscored
from pytest_packbench.engine.targets import TargetError
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_packbench.adapter.suites import Benches
    from pytest_packbench.cases.suite import Suite
    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.evalrecord import EvalRecord

BENCHES: pytest.StashKey[Benches] = pytest.StashKey()
RUN_ID = pytest.StashKey[str]()
ATTRIBUTE = "packbench_entry"


def shown_file(suite: Suite, path: Path, nodeid: str) -> str:
    """Name a case file in records: as its node id does, but a bundled one without the machine's own folders."""
    if not suite.bundled:
        return nodeid
    return f"bundled:{suite.name}/{path.relative_to(suite.path).as_posix()}"


def place_of(item: CaseItem) -> Place:
    """Say where an item's case stands."""
    return Place(
        suite=item.suite,
        pack=item.config.stash[BENCHES].pack_of(item.suite),
        case_id=item.name,
        nodeid=item.case_nodeid,
        file=shown_file(item.suite, item.path, item.file_id),
        folder=item.path.parent.name,
        loaded=item.loaded,
    )


def execute(item: CaseItem) -> None:
    """Run and score a case, and leave its entry on the item.

    Raises:
        CaseBroken: there is no score, or the score means nothing.
        pytest.skip.Exception: the case's notes say so.
    """
    place = place_of(item)
    target = item.config.stash[BENCHES].settings.target
    if item.problem or item.loaded is None:
        _broken(item, place, Failure(kind="case_unreadable", message=item.problem), target)
    elif item.loaded.case.notes.skip is not None:
        reason = f"quarantined (skip): {item.loaded.case.notes.skip}"
        item.entry = unscored(place, "not_run", "skip", reason, timestamp=clock(time.time_ns()))
        pytest.skip(printable(reason))
    else:
        _run(item, place, target)


def _run(item: CaseItem, place: Place, target: str) -> None:
    try:
        bench = item.config.stash[BENCHES].bench(item.suite)
    except TargetError as error:
        _broken(item, place, Failure(kind="target_missing", message=str(error), details=_cause(error)), target)
        return
    if item.loaded is None:
        raise ValueError("only a case that was read is run")
    tried = attempt(bench, item.loaded)
    try:
        item.entry, record = entry_of(place, tried, bench, item.config.stash[RUN_ID])
        rows = [] if tried.outcome is None else place.pack.explain(item.loaded.case, tried.outcome)
    except Exception as error:  # noqa: BLE001 - a pack may be anybody's
        message = f"the pack {place.pack.name} raised {type(error).__name__}: {error}"
        _broken(item, place, Failure(kind="pack_error", message=message, details=frames(error)), target)
        return
    if record is not None:
        _show_record(item, place, record, target)
    if item.entry.verdict in {"error", "vacuous"}:
        failure = tried.failure or Failure(kind=item.entry.kind, message=item.entry.message)
        item.explanation = error_text(item, failure, target)
        raise CaseBroken(printable(failure.message))
    if item.entry.verdict == "failed":
        item.explanation = failure_text(item, tried, rows, target)


def _show_record(item: CaseItem, place: Place, record: EvalRecord, target: str) -> None:
    # the entry holds its own copy of the record: what a hook does to this one changes no file
    try:
        item.config.hook.pytest_packbench_record(item=item, record=record)
    except Exception as error:  # noqa: BLE001 - a hook may be anybody's
        message = f"the hook pytest_packbench_record raised {type(error).__name__}: {error}"
        _broken(item, place, Failure(kind="hook_error", message=message, details=frames(error)), target)


def _cause(error: BaseException) -> tuple[str, ...]:
    return frames(error.__cause__) if error.__cause__ is not None else ()


def _broken(item: CaseItem, place: Place, failure: Failure, target: str) -> None:
    item.entry = unscored(place, "error", failure.kind, failure.message, timestamp=clock(time.time_ns()))
    item.explanation = error_text(item, failure, target)
    raise CaseBroken(printable(failure.message))


def decide(item: CaseItem) -> None:
    """Compare: nothing where the case passed.

    Raises:
        CaseFailure: the score is under the threshold.
        pytest.xfail.Exception: the case names a hole or is quarantined, or gates alone decide.
    """
    entry = item.entry
    if entry is None:
        raise CaseBroken("the case was not set up")
    # with --runxfail people want to see what xfail hides
    strict = bool(item.config.option.runxfail)
    if entry.verdict == "known_hole" and not (strict and entry.score is not None):
        raise pytest.xfail.Exception(printable(entry.message))
    if _reaches(entry):
        return
    line = item.explanation.partition("\n")[0] or printable(entry.message)
    if item.config.stash[BENCHES].settings.gate == "suite" and not strict:
        raise pytest.xfail.Exception(line)
    item.explanation = item.explanation or line
    raise CaseFailure(line)


def _reaches(entry: Entry) -> bool:
    from pytest_packbench.engine.protocols.score import judged

    if entry.score is None or entry.threshold is None:
        return entry.verdict == "passed"
    return judged(entry.score, entry.threshold) == "passed"


class Reporter:
    """Puts a case's entry and properties on pytest's report, in the process that ran the case."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the entry to the report of the setup phase, and the explanation where setup broke."""
        if not isinstance(item, CaseItem) or call.when != "setup" or item.entry is None:
            return (yield)
        item.user_properties.extend(_properties(item.entry))
        report = yield
        # as ASCII: what xdist sends may hold no lone surrogate, and a model's answer may
        setattr(report, ATTRIBUTE, json.dumps(item.entry.as_json()))
        if call.excinfo is not None and isinstance(call.excinfo.value, CaseBroken):
            # pytest asks no item how to show a failing setup
            report.longrepr = item.explanation
        return report


def _properties(entry: Entry) -> list[tuple[str, Any]]:
    found = {
        "suite": entry.suite,
        "case_type": entry.case_type,
        "difficulty": entry.difficulty,
        "verdict": entry.verdict,
        "score": entry.score,
        "threshold": entry.threshold,
        "match_depth": entry.match_depth,
    }
    return [(name, value) for name, value in found.items() if value not in {None, ""}]
