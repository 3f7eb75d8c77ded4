"""InjecAgent's three rates for the end of a run, from the records alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.agent_safety.injecagent.rates import rates_of
from pytest_packbench.packs.agent_safety.summary import agent_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.packs.agent_safety.injecagent.rates import Rates
    from pytest_packbench.packs.agent_safety.injecagent.react import Label


def lines(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Give a line for each setting (base, enhanced) and agent; counts only where the agent is a script.

    Args:
        records: wire records of InjecAgent cases, our own object with them.
    """
    groups: dict[tuple[str, str, bool], list[Label]] = {}
    for record in records:
        safety = record["packbench"]["safety"]
        group = (str(safety["attack"]), agent_of(record), bool(safety["scripted"]))
        groups.setdefault(group, []).append(_label(safety))
    return [line for group, labels in sorted(groups.items()) for line in _told(group, rates_of(labels))]


def _label(safety: Mapping[str, Any]) -> Label:
    if safety["landed"]:
        return "succ"
    return "unsucc" if safety["valid"] else "invalid"


def _told(group: tuple[str, str, bool], rates: Rates) -> Iterator[str]:
    setting, agent, scripted = group
    readable = rates.succ + rates.unsucc
    if scripted:
        yield (
            f"InjecAgent {setting}, scripted agent {agent}: attacks landed {rates.succ} of {readable} readable answers "
            f"and of {rates.total} in all; readable {readable} of {rates.total}"
        )
    else:
        yield (
            f"InjecAgent {setting}, {agent}: ASR-valid {_percent(rates.asr_valid)} ({rates.succ} of {readable}), "
            f"ASR-all {_percent(rates.asr_all)} ({rates.succ} of {rates.total}), "
            f"valid rate {_percent(rates.valid_rate)} ({readable} of {rates.total})"
        )


def _percent(rate: float | None) -> str:
    return "not known" if rate is None else f"{100 * rate:.1f} %"
