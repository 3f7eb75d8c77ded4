"""The end of a run: its numbers, how its gates decide, whether it passed and why, and what it can't tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from pytest_packbench.analysis.figures import count
from pytest_packbench.analysis.gates import baseline_of, gate_tally, judged, of_a_part, of_a_shard
from pytest_packbench.analysis.listing import Listing
from pytest_packbench.analysis.statistics import statistics_of
from pytest_packbench.analysis.sums import AUTHORED
from pytest_packbench.analysis.trials import facet_of, remark, rule_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.analysis.comparison import RunComparison
    from pytest_packbench.analysis.listing import Order
    from pytest_packbench.analysis.statistics import Statistics
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import SuiteConfig
    from pytest_packbench.runs.stored import BaselineLookup

Scope = Literal["whole", "part", "shard"]
# of the gates that fail, so many are named in a sentence
_NAMED = 3
_REPLAYED_WHOLE = ("http:", "https:", "cmd:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a run came to.

    Attributes:
        run: what is true of all its results.
        statistics: their numbers.
        gates: how the gates decided.
        page: the cases that the run's page shows, in its order.
        ends: the cases that a terminal shows, in its order.
        comparison: what changed since the baseline; None where there is none, or the run is not compared.
    """

    run: Run
    statistics: Statistics
    gates: Sequence[GateResult]
    page: Listing = field(default_factory=Listing)
    ends: Listing = field(default_factory=Listing)
    comparison: RunComparison | None = None


class RunCount:
    """A run on its way to its end: its results are counted one by one, and not held.

    Args:
        run: what is true of all results, as far as it is known.
        rules: the suite's, with its gates.
        pack: the suite's pack, which tells the levels of agreement.
        earlier: the earlier run, which gates may ask for.
        order: of the cases that a terminal shows.

    Raises:
        TrialsRuleError: a run was judged by a rule for trials that is none.
    """

    def __init__(
        self, run: Run, rules: SuiteConfig, pack: Pack, earlier: BaselineLookup, *, order: Order = "given"
    ) -> None:
        rule = rule_of(run, rules.trials_rule())
        self._levels = pack.depths or None
        self._gates = rules.all_gates()
        self._baseline = baseline_of(earlier, self._gates, rule)
        self._page, self._ends = Listing("id"), Listing(order)
        self._tally = gate_tally(
            self._gates,
            trials_rule=rule,
            facet=facet_of(run),
            baseline=self._baseline,
            each_case=(self._page.add, self._ends.add),
        )

    def add(self, result: CaseResult) -> None:
        """Count a result; those of one case come one after the other."""
        self._tally.add(result)

    def take(self, results: Sequence[CaseResult]) -> Self:
        """Count results in any order."""
        self._tally.take(results)
        return self

    def conclusion(self, run: Run, scope: Scope = "whole", comparison: RunComparison | None = None) -> Conclusion:
        """Judge the run, of which all results were counted; `scope` is as in `conclude`."""
        baseline = None if self._baseline is None else self._baseline.for_run(run, self._tally)
        gates = judged(self._tally.close(), self._gates, baseline)
        if scope != "whole":
            gates = of_a_shard(gates) if scope == "shard" else of_a_part(gates)
        return Conclusion(
            run=run,
            statistics=statistics_of(self._tally, levels=self._levels),
            gates=gates,
            page=self._page,
            ends=self._ends,
            comparison=comparison,
        )


def conclude(
    run: Run,
    results: Sequence[CaseResult],
    rules: SuiteConfig,
    pack: Pack,
    earlier: BaselineLookup,
    *,
    scope: Scope = "whole",
    compared: bool = False,
) -> Conclusion:
    """Judge a run that has ended, and whose results are at hand, one for each attempt; see `RunCount`.

    The scope is `part` where cases of the suite were left out on purpose: a gate without a case holds; it is `shard`
    where the run is to be merged: the gates of the merged run decide. With `compared` it is said what changed since the
    earlier run; of a shard that can't be said.

    Raises:
        TrialsRuleError: a run was judged by a rule for trials that is none.
    """
    comparison = None
    if compared and earlier.stored is not None and scope != "shard":
        from pytest_packbench.analysis.comparison import compare
        from pytest_packbench.runs.stored import StoredRun

        comparison = compare(earlier.stored, StoredRun(source=run.run_id, run=run, results=tuple(results)))
    return RunCount(run, rules, pack, earlier).take(results).conclusion(run, scope, comparison)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether a run passed.

    Attributes:
        status: `failed` where something that was judged is bad or broken or a gate does not hold; else `partial`
            where cases are missing; else `passed`.
        headline: the status in capitals and the count of cases, for a title.
        sentence: what decided, one or more sentences in one line.
    """

    status: Literal["passed", "failed", "partial"]
    headline: str
    sentence: str


def judge(told: Conclusion) -> Judgement:
    """Judge a run as pytest's exit code does (design 4).

    The run's setting `gate` says whether each failing case fails the run (`case`) or the gates alone do (`suite`).

    Returns:
        The judgement, in plain text that may hold names out of cases: escape it where it is shown.
    """
    run, overall = told.run, told.statistics.overall
    reasons = list(_reasons(told))
    status: Literal["passed", "failed", "partial"] = "failed" if reasons else "partial" if run.partial else "passed"
    words = [status.upper()]
    if run.partial and status != "partial":
        words.append("PARTIAL")
    sentences = [f"{_capital('; '.join(reasons))}."] if reasons else [_good(told)]
    if run.partial:
        sentences.append(f"The run is not complete: {run.partial}.")
    return Judgement(
        status=status,
        headline=f"{', '.join(words)}, {overall.passed} of {overall.n} judged cases passed",
        sentence=" ".join(sentences),
    )


def limits(run: Run, statistics: Statistics) -> list[str]:
    """Say what the run can tell and what it can't (design 7), in sentences that may hold names from outside."""
    found = [_origin(run, statistics)]
    if run.mode == "fixture" and statistics.totals.stale:
        stale = statistics.totals.stale
        whose = "The recording" if stale == 1 else "The recordings"
        of = f"{stale} of {count(statistics.totals.selected, 'case')}"
        found.append(f"{whose} of {of} answered another prompt than today's.")
    if run.mode == "fixture" and run.target.startswith(_REPLAYED_WHOLE):
        found.append("Pipeline not run: scoring only; the target's results were replayed whole.")
    if run.bundled:
        found.append("The suite is bundled: it came with the installed package, not from this project.")
    facet = facet_of(run)
    if facet and statistics.has_intervals:
        groups = statistics.grouped().get(facet, ())
        clusters, alone = sum(group.n > 0 for group in groups), statistics.overall.n - sum(group.n for group in groups)
        told = remark(statistics.overall.n, clusters + alone, facet)
        found += [f"{told}; Wilson intervals and exact bounds take them as independent."] if told else []
    return [*found, *run.findings]


def _reasons(told: Conclusion) -> Iterator[str]:
    run, gates = told.run, told.gates
    verdicts, n = told.statistics.totals.verdicts, told.statistics.overall.n
    if verdicts["failed"] and run.settings.get("gate") != "suite":
        yield f"{verdicts['failed']} of {count(n, 'judged case')} failed"
    if verdicts["error"]:
        yield f"{count(verdicts['error'], 'case')} broke (error)"
    if verdicts["vacuous"]:
        yield f"{count(verdicts['vacuous'], 'case')} could not have failed (vacuous)"
    if not n and "shard" not in run.settings:
        yield "no case was judged"
    # what did not run is no failure: `partial` says it
    broken = [each for each in gates if not (each.passed or (run.partial and each.metric == "completeness"))]
    if len(broken) == 1:
        yield f"the gate {broken[0].text}"
    elif broken:
        more = f" and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
        names = ", ".join(each.subject for each in broken[:_NAMED])
        yield f"{len(broken)} of {count(len(gates), 'gate')} do not hold: {names}{more}"


def _good(told: Conclusion) -> str:
    run, gates, overall = told.run, told.gates, told.statistics.overall
    share = "all" if overall.passed == overall.n else str(overall.passed)
    done = "The one judged case passed" if overall.passed == overall.n == 1 else ""
    done = done or (
        _capital(f"{share} of {count(overall.n, 'judged case')} passed") if overall.n else "No case is here"
    )
    if "shard" in run.settings:
        return f"{done}; packbench merge judges the gates."
    failing = sum(not result.passed for result in gates)
    # a run in which every case fails passes so, and nobody should read that as good
    if run.settings.get("gate") == "suite" and all(result.metric == "completeness" for result in gates):
        holds = f": completeness {'does not hold' if failing else 'holds'}" if gates else ""
        return f"{done}; no gate judges them{holds}."
    if not gates:
        return f"{done}."
    if failing:
        return f"{done}; completeness does not hold."
    return f"{done}; {'the gate holds' if len(gates) == 1 else f'all {len(gates)} gates hold'}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _origin(run: Run, statistics: Statistics) -> str:
    n, authored = statistics.overall.n, statistics.authored
    if statistics.all_authored:
        agent = f" ({run.model})" if run.backend == AUTHORED and run.model else ""
        scripted = agent or run.mode != "fixture"
        written = f"Answers were scripted{agent}" if scripted else "Recordings were authored"
        return f"{written}: this run tests gates and scoring, not a model; no interval is given."
    models = ", ".join(statistics.models)
    if run.mode == "fixture":
        answered = f", answers recorded from {models}" if models else ""
        told = (
            f"Fixture mode{answered}: this run tells whether the pipeline or the scoring changed, "
            "not how good the model is."
        )
    elif n and not models and not authored:
        told = (
            "Live mode; the target asked no model through packbench: "
            "this run tells how good the target is on these cases."
        )
    else:
        told = f"Live mode{f' ({models})' if models else ''}: this run tells how good the model is on these cases."
    if authored:
        told += f" {authored} of {count(n, 'answer')} were authored and say nothing of a model."
    if statistics.cached:
        share = f"{statistics.cached} of {count(n, 'answer')}"
        told += f" {share} came, whole or in part, out of kept answers: the model was not asked anew."
    return told
