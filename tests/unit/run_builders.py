"""Entries, runs and gates for tests of what is made from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from pytest_packbench.analysis.conclusion import Conclusion
from pytest_packbench.analysis.gates import Baseline, gate_tally, judge_gates
from pytest_packbench.analysis.listing import Listing
from pytest_packbench.analysis.statistics import Statistics, statistics_of
from pytest_packbench.analysis.tally import Tally
from pytest_packbench.analysis.trials import MEAN, trials_rule_of
from pytest_packbench.model.gate import Gate, GateResult
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.run import Run
from pytest_packbench.packs.agent_safety.metrics import ATTACK_METRICS
from pytest_packbench.reports.document import run_document
from pytest_packbench.reports.markdown import summary_markdown
from pytest_packbench.reports.terminal import summary_lines
from pytest_packbench.runs.report import row_line
from pytest_packbench.runs.writer import sort_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.analysis.trials import Rule


def gate(metric: Any = None, least: float | None = None, most: float | None = None, **other: Any) -> Gate:
    """A gate as a suite has it; bounds also as `min` and `max`."""
    given = {"metric": metric, "min": least, "max": most, **other}
    return Gate(**{name: value for name, value in given.items() if value is not None})


COMPLETE = gate("completeness", min=1.0)


def case_result(case_id: str = "one", verdict: str = "passed", **changes: Any) -> CaseResult:
    """An entry; a judged one has a score, a threshold of 0.8 and a model's answer."""
    judged: dict[str, Any] = {}
    if verdict in {"passed", "failed"}:
        judged = {
            "score": 1.0 if verdict == "passed" else 0.25,
            "threshold": 0.8,
            "expects_refusal": False,
            "refused": False,
            "llm_backend": "anthropic",
            "llm_model": "m-1",
        }
    common: dict[str, Any] = {
        "suite": "toy",
        "test_id": f"toy:plain:{case_id}",
        "case_id": case_id,
        "nodeid": f"cases/{case_id}.json::{case_id}",
        "file": f"cases/{case_id}.json",
        "verdict": verdict,
        "case_type": "plain",
        "difficulty": "easy",
    }
    return CaseResult(**{**common, **judged, **changes})


def case_results(passed: int, failed: int = 0, **changes: Any) -> list[CaseResult]:
    """Return this many passed and failed results."""
    verdicts = ["passed"] * passed + ["failed"] * failed
    return [case_result(f"c{number}", verdict, **changes) for number, verdict in enumerate(verdicts)]


def run(**changes: Any) -> Run:
    """A complete run in fixture mode."""
    common: dict[str, Any] = {
        "run_id": "01J0000000000000000000RUN1",
        "suite": "toy",
        "description": "a toy",
        "pack": "toy",
        "pack_version": "1",
        "suite_sha256": "ab" * 32,
        "bundled": False,
        "mode": "fixture",
        "target": "reference",
        "started_at": "2026-01-02T03:04:05.000Z",
        "finished_at": "2026-01-02T03:04:06.000Z",
        "versions": {"python": "3.11.0"},
        "settings": {"gate": "case"},
    }
    return Run(**{**common, **changes})


def statistics(
    found: Iterable[CaseResult], *, levels: Sequence[int] | None = None, trials_rule: Rule = MEAN
) -> Statistics:
    """The numbers of these entries."""
    return statistics_of(Tally(trials_rule=trials_rule).add_all(found), levels=levels)


def check(
    found: Iterable[CaseResult],
    rules: Iterable[Gate],
    earlier: Sequence[CaseResult] | None = None,
    *,
    trials_rule: Rule = MEAN,
    cluster: str = "",
) -> tuple[GateResult, ...]:
    """How gates decide on these entries, beside those of an earlier run that is taken to be of the same kind."""
    rules = tuple(rules)
    baseline = None if earlier is None else Baseline.from_results(earlier, trials_rule)
    tally = gate_tally(rules, metrics=ATTACK_METRICS, trials_rule=trials_rule, facet=cluster, baseline=baseline)
    return judge_gates(tally.add_all(found), rules, baseline)


def conclusion_of(
    of: Run, found: Sequence[CaseResult], *rules: Gate, levels: Sequence[int] | None = None
) -> Conclusion:
    """What a run of these entries came to."""
    rule = trials_rule_of(of)
    return Conclusion(
        run=of,
        statistics=statistics(found, levels=levels, trials_rule=rule),
        gates=check(found, rules, trials_rule=rule),
        page_cases=Listing("id").add_all(found, rule),
        terminal_cases=Listing("given").add_all(found, rule),
    )


def document(of: Run, found: Sequence[CaseResult], *rules: Gate, levels: Sequence[int] | None = None) -> dict[str, Any]:
    """The JSON object of a run of these entries, with the rows of its cases."""
    told = run_document(conclusion_of(of, found, *rules, levels=levels))
    return {**told, "cases": [json.loads(row_line(one)) for one in sort_results(found)]}


def summary(found: Sequence[CaseResult], *rules: Gate, **changes: Any) -> str:
    """The Markdown of a run of these entries."""
    return summary_markdown(conclusion_of(run(**changes), found, *rules))


def lines(found: Sequence[CaseResult], *rules: Gate, **changes: Any) -> list[str]:
    """The terminal's lines for a run of these entries."""
    return summary_lines(conclusion_of(run(**changes), found, *rules))


@st.composite
def any_case_result(draw: st.DrawFn) -> CaseResult:
    """An entry of any verdict, quarantined or not, with few values to group by."""
    verdict = draw(st.sampled_from(["passed", "failed", "error", "vacuous", "known_hole", "not_run"]))
    kind = draw(st.sampled_from(["", "", "", "skip", "xfail"]))
    judged: dict[str, Any] = {}
    if verdict in {"passed", "failed"}:
        judged = {
            "score": draw(st.floats(0, 1)),
            "match_depth": draw(st.none() | st.integers(0, 10)),
            "expects_refusal": draw(st.booleans()),
            "refused": draw(st.booleans()),
            "llm_backend": draw(st.sampled_from(["stub", "anthropic", "unknown"])),
        }
    return case_result(
        draw(st.sampled_from(["a", "b", "c"])),
        verdict,
        kind=kind,
        case_type=draw(st.sampled_from(["", "plain", "odd"])),
        difficulty=draw(st.sampled_from(["", "easy", "expert"])),
        facets=draw(st.dictionaries(st.sampled_from(["colour", "size"]), st.sampled_from(["x", "y"]))),
        tags=tuple(draw(st.lists(st.sampled_from(["t", "u"])))),
        stale=draw(st.booleans()),
        **judged,
    )
