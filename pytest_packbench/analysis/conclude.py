"""The end of a run: its numbers, how its gates decide, whether it passed, and what changed since an earlier run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from pytest_packbench.analysis.conclusion import judge
from pytest_packbench.analysis.gates import baseline_of, gate_tally, judged, of_a_part, of_a_shard
from pytest_packbench.analysis.listing import Listing
from pytest_packbench.analysis.statistics import statistics_of
from pytest_packbench.analysis.trials import facet_of, rule_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.analysis.comparison import Comparison
    from pytest_packbench.analysis.statistics import Statistics
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import SuiteConfig
    from pytest_packbench.runs.stored import Earlier

Scope = Literal["whole", "part", "shard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a run came to.

    Attributes:
        run: what is true of all its results.
        statistics: their numbers.
        gates: how the gates decided.
        comparison: what changed since the baseline; None where there is none, or the run is not compared.
    """

    run: Run
    statistics: Statistics
    gates: tuple[GateResult, ...]
    comparison: Comparison | None = None

    @property
    def status(self) -> Literal["passed", "failed", "partial"]:
        """Whether the run passed, as its report says it."""
        return judge(self.run, self.statistics, self.gates).status


class RunCount:
    """A run on its way to its end: its results are counted one by one, and not held.

    Args:
        run: what is true of all results, as far as it is known.
        rules: the suite's, with its gates.
        pack: the suite's pack, which tells the levels of agreement.
        earlier: the earlier run, which gates may ask for.

    Attributes:
        page: the cases that the run's page shows, by case id.
        ends: the cases that a terminal shows, in the order of the results; trials of a case by test id.

    Raises:
        TrialsRuleError: a run was judged by a rule for trials that is none.
    """

    def __init__(self, run: Run, rules: SuiteConfig, pack: Pack, earlier: Earlier) -> None:
        rule = rule_of(run, rules.trials_rule())
        self._levels = pack.depths or None
        self._gates = tuple(rules.all_gates())
        self._baseline = baseline_of(earlier.stored, self._gates, why=earlier.why, trials_rule=rule)
        self.page = Listing("id")
        self.ends = Listing("test" if run.settings.get("trials", 1) != 1 else "given")
        self._tally = gate_tally(
            self._gates,
            trials_rule=rule,
            facet=facet_of(run),
            baseline=self._baseline,
            listings=(self.page, self.ends),
        )

    def add(self, result: CaseResult) -> None:
        """Count a result; those of one case come one after the other."""
        self._tally.add(result)

    def take(self, results: Sequence[CaseResult]) -> Self:
        """Count results in any order."""
        self._tally.take(results)
        return self

    def conclusion(self, run: Run, scope: Scope = "whole", comparison: Comparison | None = None) -> Conclusion:
        """Judge the run, of which all results were counted.

        Args:
            run: what is true of all results.
            scope: as in `conclude`.
            comparison: what changed since the baseline, where it is compared.
        """
        baseline = None if self._baseline is None else self._baseline.for_run(run, self._tally)
        gates = judged(self._tally, self._gates, baseline)
        if scope != "whole":
            gates = of_a_shard(gates) if scope == "shard" else of_a_part(gates)
        figures = statistics_of(self._tally, levels=self._levels)
        return Conclusion(run=run, statistics=figures, gates=gates, comparison=comparison)


def conclude(
    run: Run,
    results: Sequence[CaseResult],
    rules: SuiteConfig,
    pack: Pack,
    earlier: Earlier,
    *,
    scope: Scope = "whole",
    compared: bool = False,
) -> Conclusion:
    """Judge a run that has ended, and whose results are at hand.

    Args:
        run: what is true of all results.
        results: one for each attempt.
        rules: the suite's, with its gates.
        pack: the suite's pack, which tells the levels of agreement.
        earlier: the earlier run, which gates may ask for.
        scope: `part` where cases of the suite were left out on purpose: a gate without a case holds; `shard` where the
            run is to be merged: the gates of the merged run decide.
        compared: whether to say what changed since the baseline; of a shard that can't be said.

    Raises:
        TrialsRuleError: a run was judged by a rule for trials that is none.
    """
    comparison = None
    if compared and earlier.stored is not None and scope != "shard":
        from pytest_packbench.analysis.comparison import compare
        from pytest_packbench.runs.stored import StoredRun

        comparison = compare(earlier.stored, StoredRun(source=run.run_id, run=run, entries=tuple(results)))
    return RunCount(run, rules, pack, earlier).take(results).conclusion(run, scope, comparison)
