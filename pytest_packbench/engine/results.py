"""From an attempt to the entry that reports are made from, with the wire record inside."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

from pytest_packbench import __version__
from pytest_packbench.model.record import EvalRecord, HookDecision
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.score import scored

if TYPE_CHECKING:
    from pytest_packbench.engine.context import Attempt, SuiteContext
    from pytest_packbench.model.case import Case, LoadedCase
    from pytest_packbench.model.outcome import Outcome
    from pytest_packbench.model.pack import Pack, RecordFacts
    from pytest_packbench.model.record import EvalBackend
    from pytest_packbench.model.score import Score
    from pytest_packbench.model.suite import Suite


_BACKENDS = frozenset({"stub", "anthropic", "openai", "ollama", "llama_guard"})
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a case stands.

    Attributes:
        suite: its suite.
        pack: the suite's pack.
        case_id: its id; the file's stem where it can't be read.
        nodeid: what pytest calls it.
        file: its file as the node id names it.
        folder: the name of the folder that holds the file.
        loaded: the case; None where it can't be read.
    """

    suite: Suite
    pack: Pack
    case_id: str
    nodeid: str
    file: str
    folder: str
    loaded: LoadedCase | None


def clock(ns: int) -> str:
    """Write a UTC clock reading (nanoseconds since 1970) as `YYYY-MM-DDTHH:MM:SS.mmmZ`."""
    return f"{_second(ns // 1_000_000_000)}.{ns // 1_000_000 % 1000:03d}Z"


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


@cache
def versions() -> dict[str, str]:
    """Give the versions of what could change a result, name to version."""
    found = {"pytest_packbench": __version__, "python": platform.python_version()}
    for name in ("pytest", "pydantic"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = UNKNOWN
    return found


def unscored(
    place: Place, verdict: str, kind: str, message: str, *, timestamp: str, duration_ms: int = 0
) -> CaseResult:
    """Make the entry of a case that has no score."""
    try:
        outline = _outline(place)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a pack may be anybody's, and what it broke still needs an entry
        outline = _outline(replace(place, loaded=None))
    return CaseResult(
        **outline, verdict=verdict, kind=kind, message=message, timestamp=timestamp, duration_ms=duration_ms
    )


def entry_of(place: Place, attempt: Attempt, bench: SuiteContext, run_id: str) -> tuple[CaseResult, EvalRecord | None]:
    """Make the entry of an attempt, and the wire record where one is due.

    A case that its notes quarantine (`xfail`) was run and scored, but leaves no record: it is outside the rates.
    """
    timestamp = clock(attempt.finished_ns)
    if place.loaded is None:
        raise ValueError("a case that can't be read has no attempt")
    if attempt.failure is not None or attempt.score is None or attempt.outcome is None:
        failure = attempt.failure
        kind, message = (failure.kind, failure.message) if failure is not None else ("error", "no score")
        broken = unscored(place, "error", kind, message, timestamp=timestamp, duration_ms=attempt.duration_ms)
        return replace(broken, trial=attempt.trial, payload=attempt.payload), None
    score, outcome = attempt.score, attempt.outcome
    backend = _backend(attempt)
    common: dict[str, Any] = {
        **_outline(place),
        "timestamp": timestamp,
        "duration_ms": attempt.duration_ms,
        "score": score.score,
        "threshold": score.threshold,
        "match_level": score.match_level,
        "match_depth": score.match_depth,
        "answer": outcome.answer,
        "refused": outcome.refused,
        "terms": tuple(term.as_json() for term in score.terms),
        "stale": attempt.stale,
        "llm_backend": backend,
        "llm_model": attempt.model,
        "cassette_sha256": attempt.cassette_sha256,
        "trial": attempt.trial,
        "cached": attempt.cached,
        "payload": attempt.payload,
    }
    reason = place.loaded.case.notes.xfail
    if reason is not None:
        message = f"quarantined (xfail): {reason}; {scored(score)}"
        return CaseResult(**common, verdict="known_hole", kind="xfail", message=message), None
    if score.verdict not in {"passed", "failed"} or score.score is None:
        message = score.message or score.verdict
        return CaseResult(**common, verdict=score.verdict, kind=score.verdict, message=message), None
    facts = place.pack.facts(place.loaded.case, outcome, score)
    record = EvalRecord(
        test_suite=facts.test_suite or place.suite.name,
        test_id=common["test_id"],
        attack_category=facts.attack_category,
        agent_decision=facts.agent_decision,
        expected=facts.expected,
        passed=score.passed,
        hook_decisions=_hooks(outcome),
        tokens_input=attempt.usage.tokens_input,
        tokens_output=attempt.usage.tokens_output,
        wall_clock_ms=attempt.duration_ms,
        llm_backend=backend,
        llm_model=attempt.model,
        run_id=run_id,
        timestamp=timestamp,
        packbench={
            **facts.extra,
            **_own_object(place, attempt, score, bench, common),
            **_told(facts),
            **_cached(attempt),
        },
    )
    entry = CaseResult(
        **common,
        verdict=score.verdict,
        expects_refusal=facts.expected == "refuse",
        decision=facts.agent_decision,
        utility=facts.utility,
        valid=facts.valid,
        judge=facts.judge,
        record=record.as_json(),
    )
    return entry, record


def _outline(place: Place) -> dict[str, Any]:
    outline: dict[str, Any] = {
        "suite": place.suite.name,
        "case_id": place.case_id,
        "nodeid": place.nodeid,
        "file": place.file,
    }
    if place.loaded is None:
        return {**outline, "test_id": f"{place.suite.name}:{place.folder}:{place.case_id}"}
    case = place.loaded.case
    return {
        **outline,
        "test_id": _test_id(place, case),
        "case_type": case.case_type,
        "difficulty": case.difficulty,
        "tags": case.notes.tags,
        "facets": _facets(place, case),
        "case_sha256": place.loaded.sha256,
    }


def _test_id(place: Place, case: Case) -> str:
    found: object = place.pack.test_id(place.suite.name, case)
    if not isinstance(found, str) or not found:
        raise TypeError(f"test_id gave {found!r}, expected a text")
    return found


def _facets(place: Place, case: Case) -> dict[str, str]:
    found: object = place.pack.facets(case)
    if not isinstance(found, dict) or not all(isinstance(one, str) for pair in found.items() for one in pair):
        raise TypeError(f"facets gave {found!r}, expected names and values, each a text")
    return found


def _backend(attempt: Attempt) -> EvalBackend:
    return cast("EvalBackend", attempt.backend) if attempt.backend in _BACKENDS else "unknown"


def _hooks(outcome: Outcome) -> tuple[HookDecision, ...]:
    return tuple(
        HookDecision(hook=firing.hook, decision=firing.decision, rule=firing.rule) for firing in outcome.firings
    )


def _own_object(
    place: Place, attempt: Attempt, score: Score, bench: SuiteContext, common: dict[str, Any]
) -> dict[str, Any]:
    return {
        "version": 1,
        "score": score.score,
        "threshold": score.threshold,
        "verdict": score.verdict,
        "terms": list(common["terms"]),
        "match_level": score.match_level,
        "match_depth": score.match_depth,
        "answer": common["answer"],
        "case_id": place.case_id,
        "case_type": common["case_type"],
        "difficulty": common["difficulty"],
        "tags": list(common["tags"]),
        "facets": common["facets"],
        "file": place.file,
        "mode": bench.mode,
        "origin": attempt.cassette.origin if attempt.cassette is not None else None,
        "stale": attempt.stale,
        "trial": attempt.trial,
        "target": bench.target_name,
        "pack": f"{place.pack.name}/{place.pack.version}",
        "bundled": place.suite.bundled,
        "case_sha256": common["case_sha256"],
        "cassette_sha256": common["cassette_sha256"],
        "suite_sha256": place.suite.sha256,
        "versions": versions(),
    }


def _cached(attempt: Attempt) -> dict[str, int]:
    return {"cached": attempt.cached, "calls": attempt.calls} if attempt.cached else {}


def _told(facts: RecordFacts) -> dict[str, bool]:
    told = {"utility": facts.utility, "valid": facts.valid}
    return {name: value for name, value in told.items() if value is not None}
