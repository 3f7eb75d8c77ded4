"""What a run means, in words: whether it passed, why, and what it can't tell (design 4 and 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_packbench.analysis.figures import count
from pytest_packbench.analysis.sums import AUTHORED
from pytest_packbench.analysis.trials import facet_of, remark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.analysis.statistics import Statistics, Totals
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.run import Run


# of the gates that fail, so many are named in a sentence
_NAMED = 3
_REPLAYED_WHOLE = ("http:", "https:", "cmd:")


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


def judge(run: Run, statistics: Statistics, gate_results: Sequence[GateResult]) -> Judgement:
    """Judge a run as pytest's exit code does (design 4).

    Args:
        run: its setting `gate` says whether each failing case fails the run (`case`) or the gates alone do (`suite`).
        statistics: the numbers.
        gate_results: how the gates decided.

    Returns:
        The judgement, in plain text that may hold names out of cases: escape it where it is shown.
    """
    reasons = list(_reasons(run, statistics, gate_results))
    overall = statistics.overall
    status: Literal["passed", "failed", "partial"] = "failed" if reasons else "partial" if run.partial else "passed"
    words = [status.upper()]
    if run.partial and status != "partial":
        words.append("PARTIAL")
    sentences = [f"{_capital('; '.join(reasons))}."] if reasons else [_good(run, statistics, gate_results)]
    if run.partial:
        sentences.append(f"The run is not complete: {run.partial}.")
    return Judgement(
        status=status,
        headline=f"{', '.join(words)}, {overall.passed} of {overall.n} judged cases passed",
        sentence=" ".join(sentences),
    )


def limits(run: Run, statistics: Statistics) -> list[str]:
    """Say what the run can tell and what it can't (design 7).

    Args:
        run: tells mode, target and where the suite comes from.
        statistics: tells whose answers were judged.

    Returns:
        Sentences, in plain text that may hold names from outside.
    """
    found = [_origin(run, statistics)]
    if run.mode == "fixture" and statistics.totals.stale:
        found.append(_stale(statistics.totals))
    if run.mode == "fixture" and run.target.startswith(_REPLAYED_WHOLE):
        found.append("Pipeline not run: scoring only; the target's results were replayed whole.")
    if run.bundled:
        found.append("The suite is bundled: it came with the installed package, not from this project.")
    facet = facet_of(run)
    if facet and statistics.has_intervals:
        clusters = sum(group.n > 0 for group in statistics.grouped().get(facet, ()))
        alone = statistics.overall.n - sum(group.n for group in statistics.grouped().get(facet, ()))
        told = remark(statistics.overall.n, clusters + alone, facet)
        found += [f"{told}; Wilson intervals and exact bounds take them as independent."] if told else []
    return [*found, *run.findings]


def _reasons(run: Run, statistics: Statistics, gate_results: Sequence[GateResult]) -> Iterator[str]:
    verdicts, n = statistics.totals.verdicts, statistics.overall.n
    if verdicts["failed"] and run.settings.get("gate") != "suite":
        yield f"{verdicts['failed']} of {count(n, 'judged case')} failed"
    if verdicts["error"]:
        yield f"{count(verdicts['error'], 'case')} broke (error)"
    if verdicts["vacuous"]:
        yield f"{count(verdicts['vacuous'], 'case')} could not have failed (vacuous)"
    if not n and "shard" not in run.settings:
        yield "no case was judged"
    # what did not run is no failure: `partial` says it
    broken = [each for each in gate_results if not (each.passed or (run.partial and each.metric == "completeness"))]
    if len(broken) == 1:
        yield f"the gate {broken[0].text}"
    elif broken:
        more = f" and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
        names = ", ".join(each.subject for each in broken[:_NAMED])
        yield f"{len(broken)} of {count(len(gate_results), 'gate')} do not hold: {names}{more}"


def _good(run: Run, statistics: Statistics, gate_results: Sequence[GateResult]) -> str:
    overall = statistics.overall
    share = "all" if overall.passed == overall.n else str(overall.passed)
    done = "The one judged case passed" if overall.passed == overall.n == 1 else ""
    done = done or (
        _capital(f"{share} of {count(overall.n, 'judged case')} passed") if overall.n else "No case is here"
    )
    if "shard" in run.settings:
        return f"{done}; packbench merge judges the gates."
    failing = sum(not result.passed for result in gate_results)
    # a run in which every case fails passes so, and nobody should read that as good
    if run.settings.get("gate") == "suite" and all(result.metric == "completeness" for result in gate_results):
        holds = f": completeness {'does not hold' if failing else 'holds'}" if gate_results else ""
        return f"{done}; no gate judges them{holds}."
    if not gate_results:
        return f"{done}."
    if failing:
        return f"{done}; completeness does not hold."
    return f"{done}; {'the gate holds' if len(gate_results) == 1 else f'all {len(gate_results)} gates hold'}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _stale(totals: Totals) -> str:
    whose = "The recording" if totals.stale == 1 else "The recordings"
    return f"{whose} of {totals.stale} of {count(totals.selected, 'case')} answered another prompt than today's."


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
