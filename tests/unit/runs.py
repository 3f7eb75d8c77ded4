"""Entries, runs and gates for tests of what is made from them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pytest_packbench.analysis.gates import check
from pytest_packbench.analysis.statistics import statistics
from pytest_packbench.model.gate import Gate
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.run import Run
from pytest_packbench.reports.markdown import summary_markdown
from pytest_packbench.reports.terminal import table


def a_gate(metric: Any = None, least: float | None = None, most: float | None = None, **other: Any) -> Gate:
    """A gate as a suite has it; bounds also as `min` and `max`."""
    given = {"metric": metric, "min": least, "max": most, **other}
    return Gate(**{name: value for name, value in given.items() if value is not None})


COMPLETE = a_gate("completeness", min=1.0)


def entry(case_id: str = "one", verdict: str = "passed", **changes: Any) -> CaseResult:
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


def entries(passed: int, failed: int = 0, **changes: Any) -> list[CaseResult]:
    """So many entries that passed and that failed."""
    verdicts = ["passed"] * passed + ["failed"] * failed
    return [entry(f"c{number}", verdict, **changes) for number, verdict in enumerate(verdicts)]


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


def summary(found: list[CaseResult], *rules: Gate, **changes: Any) -> str:
    """The Markdown of a run of these entries."""
    return summary_markdown(run(**changes), found, statistics(found), check(found, rules))


def lines(found: list[CaseResult], *rules: Gate, **changes: Any) -> list[str]:
    """The terminal's lines for a run of these entries."""
    return table(run(**changes), found, statistics(found), check(found, rules))


@st.composite
def any_entry(draw: st.DrawFn) -> CaseResult:
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
    return entry(
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
