"""Running one item: setup runs and scores the case, call compares. The arrows of design 4, in pytest's phases."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_packbench.cases.files import located
from pytest_packbench.engine.attempt import attempt, frames
from pytest_packbench.engine.context import Failure
from pytest_packbench.engine.results import Place, result_of, unscored
from pytest_packbench.engine.targets import TargetError
from pytest_packbench.model.errors import pointer_of, said
from pytest_packbench.model.pack import Comparison
from pytest_packbench.model.record import EvalRecord, RecordError
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.strict_json import has_surrogate
from pytest_packbench.pytest_plugin.collection import CaseBroken, CaseFailure, CaseItem
from pytest_packbench.pytest_plugin.explain import error_text, failure_text
from pytest_packbench.pytest_plugin.stash import AHEAD, ATTRIBUTE, BENCHES, RESUMED, RUN_ID
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.engine.context import Attempt, SuiteContext
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.suite import Suite


def shown_file(suite: Suite, path: Path, nodeid: str) -> str:
    """Name a case file in records: as its node id does, but a bundled one without the machine's own folders."""
    if not suite.bundled:
        return nodeid
    return f"bundled:{suite.name}/{path.relative_to(suite.path).as_posix()}"


def place_of(item: Tested) -> Place:
    """Say where an item's case stands."""
    return Place(
        suite=item.suite,
        pack=item.config.stash[BENCHES].pack_of(item.suite),
        case_id=item.name,
        nodeid=item.case_nodeid,
        file=located(shown_file(item.suite, item.path, item.file_id), item.line),
        folder=item.path.parent.name,
        loaded=item.loaded,
    )


def execute(item: CaseItem) -> None:
    """Run and score a case, and leave its entries on the item.

    Raises:
        CaseBroken: there is no score, or the score means nothing.
        pytest.skip.Exception: the case's notes say so, or the run's caps were reached before.
    """
    place = place_of(item)
    held = held_back(item, place)
    trials = [held] if held is not None else [shown_to_hooks(item, place, one) for one in _try(item, place)]
    conclude(item, trials)


def held_back(item: Tested, place: Place) -> Tried | None:
    """Say why a case is not to be run: it can't be, or its notes say so; None where it is."""
    if item.problem or item.loaded is None:
        return broke(place, Failure(kind="case_unreadable", message=item.problem))
    skip = item.loaded.case.notes.skip
    return None if skip is None else not_run(place, "skip", f"quarantined (skip): {skip}")


def _try(item: CaseItem, place: Place) -> list[Tried]:
    ahead = item.config.stash.get(AHEAD, None)
    kept = {trial: tried_before(entry, place) for trial, entry in kept_trials(item).items()}
    if len(kept) == item.config.stash[BENCHES].settings.trials:
        return [kept[trial] for trial in sorted(kept)]
    try:
        bench = item.config.stash[BENCHES].context(item.suite)
    except TargetError as error:
        return [broke(place, Failure(kind="target_missing", message=str(error), details=_cause(error)))]
    if ahead is not None:
        return ahead.take(item, kept)
    if item.loaded is None:
        raise ValueError("a case that can't be read is not tried")
    return [tried(place, attempt(bench, item.loaded), bench, item.config.stash[RUN_ID])]


def kept_trials(item: CaseItem) -> Mapping[int, CaseResult]:
    """Give the trials of a case that a resumed run has already."""
    resumed = item.config.stash.get(RESUMED, None)
    if resumed is None or item.problem or item.loaded is None:
        return {}
    return resumed.trials(item.suite, item.name)


def shown_to_hooks(item: pytest.Item, place: Place, one: Tried) -> Tried:
    """Show a case's record to the users' hooks; one that raises makes the case an error."""
    hook = item.ihook.pytest_packbench_record
    if one.entry.record is None or not hook.get_hookimpls():
        return one
    # what a hook does to its copy changes no file
    shown = EvalRecord.from_json(deepcopy(one.entry.record))
    try:
        hook(item=item, record=shown)
    except Exception as error:  # noqa: BLE001 - a hook may be anybody's
        message = f"the hook pytest_packbench_record raised {said(error)}"
        return broke(place, Failure(kind="hook_error", message=message, details=frames(error)), trial=one.entry.trial)
    return one


def conclude(item: Tested, trials: list[Tried]) -> None:
    """Leave the entries on the item, and stop where there is nothing to compare.

    Raises:
        CaseBroken: there is no score, or the score means nothing.
        pytest.skip.Exception: the case was not run.
    """
    rule = item.suite.config.trials_rule()
    item.entries = tuple(one.entry for one in trials)
    item.entry = entry = item.entries[0] if len(trials) == 1 else _folded(item.entries, rule)
    broken = next((one for one in trials if one.failure is not None), None)
    if entry.verdict == "not_run":
        pytest.skip(printable(entry.message))
    if broken is not None and broken.failure is not None and entry.verdict in {"error", "vacuous"}:
        item.explanation = error_text(item, broken.failure)
        shown = CaseBroken(printable(broken.failure.message))
        if broken.failure.raised is not None:
            # a debugger goes to where the user's own code raised
            raise shown.with_traceback(broken.failure.raised.__traceback__)
        raise shown
    if entry.verdict == "failed":
        item.explanation = failure_text(item, trials, entry, rule)


def _folded(entries: tuple[CaseResult, ...], rule: str | dict[str, int]) -> CaseResult:
    from pytest_packbench.analysis.trials import folded_case

    return folded_case(entries, rule)


def _cause(error: BaseException) -> tuple[str, ...]:
    return frames(error.__cause__) if error.__cause__ is not None else ()


def decide(item: Tested) -> None:
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
    if entry.verdict == "passed" if len(item.entries) > 1 else _reaches(entry):
        return
    line = item.explanation.partition("\n")[0] or printable(entry.message)
    if item.config.stash[BENCHES].settings.gate == "suite" and not strict:
        raise pytest.xfail.Exception(line)
    item.explanation = item.explanation or line
    raise CaseFailure(line)


def _reaches(entry: CaseResult) -> bool:
    from pytest_packbench.model.score import judged

    if entry.score is None or entry.threshold is None:
        return entry.verdict == "passed"
    return judged(entry.score, entry.threshold) == "passed"


class Reporter:
    """Puts a case's entries and properties on pytest's report, in the process that ran the case."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the entries to the report of the setup phase, and the explanation where setup broke."""
        if not isinstance(item, CaseItem):
            return (yield)
        if call.when != "setup" or item.entry is None:
            return _slim(item, (yield))
        item.user_properties.extend(properties(item.entry))
        report = _slim(item, (yield))
        attach(report, item.entries)
        if call.excinfo is not None and isinstance(call.excinfo.value, CaseBroken):
            # pytest asks no item how to show a failing setup
            report.longrepr = item.explanation
        if AHEAD in item.config.stash:
            # the setup only waited for what ran beside other cases
            report.duration = sum(entry.duration_ms for entry in item.entries) / 1000
        return report


def _slim(item: CaseItem, report: pytest.TestReport) -> pytest.TestReport:
    # pytest keeps every report to the end, each with the names of all folders above
    if item.reported_keywords == report.keywords:
        report.keywords = item.reported_keywords
    else:
        item.reported_keywords = report.keywords
    return report


def attach(report: pytest.TestReport, entries: tuple[CaseResult, ...]) -> None:
    """Put entries on a report, for `taken_from`."""
    setattr(report, ATTRIBUTE, entries)


def packed(report: pytest.TestReport) -> None:
    """Make of a report's entries what xdist can send: ASCII, for an answer may hold what it can't, a lone surrogate."""
    entries = getattr(report, ATTRIBUTE, None)
    if entries is not None:
        setattr(report, ATTRIBUTE, json.dumps([entry.as_json() for entry in entries]))


def taken_from(report: pytest.TestReport) -> tuple[CaseResult, ...]:
    """Take a report's entries off it: other plugins may write reports as JSON, and these are no values of that."""
    found = report.__dict__.pop(ATTRIBUTE, ())
    return tuple(CaseResult.from_json(one) for one in json.loads(found)) if isinstance(found, str) else found


def properties(entry: CaseResult) -> list[tuple[str, Any]]:
    """Give what JUnit and other reports show of a case beside its outcome."""
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


class Tested(Protocol):
    """A case with what its attempts left.

    Attributes:
        suite: the case's suite.
        loaded: the case, None where its file can't be read.
        problem: why it can't be run, in one line; empty otherwise.
        entries: what its attempts left, one for each trial.
        entry: the case's verdict over them.
        explanation: what to show for it when it doesn't pass.
    """

    suite: Suite
    loaded: LoadedCase | None
    problem: str
    entries: tuple[CaseResult, ...]
    entry: CaseResult | None
    explanation: str

    @property
    def config(self) -> pytest.Config:
        """The session's configuration."""

    @property
    def path(self) -> Path:
        """The case file, absolute."""

    @property
    def name(self) -> str:
        """The case's id."""

    @property
    def file_id(self) -> str:
        """The case file as node ids name it."""

    @property
    def line(self) -> int:
        """The case's line in a file of many, from 1; 0 where the file is the case."""

    @property
    def case_nodeid(self) -> str:
        """What pytest calls it, without the group that xdist may append."""

    @property
    def own_test(self) -> str:
        """Node id of the user's own test function that runs the case; empty where the case's item does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One attempt, as its item and the session see it.

    Attributes:
        entry: what reports are made from.
        attempt: what the engine left; None where it was not begun.
        rows: expected against actual.
        failure: why there is no score.
    """

    entry: CaseResult
    attempt: Attempt | None = None
    rows: Sequence[Comparison] = ()
    failure: Failure | None = None


def tried(place: Place, attempt: Attempt, bench: SuiteContext, run_id: str) -> Tried:
    """Make an attempt's entry; a pack that breaks here makes it an error."""
    try:
        entry = result_of(place, attempt, bench, run_id)
        if entry.record is None:
            # a record is checked when it is made; what has none breaks here and not where it is written
            json.dumps(entry.as_json())
        # a table takes time, and only a case that failed shows one
        rows = _rows(place, attempt) if entry.verdict == "failed" else []
    except bench.stops:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        return broke(place, _broken(place, attempt, error), trial=attempt.trial)
    failure = None
    if entry.verdict in {"error", "vacuous"}:
        failure = attempt.failure or Failure(kind=entry.kind, message=entry.message)
    return Tried(entry=entry, attempt=attempt, rows=rows, failure=failure)


def _broken(place: Place, attempt: Attempt, error: BaseException) -> Failure:
    pointer = _surrogate_at(attempt.payload) if isinstance(error, RecordError) else None
    if pointer is not None:
        where = f"at {pointer}" if pointer else "at its top"
        message = f"the target's result holds text that is no Unicode {where}: an unpaired surrogate; expected UTF-8"
        return Failure(kind="result_unreadable", message=message)
    message = f"the pack {place.pack.name} raised {said(error)}"
    return Failure(kind="pack_error", message=message, details=frames(error))


def _surrogate_at(value: object) -> str | None:
    """Point to the first text that holds a surrogate, or to the object whose key does; None where there is none."""
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), value)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, str) and has_surrogate(found):
            return pointer_of(place)
        if isinstance(found, dict):
            if any(isinstance(key, str) and has_surrogate(key) for key in found):
                return pointer_of(place)
            waiting += reversed([((*place, key), one) for key, one in found.items()])
        elif isinstance(found, list | tuple):
            waiting += reversed([((*place, index), one) for index, one in enumerate(found)])
    return None


def _rows(place: Place, attempt: Attempt) -> list[Comparison]:
    case = place.loaded.case if place.loaded is not None else None
    found: list[object] = list(place.pack.explain(case, attempt.outcome))
    rows = [row for row in found if isinstance(row, Comparison)]
    if len(rows) < len(found) or not all(isinstance(text, str) for row in rows for text in astuple(row)):
        raise TypeError(f"explain gave {found!r}, expected comparisons, each of texts")
    return rows


def tried_before(entry: CaseResult, place: Place) -> Tried:
    """Make of an entry that an earlier session of the run left what its item needs.

    Args:
        entry: it was scored.
        place: where the case stands today: pytest may call it otherwise, and lines of a file may have moved.
    """
    record = entry.record
    if record is not None:
        record = {**record, "packbench": {**record.get("packbench", {}), "file": place.file}}
    return Tried(entry=replace(entry, nodeid=place.nodeid, file=place.file, record=record))


def broke(place: Place, failure: Failure, *, trial: int = 0) -> Tried:
    """Make the entry of an attempt that broke outside the engine."""
    return Tried(entry=unscored(place, "error", failure.kind, failure.message, trial=trial), failure=failure)


def not_run(place: Place, kind: str, message: str, *, trial: int = 0) -> Tried:
    """Make the entry of an attempt that was not begun."""
    return Tried(entry=unscored(place, "not_run", kind, message, trial=trial))
