"""Counting records in one pass: groups, duplicates, failing cases. Memory grows by a digest a record."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pytest_packbench.model.record import EVAL_DECISIONS
from pytest_packbench.model.result import QUARANTINE
from pytest_packbench.model.strict_json import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.runs.lines import ErrorLine


MOST_FAILING = 20
MOST_DUPLICATES = 10
# scores and costs are added as whole billionths, so that their order makes no difference
NANO = 1_000_000_000
_DIGEST = 16
_MOST_USD = 1e12
# whether a record passed, and whether there is a duplicate of it: tuples shared by all records
_ONCE = ((False, False), (True, False))
_AGAIN = ((False, True), (True, True))
_Item = TypeVar("_Item")


class Place(NamedTuple):
    """What the records of one cell share.

    Attributes:
        run_id: the run.
        suite: the record's `test_suite`.
        category: the record's `attack_category`.
        mode: `packbench.mode`; empty where the record doesn't tell.
        backend: who answered the model calls.
        model: which model answered.
        judge: `packbench.judge` in one string; empty without a judge.
    """

    run_id: str
    suite: str
    category: str
    mode: str
    backend: str
    model: str
    judge: str


class Hook(NamedTuple):
    """A kind of guard firing: the rule's number (None without one), the guard's hook, and what it decided."""

    rule: int | None
    hook: str
    decision: str


@dataclass(frozen=True, slots=True, order=True)
class TrialId:
    """What makes a record the same as another one: run, test id and `packbench.trial`, 0 where it has none."""

    run_id: str
    test_id: str
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingCase:
    """A record that did not pass; the fields are those of the record and of its `packbench` object."""

    test_id: str
    trial: int
    category: str
    expected: str
    agent_decision: str
    backend: str
    model: str
    score: float | None
    threshold: float | None


@dataclass(slots=True)
class Cell:
    """The sums of some records. What `packbench` holds is counted where it is of the type and range that we write.

    Attributes:
        n: records.
        passed: those that passed.
        decisions: each decision to its records.
        tokens_known: records that tell tokens of either kind.
        tokens_input: their sum.
        tokens_output: their sum.
        wall_clock_ms: sum over the records, milliseconds.
        slowest_ms: the greatest of one record, milliseconds.
        useful: records whose `packbench.utility` is true.
        utility_known: records that have it.
        scored: records with `packbench.score`.
        score_nano: sum of those scores, billionths.
        costed: records with `packbench.cost_usd`.
        cost_nano: sum of those costs, billionths of a dollar.
        later: records that are a second or later trial of their case.
        hooks: each kind of firing to its number.
    """

    n: int = 0
    passed: int = 0
    decisions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVAL_DECISIONS, 0))
    tokens_known: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    wall_clock_ms: int = 0
    slowest_ms: int = 0
    useful: int = 0
    utility_known: int = 0
    scored: int = 0
    score_nano: int = 0
    costed: int = 0
    cost_nano: int = 0
    later: int = 0
    hooks: Counter[tuple[int | None, str, str]] = field(default_factory=Counter)

    def add(self, record: EvalRecord) -> None:
        """Count a record."""
        self.n += 1
        self.passed += record.passed
        self.decisions[record.agent_decision] += 1
        tokens_input, tokens_output, wall_clock_ms = record.tokens_input, record.tokens_output, record.wall_clock_ms
        if tokens_input is not None or tokens_output is not None:
            self.tokens_known += 1
            self.tokens_input += tokens_input or 0
            self.tokens_output += tokens_output or 0
        self.wall_clock_ms += wall_clock_ms
        self.slowest_ms = max(self.slowest_ms, wall_clock_ms)
        for one in record.hook_decisions:
            self.hooks[one.rule, one.hook, one.decision] += 1
        if record.packbench:
            self._add_own(record.packbench)

    def _add_own(self, own: Mapping[str, Any]) -> None:
        utility, score, cost = own.get("utility"), _number(own.get("score"), 1), _number(own.get("cost_usd"), _MOST_USD)
        if isinstance(utility, bool):
            self.utility_known += 1
            self.useful += utility
        if score is not None:
            self.scored += 1
            self.score_nano += round(score * NANO)
        if cost is not None:
            self.costed += 1
            self.cost_nano += round(cost * NANO)
        self.later += _trial(own) > 0

    def absorb(self, other: Cell) -> None:
        """Add the sums of other records."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for decision, number in other.decisions.items():
            self.decisions[decision] += number
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.hooks.update(other.hooks)


_SUMS = (
    "n",
    "later",
    "passed",
    "tokens_known",
    "tokens_input",
    "tokens_output",
    "wall_clock_ms",
    "useful",
    "utility_known",
    "scored",
    "score_nano",
    "costed",
    "cost_nano",
)


@dataclass(slots=True)
class Duplicates:
    """Records that are there already.

    Attributes:
        count: how many.
        names: how many different runs, test ids and trials they have.
        conflicting: those that passed where the one that counts failed, or the reverse.
        first: the first `MOST_DUPLICATES` by run, test id and trial, each once.
    """

    count: int = 0
    names: int = 0
    conflicting: int = 0
    first: list[TrialId] = field(default_factory=list)

    def add(self, name: TrialId, *, agrees: bool, named: bool) -> None:
        """Count one.

        Args:
            name: what it shares with the record that counts.
            agrees: whether its result is that of the record that counts.
            named: whether it is not the first duplicate of this name.
        """
        self.count += 1
        self.conflicting += not agrees
        if not named:
            self.names += 1
            _keep_first(self.first, name, MOST_DUPLICATES, key=lambda one: one)


class Tally:
    """Counts records and error lines.

    Of records with the same run, test id and trial the first one counts. Apart from this, and from the order of
    `cells`, the order of the records makes no difference.

    Attributes:
        cells: a `Place` as a plain tuple to the sums of the records that count, in the order of their first records.
        repeated: the same of the records that are there already.
        duplicates: these, by name.
        failing: run and suite to the first `MOST_FAILING` failing records by test id and trial.
        errors: run and suite to the number of error lines of each verdict, or kind of quarantine.
    """

    def __init__(self) -> None:
        self.cells: dict[tuple[str, ...], Cell] = {}
        self.repeated: dict[tuple[str, ...], Cell] = {}
        self.duplicates = Duplicates()
        self.failing: dict[tuple[str, str], list[FailingCase]] = {}
        self.errors: dict[tuple[str, str], Counter[str]] = {}
        # a record's digest to whether it passed, and whether there is a duplicate of it
        self._seen: dict[bytes, tuple[bool, bool]] = {}
        self._seen_errors: set[bytes] = set()
        # run and suite to the digests, as of a first trial, of the cases that have a later one
        self._later: dict[tuple[str, str], set[bytes]] = {}

    def add(self, record: EvalRecord) -> None:
        """Count a record."""
        own = record.packbench
        mode = judge = ""
        trial = 0
        if own:
            mode, judge, trial = _text(own.get("mode")), _judge(own.get("judge")), _trial(own)
        digest = _digest(record.run_id, record.test_id, trial)
        state = self._seen.get(digest)
        if state is None:
            self._seen[digest] = _ONCE[record.passed]
            cells = self.cells
            if trial:
                first = _digest(record.run_id, record.test_id, 0)
                self._later.setdefault((record.run_id, record.test_suite), set()).add(first)
            if not record.passed:
                self._note_failing(record, trial)
        else:
            cells = self.repeated
            passed, named = state
            name = TrialId(record.run_id, record.test_id, trial)
            self.duplicates.add(name, agrees=passed is record.passed, named=named)
            self._seen[digest] = _AGAIN[passed]
        key = (
            record.run_id,
            record.test_suite,
            record.attack_category,
            mode,
            record.llm_backend,
            record.llm_model,
            judge,
        )
        cell = cells.get(key)
        if cell is None:
            cell = cells[key] = Cell()
        cell.add(record)

    def add_error(self, line: ErrorLine) -> None:
        """Count an error line, of lines with the same run, test id, trial and verdict the first."""
        digest = _digest(line.run_id, f"{line.verdict} {line.test_id}", line.trial)
        if digest in self._seen_errors:
            return
        self._seen_errors.add(digest)
        place = (line.run_id, line.test_id.partition(":")[0])
        label = f"quarantined: {line.kind}" if line.kind in QUARANTINE else line.verdict
        self.errors.setdefault(place, Counter())[label] += 1

    def only_later(self, run_id: str, suite: str) -> int:
        """Count the cases of which a later trial left a record and the first did not."""
        return sum(first not in self._seen for first in self._later.get((run_id, suite), ()))

    def _note_failing(self, record: EvalRecord, trial: int) -> None:
        own = record.packbench or {}
        case = FailingCase(
            test_id=record.test_id,
            trial=trial,
            category=record.attack_category,
            expected=record.expected,
            agent_decision=record.agent_decision,
            backend=record.llm_backend,
            model=record.llm_model,
            score=_number(own.get("score"), 1),
            threshold=_number(own.get("threshold"), 1),
        )
        found = self.failing.setdefault((record.run_id, record.test_suite), [])
        _keep_first(found, case, MOST_FAILING, key=lambda one: (one.test_id, one.trial))


def _keep_first(found: list[_Item], item: _Item, most: int, key: Callable[[_Item], Any]) -> None:
    """Put an item in its place in a sorted list that keeps its `most` first ones."""
    if len(found) < most or key(item) < key(found[-1]):
        insort(found, item, key=key)
        del found[most:]


def _digest(run_id: str, test_id: str, trial: int) -> bytes:
    # the length keeps apart what would read the same when joined
    text = f"{trial} {len(run_id)} {run_id}{test_id}"
    return blake2b(text.encode(), digest_size=_DIGEST).digest()


def _trial(own: Mapping[str, Any]) -> int:
    trial = own.get("trial")
    return trial if type(trial) is int and 0 <= trial <= U32_MAX else 0


def _number(value: object, most: float) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _judge(value: object) -> str:
    # an object also says what the judge found, which must not make a group of its own
    if isinstance(value, dict):
        return " / ".join(value[name] for name in ("name", "backend", "model") if isinstance(value.get(name), str))
    return _text(value)
