"""What is true of a suite's run as a whole: the facts that reports begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.engine.contexts import guard_name
from pytest_packbench.engine.metering import CAPS
from pytest_packbench.engine.results import clock, versions
from pytest_packbench.model.run import CLUSTER, Run
from pytest_packbench.pytest_plugin.selection import part_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.shard import Shard
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.recorder import Recorder, SuiteRun
    from pytest_packbench.pytest_plugin.suites import SessionSuites


def run_facts(recorder: Recorder, run: SuiteRun, entries: list[CaseResult], now: int) -> Run:
    """Give what is true of a suite's run.

    Args:
        recorder: the session's.
        run: the suite's share of it.
        entries: what ran; those that did not run stand in it at the end.
        now: UTC clock, nanoseconds since 1970.
    """
    pack = recorder.benches.pack_of(run.suite)
    return Run(
        run_id=recorder.run_id,
        suite=run.suite.name,
        description=run.suite.config.description,
        pack=pack.name,
        pack_version=pack.version,
        suite_sha256=run.suite.sha256,
        bundled=run.suite.bundled,
        mode=recorder.benches.settings.mode,
        target=_target_of(entries) or _listed(run.targets) or recorder.benches.target_name(run.suite),
        **_asked(recorder.benches, run.suite),
        started_at=_began(recorder, run.suite.name) or clock(recorder.started_ns),
        finished_at=clock(now),
        partial=_partial(run, entries, recorder.benches.settings.shard),
        versions=versions(),
        settings=_settings(recorder, run.suite),
    )


def _began(recorder: Recorder, suite: str) -> str:
    kept = recorder.resumed.kept.get(suite) if recorder.resumed is not None else None
    return kept.run.started_at if kept is not None and kept.run is not None else ""


def _asked(benches: SessionSuites, suite: Suite) -> dict[str, Any]:
    bench = benches.known(suite)
    return {"backend": bench.backend, "model": bench.model} if bench is not None and bench.backend else {}


def _settings(recorder: Recorder, suite: Suite) -> dict[str, Any]:
    settings, bench = recorder.benches.settings, recorder.benches.known(suite)
    found: dict[str, Any] = {"gate": settings.gate}
    if cluster := recorder.benches.pack_of(suite).cluster:
        found[CLUSTER] = cluster
    if settings.shard is not None:
        found["shard"] = str(settings.shard)
    if settings.trials > 1:
        found |= {"trials": settings.trials, "trials_rule": suite.config.trials_rule()}
    if bench is not None and bench.live is not None:
        caps = settings.caps
        named = {"max_tokens": caps.tokens, "max_cost": caps.cost, "max_seconds": caps.seconds}
        asked = bench.live.asked
        temperature = settings.temperature if asked is None else asked.backend.temperature
        found |= {"temperature": temperature, "concurrency": settings.concurrency}
        found |= {name: cap for name, cap in named.items() if cap is not None}
        found["spent"] = recorder.spent()
    if bench is not None and bench.guards:
        found["guards"] = [guard_name(guard) for guard in bench.guards]
    return found


def _target_of(entries: Iterable[CaseResult]) -> str:
    records = (entry.record for entry in entries if entry.record is not None)
    names = (record.get("packbench", {}).get("target", "") for record in records)
    return _listed({name for name in names if name})


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _partial(run: SuiteRun, entries: list[CaseResult], shard: Shard | None) -> str:
    missing = _missing(run, entries)
    return part_of(shard, missing, run.due, run.present) if shard is not None else missing


def _missing(run: SuiteRun, entries: list[CaseResult]) -> str:
    idle = [entry for entry in entries if entry.verdict == "not_run" and not entry.quarantined]
    kinds = {entry.kind for entry in idle}
    count = f"{len({entry.nodeid for entry in idle})} of {len(run.selected)} cases did not run"
    if "interrupted" in kinds:
        return f"interrupted: {count}"
    capped = next((entry.message for entry in idle if entry.kind in CAPS), "")
    if capped:
        return f"{capped}: {count}"
    if idle:
        return f"stopped early: {count}"
    return f"{len(run.selected)} of {run.due} cases selected" if len(run.selected) < run.due else ""
