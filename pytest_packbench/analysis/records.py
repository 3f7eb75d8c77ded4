"""Count wire records and error lines one by one, without keeping them, for `packbench report`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.listing import keep_first
from pytest_packbench.analysis.metrics import ResultSums, excluded_facets
from pytest_packbench.model.metric import Profile
from pytest_packbench.model.score import QUARANTINE
from pytest_packbench.model.strict_json import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_packbench.model.metric import Metric
    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.model.score import Verdict
    from pytest_packbench.runs.lines import ErrorLine

    # the metrics of the pack of a record: of its `packbench.pack` (`name/version`) and its `test_suite`
    MetricsOf = Callable[[str, str], Mapping[str, Metric]]

MAX_FAILING = 20
MAX_DUPLICATES = 10
_DIGEST_BYTES = 16
# whether a record passed, and whether it has a duplicate; these tuples are shared by all records
_UNIQUE = ((False, False), (True, False))
_DUPLICATED = ((False, True), (True, True))

# scores and costs of records are added as whole billionths, so that the sum does not depend on their order
NANO = 1_000_000_000

_MAX_USD = 1e12
# the fields of `RecordSums` that are simply added
_ADDED = (
    *("tokens_known", "tokens_input", "tokens_output", "wall_clock_ms"),
    *("score_nano", "costed", "cost_nano", "later"),
)


class RecordKey(NamedTuple):
    """The fields by which records are grouped.

    Attributes:
        run_id: the run.
        suite: the record's `test_suite`.
        category: the record's `attack_category`.
        mode: `packbench.mode`; empty if the record has none.
        backend: the record's `llm_backend`.
        model: the record's `llm_model`.
        judge: `packbench.judge` in one string; empty without a judge.
        pack: `packbench.pack`, `name/version`; empty in foreign records.
    """

    run_id: str
    suite: str
    category: str
    mode: str
    backend: str
    model: str
    judge: str
    pack: str


class TrialId(NamedTuple):
    """The identity of a record: run, test id and `packbench.trial`, 0 if it has none."""

    run_id: str
    test_id: str
    trial: int


class FailingCase(NamedTuple):
    """A record that did not pass, with fields of the record and of its `packbench` object."""

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
class Duplicates:
    """Records whose identity occurred before.

    Attributes:
        count: how many.
        names: how many different identities they have.
        conflicting: those that passed although the counted record failed, or the reverse.
        first: the first `MAX_DUPLICATES` identities, sorted.
    """

    count: int = 0
    names: int = 0
    conflicting: int = 0
    first: list[TrialId] = field(default_factory=list)

    def add(self, trial: TrialId, *, agrees: bool, known: bool) -> None:
        """Count a duplicate.

        Args:
            trial: its identity.
            agrees: whether it passed or failed like the counted record.
            known: whether it is a second or later duplicate of that record.
        """
        self.count += 1
        self.conflicting += not agrees
        if not known:
            self.names += 1
            keep_first(self.first, trial, MAX_DUPLICATES, key=lambda each: each)


class RecordTally:
    """Count the records and error lines of any number of runs.

    Of records with the same run, test id and trial the first one counts. Apart from that, and from the order of
    `record_sums`, the order of records makes no difference.

    Args:
        metrics_of: the metrics of the pack of a record.

    Attributes:
        metrics_of: the argument.
        record_sums: sums of the counted records by the fields of `RecordKey`, in the order of their first records.
        duplicate_sums: the same for duplicates.
        duplicates: how many duplicates there are, and which.
        failing: the first `MAX_FAILING` failing records by test id and trial, by run and suite.
        errors: number of error lines by run and suite, and by verdict or kind of quarantine.
    """

    def __init__(self, metrics_of: MetricsOf = lambda _pack, _suite: {}) -> None:
        self.metrics_of = metrics_of
        self._excluded_of: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
        self.record_sums: dict[tuple[str, ...], RecordSums] = {}
        self.duplicate_sums: dict[tuple[str, ...], RecordSums] = {}
        self.duplicates = Duplicates()
        self.failing: dict[tuple[str, str], list[FailingCase]] = {}
        self.errors: dict[tuple[str, str], Counter[str]] = {}
        # by a record's digest: whether it passed, and whether it has a duplicate
        self._seen: dict[bytes, tuple[bool, bool]] = {}
        self._seen_errors: set[bytes] = set()
        # by run and suite: for cases with a later trial, the digest of their first one
        self._first_trials: dict[tuple[str, str], set[bytes]] = {}

    def add_record(self, record: EvalRecord) -> None:
        """Count a record; each trial of a case counts, in any order."""
        packbench = record.packbench
        pack = mode = judge = ""
        trial = 0
        if packbench:
            pack, mode = _text(packbench.get("pack")), _text(packbench.get("mode"))
            judge, trial = _judge(packbench.get("judge")), trial_of(packbench)
        digest = _digest(record.run_id, record.test_id, trial)
        state = self._seen.get(digest)
        if state is None:
            self._seen[digest] = _UNIQUE[record.passed]
            group = self.record_sums
            if trial:
                first = _digest(record.run_id, record.test_id, 0)
                self._first_trials.setdefault((record.run_id, record.test_suite), set()).add(first)
            if not record.passed:
                self._add_failing(record, trial)
        else:
            group = self.duplicate_sums
            passed, known = state
            trial_id = TrialId(record.run_id, record.test_id, trial)
            self.duplicates.add(trial_id, agrees=passed is record.passed, known=known)
            self._seen[digest] = _DUPLICATED[passed]
        key = (
            record.run_id,
            record.test_suite,
            record.attack_category,
            mode,
            record.llm_backend,
            record.llm_model,
            judge,
            pack,
        )
        sums = group.get(key)
        if sums is None:
            sums = group[key] = RecordSums()
        sums.add(record, self._excluded_facets(packbench, pack, record.test_suite) if packbench else ())

    def _excluded_facets(self, packbench: Mapping[str, Any], pack: str, suite: str) -> tuple[tuple[str, str], ...]:
        """Return the facets of a record that a metric of its pack excludes."""
        excluded = self._excluded_of.get((pack, suite))
        if excluded is None:
            excluded = self._excluded_of[pack, suite] = excluded_facets(self.metrics_of(pack, suite))
        facets = packbench.get("facets") if excluded else None
        return tuple([each for each in excluded if facets.get(each[0]) == each[1]]) if isinstance(facets, dict) else ()

    def add_error(self, line: ErrorLine) -> None:
        """Count an error line; of lines with the same run, test id, trial and verdict the first one counts."""
        digest = _digest(line.run_id, f"{line.verdict} {line.test_id}", line.trial)
        if digest in self._seen_errors:
            return
        self._seen_errors.add(digest)
        run_and_suite = (line.run_id, line.test_id.partition(":")[0])
        label = f"quarantined: {line.kind}" if line.kind in QUARANTINE else line.verdict
        self.errors.setdefault(run_and_suite, Counter())[label] += 1

    def cases_without_first_trial(self, run_id: str, suite: str) -> int:
        """Return how many cases have a record of a later trial but none of the first."""
        return sum(first not in self._seen for first in self._first_trials.get((run_id, suite), ()))

    def _add_failing(self, record: EvalRecord, trial: int) -> None:
        packbench = record.packbench or {}
        case = FailingCase(
            test_id=record.test_id,
            trial=trial,
            category=record.attack_category,
            expected=record.expected,
            agent_decision=record.agent_decision,
            backend=record.llm_backend,
            model=record.llm_model,
            score=number_of(packbench.get("score"), 1),
            threshold=number_of(packbench.get("threshold"), 1),
        )
        cases = self.failing.setdefault((record.run_id, record.test_suite), [])
        keep_first(cases, case, MAX_FAILING, key=lambda each: (each.test_id, each.trial))


@dataclass(slots=True)
class RecordSums:
    """The sums over a group of wire records. Values under `packbench` of another type or range are ignored.

    Attributes:
        results: the records as results, without scores.
        tokens_known: records with a token count of either kind.
        tokens_input: their sum.
        tokens_output: their sum.
        wall_clock_ms: sum over the records, milliseconds.
        slowest_ms: the slowest record, milliseconds.
        score_nano: sum of their scores, billionths.
        costed: records with `packbench.cost_usd`.
        cost_nano: sum of those costs, billionths of a dollar.
        later: records that are a second or later trial of their case.
        hooks: number of guard firings by rule (None without one), hook and decision.
    """

    results: ResultSums = field(default_factory=ResultSums)
    tokens_known: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    wall_clock_ms: int = 0
    slowest_ms: int = 0
    score_nano: int = 0
    costed: int = 0
    cost_nano: int = 0
    later: int = 0
    hooks: Counter[tuple[int | None, str, str]] = field(default_factory=Counter)

    def add(self, record: EvalRecord, facets: tuple[tuple[str, str], ...] = ()) -> None:
        """Add a record, with those of its facets that a metric excludes."""
        utility, scored = self._add_packbench(record.packbench) if record.packbench else (None, False)
        self.results.add(_profile(record.passed, record.agent_decision, utility, scored, facets), 0)
        tokens_input, tokens_output, wall_clock_ms = record.tokens_input, record.tokens_output, record.wall_clock_ms
        if tokens_input is not None or tokens_output is not None:
            self.tokens_known += 1
            self.tokens_input += tokens_input or 0
            self.tokens_output += tokens_output or 0
        self.wall_clock_ms += wall_clock_ms
        self.slowest_ms = max(self.slowest_ms, wall_clock_ms)
        for firing in record.hook_decisions:
            self.hooks[firing.rule, firing.hook, firing.decision] += 1

    def _add_packbench(self, packbench: Mapping[str, Any]) -> tuple[bool | None, bool]:
        utility, score = packbench.get("utility"), number_of(packbench.get("score"), 1)
        cost = number_of(packbench.get("cost_usd"), _MAX_USD)
        if score is not None:
            self.score_nano += round(score * NANO)
        if cost is not None:
            self.costed += 1
            self.cost_nano += round(cost * NANO)
        self.later += trial_of(packbench) > 0
        return utility if isinstance(utility, bool) else None, score is not None

    def merge(self, other: RecordSums) -> None:
        """Add the sums of another group."""
        self.results.profiles.update(other.results.profiles)
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.hooks.update(other.hooks)


@cache
def _profile(
    passed: bool,  # noqa: FBT001 - as in the record
    decision: str,
    utility: bool | None,  # noqa: FBT001
    scored: bool,  # noqa: FBT001
    facets: tuple[tuple[str, str], ...],
) -> Profile:
    """Return what metrics use of a record, the same object for equal ones."""
    verdict: Verdict = "passed" if passed else "failed"
    return Profile(verdict, decision=decision, utility=utility, scored=scored, facets=facets)


def _digest(run_id: str, test_id: str, trial: int) -> bytes:
    # with its length, a run id can't run into the test id
    text = f"{trial} {len(run_id)} {run_id}{test_id}"
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _judge(value: object) -> str:
    # other keys of the object are about the single answer, and would make each record a group
    if isinstance(value, dict):
        return " / ".join(value[name] for name in ("name", "backend", "model") if isinstance(value.get(name), str))
    return _text(value)


def trial_of(packbench: Mapping[str, Any]) -> int:
    """Return the trial number in a record's `packbench` object; 0 if it has none."""
    trial = packbench.get("trial")
    return trial if type(trial) is int and 0 <= trial <= U32_MAX else 0


def number_of(value: object, maximum: float) -> float | None:
    """Return a value that is a number from 0 to `maximum`; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= maximum:
        return value
    return None
