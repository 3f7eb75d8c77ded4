"""The end of a run: its numbers, how its gates decide, whether it passed, and what changed since an earlier run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_packbench.analysis.conclusion import judge
from pytest_packbench.analysis.gates import check_run, of_a_part, of_a_shard
from pytest_packbench.analysis.statistics import statistics
from pytest_packbench.analysis.trials import rule_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.analysis.comparison import Comparison
    from pytest_packbench.analysis.statistics import Statistics
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import SuiteConfig
    from pytest_packbench.runs.baseline import Earlier

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
    """Judge a run that has ended.

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
    rule = rule_of(run, rules.trials_rule())
    figures = statistics(results, levels=pack.depths or None, trials_rule=rule)
    gates = check_run(run, results, rules.all_gates(), earlier.stored, why=earlier.why, trials_rule=rule)
    if scope != "whole":
        gates = of_a_shard(gates) if scope == "shard" else of_a_part(gates)
    comparison = None
    if compared and earlier.stored is not None and scope != "shard":
        from pytest_packbench.analysis.comparison import compare
        from pytest_packbench.runs.stored import StoredRun

        comparison = compare(earlier.stored, StoredRun(source=run.run_id, run=run, entries=tuple(results)))
    return Conclusion(run=run, statistics=figures, gates=gates, comparison=comparison)
