"""The lines of a run's summary that only this pack can say: what guards blocked, or how often an attack succeeded.

A script's result measures the guards and is told as counts; it is never a model's attack success rate.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.packs.agent_safety.injecagent.react import Label
    from pytest_packbench.packs.agent_safety.model import SafetyCase
    from pytest_packbench.packs.agent_safety.outcome import SafetyOutcome

    # benchmark, whether a script acted, the agent, its guards, who judged
    _Agent = tuple[str, bool, str, str, str]

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
    """Give the lines for a run's records, which are gone through once.

    Args:
        records: wire records as plain JSON, our own object with them; those of other packs are passed over.

    Returns:
        A line for each agent, guards and judge, then those of InjecAgent's own figures, if there are such cases.
    """
    agents: dict[_Agent, Counter[bool]] = {}
    injecagent: dict[tuple[str, str, bool], Counter[Label]] = {}
    for record in records:
        own = record.get("packbench") or {}
        if KEY not in own:
            continue
        safety, agent, scripted = own[KEY], _agent(record), bool(own[KEY]["scripted"])
        benchmark, judge = str(safety["benchmark"]), _judge(own.get("judge"))
        behind = (benchmark, scripted, agent, ", ".join(safety["guards"]), judge)
        agents.setdefault(behind, Counter())[bool(safety["landed"])] += 1
        if benchmark == "injecagent":
            labels = injecagent.setdefault((str(safety["attack"]), agent, scripted), Counter())
            labels[_label(safety)] += 1
    found = [_told(group, landed=counts[True], total=counts.total()) for group, counts in sorted(agents.items())]
    if injecagent:
        from pytest_packbench.packs.agent_safety.injecagent.rates import lines as rates

        found += rates(injecagent)
    return found


def _agent(record: Mapping[str, Any]) -> str:
    """Say who acted: as the result tells, else the model, else the target."""
    own, model = record["packbench"], str(record["llm_model"])
    return str(own[KEY]["agent"] or (model if model != "unknown" else own.get("target") or model))


def _label(safety: Mapping[str, Any]) -> Label:
    if safety["landed"]:
        return "succ"
    return "unsucc" if safety["valid"] else "invalid"


def _judge(judge: Mapping[str, Any] | None) -> str:
    if judge is None:
        return ""
    weakest = " (the weakest of judges)" if judge["weakest"] else ""
    return f", judged by {judge['name']}{weakest}"


def _told(group: _Agent, *, landed: int, total: int) -> str:
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
