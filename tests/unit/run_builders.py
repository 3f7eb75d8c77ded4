"""Results, runs and gates, and what is made of them: statistics, gate results, documents, pages."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import strategies as st

from pytest_packbench.analysis.changes import Comparison, baseline_outcome
from pytest_packbench.analysis.conclusion import Conclusion, run_document
from pytest_packbench.analysis.counting import (
    MEAN,
    Listing,
    Numbers,
    Statistics,
    by_case,
    cluster_facet,
    fold_case,
    trials_rule_of,
    without_twins,
)
from pytest_packbench.analysis.gates import GateJudge
from pytest_packbench.model.report import BaselineLookup, StoredRun
from pytest_packbench.model.result import Attempt, CaseInfo, Result, Score, Term
from pytest_packbench.model.run import Run
from pytest_packbench.model.suite import Gate, GateResult
from pytest_packbench.packs.agent_safety.metrics import GATES as ATTACK_METRICS
from pytest_packbench.reports.story import summary_lines, summary_markdown
from pytest_packbench.runs.writing import row_line, sort_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.analysis.counting import Rule
    from pytest_packbench.model.suite import Metric


def data(name: str) -> Any:
    """Read a file of a folder `data/`, which is the only one of its name."""
    folder = Path(__file__).parents[1]
    (path,) = {*folder.glob(f"*/data/{name}"), *folder.glob(f"data/{name}")}
    return yaml.safe_load(path.read_text("utf-8"))


USUAL = data("usual.yaml")
PARTS: dict[str, tuple[Any, list[str]]] = {
    part: (noun, [each.name for each in fields(noun)])
    for part, noun in {"case": CaseInfo, "attempt": Attempt, "score": Score}.items()
}


def gate(metric: str | None = None, **fields: Any) -> Gate:
    return Gate(**fields) if metric is None else Gate(metric=metric, **fields)


COMPLETE = gate("completeness", min=1.0)


def case_result(case_id: str = "one", verdict: str = "passed", **changes: Any) -> Result:
    """Return a result; a judged one has a score, a threshold of 0.8 and a model's answer."""
    file = f"cases/{case_id}.json"
    names = {"test_id": f"toy:plain:{case_id}", "case_id": case_id, "nodeid": f"{file}::{case_id}", "file": file}
    score = 1.0 if verdict == "passed" else 0.25
    judged = {"score": score, **USUAL["judged"]} if verdict in {"passed", "failed"} else {}
    return result_of(**{**USUAL["result"], **names, **judged, "verdict": verdict, **changes})


def result_of(**fields: Any) -> Result:
    """Return a result with fields of its three parts, which are not validated; terms may be plain JSON."""
    fields = _with_terms(fields)
    known = {"suite": "", "test_id": "", "case_id": "", "nodeid": "", "file": "", "verdict": "passed", **fields}
    parts = {
        part: noun(**{name: known.pop(name) for name in names if name in known})
        for part, (noun, names) in PARTS.items()
    }
    return Result(**parts, **known)


def _with_terms(fields: dict[str, Any]) -> dict[str, Any]:
    terms = [Term(**each) if isinstance(each, dict) else each for each in fields.get("terms", ())]
    return {**fields, "terms": tuple(terms)} if "terms" in fields else fields


def changed(result: Result, **changes: Any) -> Result:
    """Return a result with other values of fields of its three parts."""
    changes = _with_terms(changes)
    parts: dict[str, Any] = {}
    for part, (_, names) in PARTS.items():
        given = {name: changes.pop(name) for name in names if name in changes}
        parts[part] = replace(getattr(result, part), **given)
    return replace(result, **parts, **changes)


def case_results(passed: int, failed: int = 0, **changes: Any) -> list[Result]:
    """Return this many passed and failed results."""
    verdicts = ["passed"] * passed + ["failed"] * failed
    return [case_result(f"c{number}", verdict, **changes) for number, verdict in enumerate(verdicts)]


def run(**changes: Any) -> Run:
    return Run(**{**USUAL["run"], **changes})


def statistics(
    results: Iterable[Result], *, levels: Sequence[int] | None = None, trials_rule: Rule = MEAN
) -> Statistics:
    return numbers_of(results, rule=trials_rule).statistics(levels)


def fold_trials(results: Sequence[Result], rule: Rule = MEAN) -> list[Result]:
    """Return each case over its trials, by test id."""
    return [fold_case(trials, rule) for trials in by_case(results)]


def numbers_of(results: Iterable[Result], rules: Iterable[Gate] = (), **options: Any) -> Numbers:
    """Count results in any order."""
    numbers = Numbers(rules, **options)
    for attempts in by_case(list(results)):
        numbers.add(attempts)
    return numbers


def check(
    results: Iterable[Result],
    rules: Iterable[Gate],
    earlier: Sequence[Result] | None = None,
    *,
    trials_rule: Rule = MEAN,
    mode: str = "fixture",
) -> tuple[GateResult, ...]:
    """Judge results by gates, beside those of an earlier run of the same kind."""
    of = run(mode=mode)
    stored = None if earlier is None else StoredRun(source="f", run=of, results=tuple(earlier))
    lookup = None if stored is None else BaselineLookup(stored=stored)
    return check_run(of, results, rules, lookup, metrics=ATTACK_METRICS, trials_rule=trials_rule)


def check_run(
    of: Run,
    results: Iterable[Result],
    rules: Iterable[Gate],
    earlier: BaselineLookup | None = None,
    *,
    metrics: Mapping[str, Metric] | None = None,
    with_errors: bool = True,
    trials_rule: Rule = MEAN,
) -> tuple[GateResult, ...]:
    """Judge a run by gates, and compare it with an earlier one."""
    rules = tuple(rules)
    rule = trials_rule_of(of, trials_rule)
    numbers = Numbers(rules, metrics=metrics, rule=rule, facet=cluster_facet(of), mode=of.mode)
    comparison = None
    if earlier is not None and earlier.stored is not None:
        by = {rule.by for rule in rules if rule.by is not None}
        comparison = Comparison(earlier.stored, of, by=by, rule=trials_rule, numbers=numbers)
    cases = map(numbers.add, by_case(list(results)))
    deque(cases if comparison is None else comparison.steps(without_twins(cases)), 0)
    outcome = None if earlier is None else baseline_outcome(earlier, comparison, "whole")
    return GateJudge(numbers, outcome, with_errors).results(rules)


def listing_of(results: Iterable[Result], rule: Rule = MEAN, **limits: int) -> Listing:
    listing, numbers = Listing(**limits), Numbers(rule=rule)
    for attempts in by_case(list(results)):
        listing.add(numbers.add(attempts))
    return listing


def conclusion_of(of: Run, results: Sequence[Result], *rules: Gate) -> Conclusion:
    rule = trials_rule_of(of)
    return Conclusion(
        run=of,
        statistics=statistics(results, trials_rule=rule),
        gates=check(results, rules, trials_rule=rule, mode=of.mode),
        page_cases=listing_of(results, rule),
    )


def document(of: Run, results: Sequence[Result], *rules: Gate) -> dict[str, Any]:
    """Return the JSON object of a run with the rows of its cases."""
    rows = [json.loads(row_line(result)) for result in sort_results(results)]
    return {**run_document(conclusion_of(of, results, *rules)), "cases": rows}


def summary(results: Sequence[Result], *rules: Gate, **changes: Any) -> str:
    return summary_markdown(conclusion_of(run(**changes), results, *rules))


def lines(results: Sequence[Result], *rules: Gate, **changes: Any) -> list[str]:
    return summary_lines(conclusion_of(run(**changes), results, *rules))


def results_of(rows: Iterable[dict[str, Any]]) -> list[Result]:
    """Return the results that `data/gates.yaml` describes."""
    results: list[Result] = []
    for row in rows:
        changes = {"case_sha256": "ab" * 32, **row}
        first, count = changes.pop("id", f"c{len(results)}"), changes.pop("n", 1)
        if "verdict" not in row and isinstance(row.get("score"), float):
            changes["verdict"] = "passed" if row["score"] >= 0.8 else "failed"
        changes |= {name: tuple(row[name]) for name in ("tags", "terms") if name in row}
        names = [first] if count == 1 else [f"c{int(first[1:]) + number}" for number in range(count)]
        results += [case_result(name, **changes) for name in names]
    return results


ONE_OF_EACH = results_of(data("results.yaml"))
TERMS = ONE_OF_EACH[1].score.terms


def any_of(**values: Iterable[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw one value for each name at once, which is faster than one after the other."""
    return st.sampled_from([dict(zip(values, each, strict=True)) for each in product(*values.values())])


LABELS = any_of(
    case_type=("", "plain", "odd"),
    difficulty=("", "easy", "expert"),
    facets=({}, {"colour": "x"}, {"colour": "y", "size": "x"}),
    tags=((), ("t",), ("u", "t", "t")),
    stale=(False, True),
)
ANSWERS = any_of(
    match_depth=(None, 0, 4, 10),
    expects_refusal=(False, True),
    refused=(False, True),
    llm_backend=("stub", "anthropic", "unknown"),
)
VERDICTS = any_of(
    verdict=("passed", "failed", "error", "vacuous", "known_hole", "not_run"), kind=("", "", "", "skip", "xfail")
)


@st.composite
def any_case_result(draw: st.DrawFn, case_id: str = "", trial: int = 0) -> Result:
    """A result of any verdict, quarantined or not, with few values to group by; few draws keep it fast."""
    verdict = draw(VERDICTS)
    judged = {"score": draw(st.floats(0, 1)), **draw(ANSWERS)} if verdict["verdict"] in {"passed", "failed"} else {}
    return case_result(case_id or draw(st.sampled_from("abc")), trial=trial, **verdict, **draw(LABELS), **judged)


@st.composite
def any_results(draw: st.DrawFn, *, trials: bool = False) -> list[Result]:
    """The results of a run: one for each case, or a few trials."""
    case_ids = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6))
    counts = {case_id: draw(st.integers(1, 3)) if trials else 1 for case_id in case_ids}
    return [draw(any_case_result(name, trial)) for name, count in counts.items() for trial in range(count)]
