"""The lines of a run's summary that only this pack can say: what guards blocked, or how often an attack succeeded.

A script's result measures the guards and is told as counts; it is never a model's attack success rate.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.packs.agent_safety.model import SafetyCase
    from pytest_packbench.packs.agent_safety.outcome import SafetyOutcome

GULLIBLE = "gullible"
KEY = "safety"
"""Where a record's own object (`packbench`) holds what `own_object` gives."""


def own_object(case: SafetyCase, outcome: SafetyOutcome) -> dict[str, Any]:
    """Give what a record says beside the wire's words, under `packbench.safety` and `packbench.judge`, plain JSON."""
    judge = None if outcome.judge is None else outcome.judge.model_dump(mode="json")
    safety = {
        "benchmark": case.input.suite,
        "benchmark_version": case.input.version,
        "attack": case.input.attack,
        "landed": outcome.landed,
        "exposed": outcome.exposed,
        "removed_by": list(outcome.removed_by),
        "tool_calls": len(outcome.tool_calls),
        "denied_calls": sum(call.status == "denied" for call in outcome.tool_calls),
        "valid": outcome.valid,
        "scripted": outcome.scripted,
        "agent": outcome.agent,
        "guards": list(outcome.guards),
        "versions": dict(outcome.versions),
        "details": dict(outcome.details),
    }
    return {KEY: safety} if judge is None else {KEY: safety, "judge": judge}


def lines(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Give the lines for a run's records.

    Args:
        records: wire records as plain JSON, our own object with them; those of other packs are passed over.

    Returns:
        A line for each agent, guards and judge, then those of InjecAgent's own figures, if there are such cases.
    """
    own = [record for record in records if KEY in (record.get("packbench") or {})]
    found = list(_by_agent(own))
    injecagent = [record for record in own if record["packbench"][KEY]["benchmark"] == "injecagent"]
    if injecagent:
        from pytest_packbench.packs.agent_safety.injecagent import summary as rates

        found += rates.lines(injecagent)
    return found


def agent_of(record: Mapping[str, Any]) -> str:
    """Say who acted: as the result tells, else the model, else the target."""
    own, model = record["packbench"], str(record["llm_model"])
    return str(own[KEY]["agent"] or (model if model != "unknown" else own.get("target") or model))


def _by_agent(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    groups: dict[tuple[str, bool, str, str, str], Counter[bool]] = {}
    for record in records:
        safety, judge = record["packbench"][KEY], record["packbench"].get("judge")
        group = (
            str(safety["benchmark"]),
            bool(safety["scripted"]),
            agent_of(record),
            ", ".join(safety["guards"]),
            _judge(judge),
        )
        groups.setdefault(group, Counter())[bool(safety["landed"])] += 1
    for group, counts in sorted(groups.items()):
        yield _told(group, landed=counts[True], total=counts.total())


def _judge(judge: Mapping[str, Any] | None) -> str:
    if judge is None:
        return ""
    weakest = " (the weakest of judges)" if judge["weakest"] else ""
    return f", judged by {judge['name']}{weakest}"


def _told(group: tuple[str, bool, str, str, str], *, landed: int, total: int) -> str:
    benchmark, scripted, agent, guards, judge = group
    if not scripted:
        behind = f" behind {guards}" if guards else ""
        return f"{benchmark}, {agent}{behind}: attack success {landed} of {total}{judge}"
    script = f"{benchmark}, scripted agent {agent}"
    if not guards:
        return f"{script}, no guard: {landed} of {total} attacks landed (a control of the test, no model's rate){judge}"
    if agent != GULLIBLE:
        # it follows no attack, so that no guard had anything to stop
        told = f"{landed} of {total} attacks landed (a control of the test, no model's rate)"
        return f"{script} behind {guards}: {told}{judge}"
    many = "guards" if ", " in guards else "guard"
    return f"{script}: {many} {guards} blocked {total - landed} of {total} attacks{judge}"
