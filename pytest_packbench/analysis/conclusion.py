"""The end of a run: its statistics, its gates, whether it passed and why, the caveats; and the trend of earlier runs.

A run shows a trend only with like runs: complete runs of the same suite, mode, target, backend, model and guards.
Nothing is judged again.
"""

from __future__ import annotations

from array import array
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_packbench.analysis.counting import (
    ALL,
    MEAN,
    Listing,
    Numbers,
    Statistics,
    by_case,
    cases_of,
    cluster_facet,
    confusion_of,
    dependence_note,
    differences,
    name_some,
    trials_rule_of,
    without_twins,
)
from pytest_packbench.analysis.gates import GateJudge, deferred
from pytest_packbench.analysis.labels import NO_LABELS, Confusion
from pytest_packbench.analysis.statistics import WILSON, capitalized, format_interval, format_percent, rate_interval
from pytest_packbench.analysis.unknown_keys import UnknownKeyCounter, unknown_key_sentences
from pytest_packbench.files import finite_json
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.result import FIXTURE, Result, is_broken
from pytest_packbench.model.run import PROGRAM_RUNS, RUN_DOCUMENT_VERSION, Run
from pytest_packbench.model.suite import AUTHORED, CHANGE_METRICS, Figure, GateResult, SuiteConfig, gates_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.changes import BaselineOutcome, Comparison
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.recording import ControlTally
    from pytest_packbench.model.report import (
        BaselineLookup,
        Exposure,
        Outline,
        PolicyOutcome,
        StoredRun,
        UnknownKeys,
    )


QUARANTINED = "quarantined"
"""The word for a case that its notes exclude, in place of its verdict."""


_MAX_CASES = 16_000


class Kind(NamedTuple):
    """What runs of a suite have in common if their figures belong to one trend: the same pipeline, in the same mode.

    Attributes:
        mode: `fixture`, `live` or `record`.
        target: the name of the target.
        backend: the backend in live mode; empty in fixture mode.
        model: the model in live mode, or those that answered; empty in fixture mode.
        guards: the guards, joined with commas; empty for none.
    """

    mode: str
    target: str
    backend: str
    model: str
    guards: str

    def __str__(self) -> str:
        """Return it in words."""
        model = " / ".join(filter(None, (self.backend, self.model)))
        guards = f"guards {self.guards}" if self.guards else ""
        return ", ".join(filter(None, (f"{self.mode} mode", f"target {self.target}", model, guards)))


class EarlierRun(NamedTuple):
    """An earlier run as its report stored it.

    Attributes:
        outline: what its report states; where the hash of its rules changes, the trend is broken.
        cases: each case by its test id, over its trials; none if they were not read.
    """

    outline: Outline
    cases: Mapping[str, Result] = MappingProxyType({})


def with_cases(stored: StoredRun) -> EarlierRun:
    """Return an earlier run with its cases, which are read once.

    Raises:
        ValueError: one can't be read.
        OSError: the report can't be read.
    """
    return EarlierRun(stored.outline, {case.case.test_id: case for case in cases_of(stored.run, stored.results)})


def since(before: Outline, now: Outline) -> dict[str, Any]:
    """Return by how much `pass_rate` and `mean_score` changed since an earlier run, and which `rules` did.

    If any of the rules, the pack and the trials changed, the figures can't be compared: None, as if not known.
    """
    # each text begins with what differs
    rules = [text.partition(":")[0] for text in differences(before.run, now.run)]
    known = ((name, getattr(before.overall, name), getattr(now.overall, name)) for name in ("pass_rate", "mean_score"))
    return {name: None if rules or None in (old, new) else new - old for name, old, new in known} | {"rules": rules}


def kind_of(run: Run, models: Iterable[str]) -> Kind:
    """Return the kind of a run.

    Args:
        run: its metadata.
        models: which models answered, as `Statistics.models` names them, for a run that itself names none.
    """
    guards = run.settings.get("guards")
    return Kind(
        mode=run.mode,
        target=run.target,
        backend=run.backend or "",
        model="" if run.mode == FIXTURE else run.model or ", ".join(sorted(models)),
        guards=", ".join(map(str, guards)) if isinstance(guards, list | tuple) else "",
    )


def like_runs(
    run: Run,
    models: Iterable[str],
    earlier: Iterable[StoredRun],
    *,
    limit: int = 20,
    max_cases: int = _MAX_CASES,
) -> list[EarlierRun]:
    """Return the latest complete runs that a run can be compared with over time.

    Args:
        run: the run.
        models: as in `kind_of`.
        earlier: complete runs before it, the latest first; no more are taken than needed.
        limit: the largest number of runs.
        max_cases: of how many cases the results are read, the latest run first.

    Returns:
        The runs, the oldest first; runs that can't be read are left out.
    """
    kind = kind_of(run, models)
    like = (stored for stored in earlier if kind_of(stored.run, stored.outline.models) == kind)
    found: list[EarlierRun] = []
    while len(found) < limit and (stored := next(like, None)) is not None:
        max_cases -= stored.outline.totals.selected
        with suppress(ValueError, OSError):
            found.append(with_cases(stored) if max_cases >= 0 else EarlierRun(stored.outline))
    return found[::-1]


def verdict_of(case: Result) -> str:
    """Return the verdict of a case, or that its notes exclude it."""
    return QUARANTINED if case.score.quarantined else case.score.verdict


def verdict_rows(earlier: Iterable[EarlierRun]) -> dict[str, list[str]]:
    """Return the verdicts of each case by its test id, in the order of the runs."""
    rows: dict[str, list[str]] = {}
    for run in earlier:
        for test_id, case in run.cases.items():
            rows.setdefault(test_id, []).append(verdict_of(case))
    return rows


Scope = Literal["whole", "part", "shard"]
Status = Literal["passed", "failed", "partial"]
# the worst last
_STATUSES: tuple[Status, ...] = ("passed", "partial", "failed")
# what pytest or a person stopped is partial; what a cap of the run stopped fails it
_STOPPED_FROM_OUTSIDE = ("interrupted", "stopped early")
_REPLAYED_WHOLE = ("http:", "https:", "cmd:")
_PROVEN = (
    "A passed case proves that the target, given these answers, ends as the case expects; "
    "only live mode shows how often a model gives such answers."
)


class Times(NamedTuple):
    """How long the attempts of a live run took.

    Attributes:
        attempts: how many were judged.
        p50_ms: half of them took no longer, milliseconds.
        p95_ms: 95 % of them took no longer, milliseconds.
    """

    attempts: int
    p50_ms: int
    p95_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a run came to.

    Attributes:
        run: what is true of all its results.
        statistics: their numbers.
        gates: how the gates decided.
        page_cases: the cases that its reports list.
        baseline: what came of comparing it with its baseline; None if none was requested.
        policy: in which points its acceptance policy differs from that of a base; None if none was requested.
        stored_policy: its acceptance policy, as `policy_of` returns it; None where it is not known.
        controls: how its controls ended; None if it has none.
        figures: the named figures of its pack, in the order in which they are shown.
        paired_figures: those of what changed since the baseline.
        stored_status: of a stored run, the status in its report, which is never shown as a better one; else empty.
        times: how long its attempts took; None in fixture mode, and without an attempt that was judged.
        labels: how the labels of its answers agree with the expected ones.
        unknown_keys: keys of its results that the answer model of its pack does not have; None without any.
    """

    run: Run
    statistics: Statistics
    gates: Sequence[GateResult]
    page_cases: Listing = field(default_factory=Listing)
    baseline: BaselineOutcome | None = None
    policy: PolicyOutcome | None = None
    stored_policy: dict[str, Any] | None = None
    controls: ControlTally | None = None
    figures: Sequence[Figure] = ()
    paired_figures: Sequence[Figure] = ()
    stored_status: str = ""
    times: Times | None = None
    labels: Confusion = NO_LABELS
    unknown_keys: UnknownKeys | None = None

    @property
    def compared(self) -> Comparison | None:
        """The comparison with its baseline, if it says anything."""
        return None if self.baseline is None else self.baseline.compared

    @property
    def all_figures(self) -> tuple[Figure, ...]:
        """The named figures of the run, then those of what changed."""
        return (*self.figures, *self.paired_figures)

    @property
    def failed(self) -> bool:
        """Whether a gate, the baseline, the acceptance policy or a control fails the run.

        A live run that has measured nothing fails too.
        """
        return (
            any(_failures_of_the_measure(self))
            or not all(gate.passed for gate in self.gates)
            or (self.measured_nothing and self.run.mode != FIXTURE)
        )

    @property
    def measured_nothing(self) -> bool:
        """Whether no case was judged, in a run that is not part of a larger one."""
        return not self.statistics.overall.n and "shard" not in self.run.settings


def times_of(durations: Iterable[int]) -> Times | None:
    """Return the times of attempts, from their durations in milliseconds; None without one."""
    ordered = sorted(durations)
    if not ordered:
        return None
    p50, p95 = (ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 95))
    return Times(len(ordered), p50, p95)


def conclude(
    run: Run,
    results: Iterable[Result],
    rules: SuiteConfig | None = None,
    levels: Sequence[int] | None = None,
    earlier: BaselineLookup | None = None,
    *,
    scope: Scope = "whole",
    with_errors: bool = True,
) -> Conclusion:
    """Judge a run that has ended.

    Args:
        run: what is true of all results.
        results: one for each attempt, as `by_case` groups them; read once, and not kept.
        rules: the suite's, with its gates; None to count only.
        levels: the depths of agreement to report, above 0; those that occur if there are none.
        earlier: the earlier run to compare with; None if there is no such request.
        scope: `part` if some of the suite's cases were not selected, so that a gate without a case passes; `shard`
            if the run is to be merged, so that gates and comparison are left to the merged run; else `whole`.
        with_errors: whether the results include errors and cases that did not run.

    Raises:
        TrialsRuleError: the settings of a run contain an invalid trials rule.
        ConditionError: a condition on the comparison is malformed.
        MetricError: a metric of the pack raises an exception.
    """
    gates, rule = ((), MEAN) if rules is None else (rules.all_gates(), rules.trials_rule())
    numbers = Numbers(
        gates,
        metrics=None if rules is None else rules.metrics,
        rule=trials_rule_of(run, rule),
        facet=cluster_facet(run),
        mode=run.mode,
        pack=run.pack,
    )
    listing, durations, unknown = Listing(), array("Q"), UnknownKeyCounter()

    def counted() -> Iterator[Result]:
        for trials in by_case(results):
            case = numbers.add(trials)
            listing.add(case)
            for trial in trials:
                unknown.add(trial)
            if run.mode != FIXTURE:
                durations.extend(trial.attempt.duration_ms for trial in trials if trial.record is not None)
            yield case

    comparison = outcome = None
    if earlier is not None and earlier.stored is not None:
        from pytest_packbench.analysis.changes import Comparison

        by = {gate.by for gate in gates if gate.compares and gate.by is not None}
        is_relative = any(gate.max_ratio_to_baseline is not None for gate in gates)
        comparison = Comparison(earlier.stored, run, by=by, rule=rule, numbers=numbers if is_relative else None)
    deque(counted() if comparison is None else comparison.steps(without_twins(counted())), 0)
    if earlier is not None:
        from pytest_packbench.analysis.changes import baseline_outcome

        outcome = baseline_outcome(earlier, comparison, scope)
    return Conclusion(
        run=run,
        statistics=numbers.statistics(levels or None),
        gates=deferred(GateJudge(numbers, outcome, with_errors).results(gates), scope),
        page_cases=listing,
        baseline=outcome,
        times=times_of(durations),
        labels=confusion_of(numbers.groups[ALL]),
        unknown_keys=unknown.counts(),
        figures=tuple(_figures_of_table(numbers)),
    )


def _figures_of_table(numbers: Numbers) -> Iterator[Figure]:
    """Yield a figure for each metric of the pack that has a definition."""
    total = numbers.groups[ALL]
    # an interval is for independent answers that are a sample
    sampled = not numbers.facet and not total.count(lambda profile: profile.authored)
    for name, metric in numbers.metrics.items():
        if metric.definition:
            top, bottom = numbers.measure(name, total)
            yield Figure(
                name=name.replace("_", " "),
                definition=metric.definition,
                count=round(top),
                total=bottom,
                interval=rate_interval(round(top), bottom) if sampled else None,
                headline=True,
            )


def with_figures(
    conclusion: Conclusion,
    pack: Pack,
    results: Callable[[], Iterable[Result]],
    redact: Callable[[str], str] = str,
) -> Conclusion:
    """Return a conclusion with the figures of its pack, and those of what changed since the baseline.

    Args:
        conclusion: what the run came to.
        pack: its pack.
        results: returns one for each attempt, with records and payloads.
        redact: replaces secrets in the texts of figures.

    Raises:
        Exception: the pack raises it, or `results`. Files of the baseline that can't be read are a warning.
    """
    from pytest_packbench.model.pack import figures_of, paired_figures_of

    def shown(figures: Iterable[Figure]) -> list[Figure]:
        return [figure.with_texts(redact) for figure in figures]

    # answers of one run, which are no sample if a person or a script wrote any of them
    of_labels = conclusion.labels.figures(pack.metrics.label, sampled=not conclusion.statistics.authored)
    figures = shown((*conclusion.figures, *of_labels, *figures_of(pack, results())))
    conclusion, outcome = replace(conclusion, figures=figures), conclusion.baseline
    if outcome is None or outcome.compared is None or outcome.stored is None:
        return conclusion
    from pytest_packbench.model.errors import StoredRunError

    try:
        steps = zip_longest(outcome.stored.complete_results(), results())
        in_turn = ((each, bool(later)) for step in steps for later, each in enumerate(step) if each is not None)
        return replace(conclusion, paired_figures=shown(paired_figures_of(pack, in_turn)))
    except (StoredRunError, OSError) as error:
        warning = "; ".join(filter(None, (outcome.warning, f"figures not compared: {error}")))
        return replace(conclusion, baseline=outcome._replace(warning=warning))


class RunVerdict(NamedTuple):
    """Whether a run passed.

    Attributes:
        status: `failed` if a judged case or a gate failed or a case ended in error; else `partial` if cases are
            missing; else `passed`. Cases that were missing because a person or pytest stopped the run fail no gate.
        headline: the status in capitals and the count of cases, for a title.
        sentence: the reasons, one or more sentences in one line.
    """

    status: Status
    headline: str
    sentence: str


def run_verdict(conclusion: Conclusion) -> RunVerdict:
    """Judge a run as pytest's exit code does.

    The run's setting `gate` decides whether each failing case fails the run (`case`) or only the gates do (`suite`).

    Returns:
        The verdict in plain text, which may contain names from cases: escape it before rendering.
    """
    run, overall = conclusion.run, conclusion.statistics.overall
    reasons = list(_failures(conclusion))
    status: Status = "failed" if reasons else "partial" if run.partial else "passed"
    computed, stored = status, conclusion.stored_status
    if stored in _STATUSES:
        status = max(computed, stored, key=_STATUSES.index)
    vacuous = conclusion.statistics.totals.verdicts["vacuous"]
    words = ["PASSED WHERE TESTED" if status == "passed" and vacuous else status.upper()]
    if conclusion.baseline is not None and conclusion.baseline.fails_unseen:
        words.append("NOT COMPARED WITH THE BASELINE")
    if conclusion.policy is not None and conclusion.policy.failed:
        words.append("ACCEPTANCE POLICY CHANGED")
    if run.partial and status != "partial":
        words.append("PARTIAL")
    counted = f"{overall.passed} of {overall.n} judged {'case' if overall.n == 1 else 'cases'} passed"
    if conclusion.measured_nothing:
        counted = "NOTHING MEASURED"
    if vacuous:
        counted += f", {vacuous} of {pluralize(overall.n + vacuous, 'case')} vacuous"
    sentences = [f"{capitalized('; '.join(reasons or [_success(conclusion), *_unnoticed(conclusion)]))}."]
    if run.partial:
        sentences.append(f"The run is incomplete: {run.partial}.")
    if stored and stored != computed:
        sentences.append(f"The report of the run states {stored}.")
    return RunVerdict(
        status=status,
        headline=f"{', '.join(words)}, {counted}",
        sentence=" ".join(sentences),
    )


# the figures of packs that say how many cases an attack reached
_EXPOSURE = "exposure"


def caveats(conclusion: Conclusion) -> list[str]:
    """Return what the run measures and what it does not, in sentences that may contain names from cases and answers."""
    run, statistics, exposure = conclusion.run, conclusion.statistics, conclusion.statistics.exposure
    # a figure of the pack says it more exactly, by agent
    is_figure = any(figure.name.startswith(_EXPOSURE) for figure in conclusion.figures)
    sentences = [exposure_sentence(exposure)] if exposure is not None and not is_figure else []
    sentences.append(_origin_of_answers(run, statistics))
    if run.mode == "fixture" and statistics.totals.stale:
        stale, cases = statistics.totals.stale, pluralize(statistics.totals.selected, "case")
        sentences.append(
            f"{stale} of {cases} used a stale recording: the prompt has changed since the recording was made."
        )
    sentences += [f"{pluralize(count, 'case')}: {remark}." for remark, count in statistics.remarks.items()]
    if run.mode == "fixture" and run.target.startswith(_REPLAYED_WHOLE):
        sentences.append(
            "The program ran on its recorded model calls. Of cases without any, the recorded result was replayed."
            if run.settings.get(PROGRAM_RUNS)
            else "Pipeline not run: scoring only. The target's recorded results were replayed."
        )
    if run.bundled:
        sentences.append("The suite is bundled: it comes from the installed package, not from this project.")
    facet = cluster_facet(run)
    if facet and statistics.has_intervals:
        groups = statistics.grouped().get(facet, ())
        clusters = sum(group.n > 0 for group in groups)
        unclustered = statistics.overall.n - sum(group.n for group in groups)
        note = dependence_note(statistics.overall.n, clusters + unclustered, facet)
        sentences += [f"{note}; Wilson intervals and exact bounds assume independent cases."] if note else []
    return [*sentences, *run.findings, *unknown_key_sentences(conclusion.unknown_keys, run.pack)]


def exposure_sentence(exposure: Exposure) -> str:
    """Return in one sentence how many of the cases that ran could have failed."""
    interval = exposure.interval
    bounds = "" if interval is None else f", 95 % Wilson interval {format_interval(interval)}"
    share = format_percent(exposure.tested, exposure.n)
    vacuous = exposure.n - exposure.tested
    return (
        f"Exposure rate: {exposure.tested} of {pluralize(exposure.n, 'case')} could have failed ({share}{bounds}); "
        f"{vacuous} vacuous: neither passed nor failed."
    )


def _failures(conclusion: Conclusion) -> Iterator[str]:
    run, gates = conclusion.run, conclusion.gates
    yield from _failures_of_the_measure(conclusion)
    verdicts, n = conclusion.statistics.totals.verdicts, conclusion.statistics.overall.n
    if verdicts["failed"] and run.settings.get("gate") != "suite":
        yield f"{verdicts['failed']} of {pluralize(n, 'judged case')} failed"
    if verdicts["error"]:
        yield f"{pluralize(verdicts['error'], 'case')} ended in error"
    vacuous = verdicts["vacuous"] - conclusion.statistics.unread
    if vacuous and is_broken("vacuous", run.mode):
        yield f"{pluralize(vacuous, 'case')} could not have failed (vacuous)"
    if conclusion.measured_nothing:
        yield "no case was judged, so this run measured nothing"
    unseen = conclusion.baseline is not None and conclusion.baseline.fails_unseen
    stopped = any(cause in run.partial for cause in _STOPPED_FROM_OUTSIDE)
    failed = [gate for gate in gates if not (gate.passed or (stopped and gate.metric == "completeness"))]
    if unseen:
        # that the run was not compared has been said
        failed = [gate for gate in failed if gate.metric not in CHANGE_METRICS.values()]
    if len(failed) == 1:
        yield f"gate {failed[0].text}"
    elif failed:
        names = name_some([gate.subject for gate in failed])
        yield f"{len(failed)} of {pluralize(len(gates), 'gate')} failed: {names}"


def _failures_of_the_measure(conclusion: Conclusion) -> Iterator[str]:
    """Yield what fails a run whatever its cases came to."""
    if conclusion.policy is not None and conclusion.policy.failed:
        yield f"acceptance policy: {conclusion.policy.headline}"
    if conclusion.baseline is not None:
        yield from conclusion.baseline.failures
    if conclusion.controls is not None:
        counts = conclusion.controls.counts
        if counts.deviates:
            yield f"{pluralize(counts.deviates, 'control')} did not end as written: the measure may miss wrong answers"
        if counts.broken:
            yield f"{pluralize(counts.broken, 'control')} could not be replayed"


def _success(conclusion: Conclusion) -> str:
    run, gates, overall = conclusion.run, conclusion.gates, conclusion.statistics.overall
    judged = pluralize(overall.n, "judged case")
    if not overall.n:
        cases = "No case was judged"
    elif overall.passed < overall.n:
        cases = f"{overall.passed} of {judged} passed"
    else:
        cases = {1: "The only judged case passed", 2: "Both judged cases passed"}.get(overall.n, f"All {judged} passed")
    vacuous = conclusion.statistics.totals.verdicts["vacuous"]
    if vacuous:
        cases += (
            f"; {vacuous} of {pluralize(overall.n + vacuous, 'case')} could not have failed, so that they show nothing"
        )
    if "shard" in run.settings:
        return f"{cases}; packbench merge judges the gates"
    # with gate=suite and no gate on scores, a run passes even if all its cases fail
    if run.settings.get("gate") == "suite" and all(gate.metric == "completeness" for gate in gates):
        return f"{cases}; no gate judges their scores"
    if not gates:
        return cases
    if not all(gate.passed for gate in gates):
        return f"{cases}; completeness failed"
    return f"{cases}; {_passed_gates(gates)}{_unproven(gates)}"


def _passed_gates(gates: Sequence[GateResult]) -> str:
    """Return how many gates passed, of which none failed."""
    if not all(gate.judged for gate in gates):
        return f"gates: {gates_text(gates)}"
    return {1: "the gate", 2: "both gates"}.get(len(gates), f"all {len(gates)} gates") + " passed"


def _unnoticed(conclusion: Conclusion) -> Iterator[str]:
    """Yield what is worse than in the baseline although the run passes: no gate and no condition asks for it."""
    compared = conclusion.compared
    failing = 0 if compared is None else compared.listed["new_failures"].count
    if failing:
        yield f"{pluralize(failing, 'new failure')} since the baseline"


def _unproven(gates: Sequence[GateResult]) -> str:
    """Return which of the gates passed although the count is too small to show that the rate is within its bounds."""
    names = [gate.subject for gate in gates if gate.proven is False]
    return f", not proven: {name_some(names)}" if names else ""


def _ran_target(run: Run) -> bool:
    """Whether the target ran in fixture mode, rather than being replayed as a whole."""
    return not run.target.startswith(_REPLAYED_WHOLE) or bool(run.settings.get(PROGRAM_RUNS))


def _origin_of_answers(run: Run, statistics: Statistics) -> str:
    n, authored = statistics.overall.n, statistics.authored
    if not n and "shard" not in run.settings:
        return f"{'Fixture' if run.mode == FIXTURE else 'Live'} mode: no case was judged, so this run measured nothing."
    if statistics.all_authored:
        agent = f" ({run.model})" if run.backend == AUTHORED and run.model else ""
        scripted = agent or run.mode != "fixture"
        origin = f"Answers were scripted{agent}" if scripted else "Recordings were authored"
        text = f"{origin}: this run tests gates and scoring, not a model, so no interval is shown."
        return text if scripted or not _ran_target(run) else f"{text} {_PROVEN}"
    models = ", ".join(statistics.models)
    if run.mode == "fixture":
        answered = f", answers recorded from {models}" if models else ""
        text = (
            f"Fixture mode{answered}: this run shows whether the pipeline or the scoring changed, "
            "not how good the model is."
        )
    elif n and not models and not authored:
        text = (
            "Live mode; the target called no model through packbench: "
            "this run shows how good the target is on these cases."
        )
    else:
        text = f"Live mode{f' ({models})' if models else ''}: this run shows how good the model is on these cases."
    if authored:
        text += f" {authored} of {pluralize(n, 'answer')} were authored and say nothing about a model."
    if statistics.cached:
        text += (
            f" {statistics.cached} of {pluralize(n, 'answer')} came, wholly or partly, from the response cache: "
            "the model was not called again for them."
        )
    return text


_STATISTICS = ("totals", "overall", "groups", "depth", "refusals", "exposure", "authored", "models", "cached")


def run_document(conclusion: Conclusion, rerun: str = "") -> dict[str, Any]:
    """Return the conclusion of a run as plain JSON.

    Args:
        conclusion: what it came to.
        rerun: the options of pytest that make the same run, quoted for a shell.

    Returns:
        An object of version `RUN_DOCUMENT_VERSION` with the keys `version`, `status` (`passed`, `failed`, `partial`),
        `complete`, `run`, `totals`, `overall`, `groups`, `depth`, `refusals`, `exposure` if a case was vacuous,
        `authored`, `models`, `cached`, `interval` (how the intervals of the groups are computed), `figures` if the pack
        gives any, `gates`, `rerun` if there are options, `comparison` if a baseline was requested, `policy` (the
        acceptance policy) where it is known, `policy_changes` if a base for it was requested, `controls` if the run has
        any, `trials` if cases have several trials, `unknown_keys` if a result has any, and `cases`, which is empty: the
        writer of the report adds the rows of the results. Units are those of the classes. Numbers that are not finite
        are null. The object shares nothing with the argument.
    """
    run, statistics, trials = conclusion.run, conclusion.statistics, conclusion.statistics.trials
    document = {
        "version": RUN_DOCUMENT_VERSION,
        "status": run_verdict(conclusion).status,
        "complete": not run.partial,
        "run": run,
        **{name: getattr(statistics, name) for name in _STATISTICS},
        "interval": WILSON,
        "figures": [figure.as_json() for figure in conclusion.all_figures] or None,
        "gates": conclusion.gates,
        "rerun": rerun or None,
        "comparison": conclusion.baseline and _comparison(conclusion.baseline),
        "policy": conclusion.stored_policy,
        "policy_changes": conclusion.policy and _policy_changes(conclusion.policy),
        "controls": conclusion.controls and conclusion.controls.counts,
        "trials": trials and {**trials._asdict(), "temperature": run.settings.get("temperature")},
        "unknown_keys": conclusion.unknown_keys,
        "cases": [],
    }
    return {name: finite_json(value) for name, value in document.items() if value is not None}


def _comparison(outcome: BaselineOutcome) -> dict[str, Any]:
    comparison, compared, met = outcome.comparison, outcome.compared, outcome.met
    return {
        "requested": outcome.requested,
        "baseline": comparison and comparison.baseline.run_id,
        "problem": outcome.problem,
        "optional": outcome.optional,
        "warning": outcome.warning,
        "figures": {} if compared is None else compared.figures(),
        "mean": compared and compared.mean,
        "conditions": [{"condition": str(each), "met": each in met} for each in outcome.conditions],
        "failed": bool(outcome.failures),
    }


def _policy_changes(outcome: PolicyOutcome) -> dict[str, Any]:
    return {
        "base": outcome.base,
        "failed": outcome.failed,
        "changes": [{**change._asdict(), "allowed": bool(change.reason)} for change in outcome.changes],
        "problems": outcome.problems,
        "notes": outcome.notes,
    }
