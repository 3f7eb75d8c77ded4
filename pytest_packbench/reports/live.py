"""What people are told of a live run: what it is expected to ask, what bounds it, and what it used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.model.run import WORKER_WINDOW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.model.run import ExpectedCalls, RunOptions


def expected_text(expected: ExpectedCalls, mode: str) -> str:
    """Say how many model calls a run is expected to make.

    Args:
        expected: the calls.
        mode: `live` or `record`.
    """
    trials = f" x {expected.trials} trials" if expected.trials > 1 else ""
    attempts = f"{_counted(expected.cases, 'case')}{trials}"
    more = "more model call" if expected.recorded else "model call"
    parts = [
        f"about {_counted(expected.recorded, 'model call')}, as recorded" if expected.recorded else "",
        f"at least {_counted(expected.unrecorded, more)}, for cases without a recording" if expected.unrecorded else "",
        f"{_counted(expected.own, 'attempt')} whose target asks no model of ours" if expected.own else "",
    ]
    return f"packbench: {attempts} to be run in {mode} mode: {'; '.join(filter(None, parts)) or 'nothing to ask'}"


def caps_text(options: RunOptions, *, shared: bool) -> str:
    """Say what bounds a live run; `shared`: several processes run it."""
    caps = options.caps
    named = (
        ("tokens", None if caps.tokens is None else f"{caps.tokens:,}"),
        ("cost", None if caps.cost is None else f"{caps.cost:g}"),
        ("seconds", None if caps.seconds is None else f"{caps.seconds:g}"),
    )
    told = ", ".join(f"{name} {cap}" for name, cap in named if cap is not None)
    if told and shared and (caps.tokens is not None or caps.cost is not None):
        told += " (workers share tokens and cost in equal parts)"
    told = told or "none (set one with --packbench-max-tokens, --packbench-max-cost or --packbench-max-seconds)"
    most = f"{min(options.concurrency, WORKER_WINDOW)} a worker" if shared else f"{options.concurrency}"
    limit = f", {options.case_timeout_s:g} s each" if options.case_timeout_s is not None else ", no time limit"
    return f"packbench: caps: {told}; attempts at once: {most}{limit}; temperature {options.temperature:g}"


def spent_text(spent: Mapping[str, Any]) -> str:
    """Say what a live run used, in one line.

    Args:
        spent: what its ledger says (`Ledger.as_json`).
    """
    if spent["uncounted"] and not spent["calls"] and not spent.get("cached"):
        # what a target asks by itself is known only as far as it tells
        others = f", others told of {spent['tokens']:,}" if spent["tokens"] else ""
        untold = f"{_counted(spent['uncounted'], 'answer')} of the target told no tokens{others}"
        return f"asked: no model call of ours; {untold}, cost unknown"
    cost = "cost unknown" if spent["cost"] is None else f"{spent['cost']:.4f} {spent['currency']}"
    uncounted = f" ({_counted(spent['uncounted'], 'call')} without a token count)" if spent["uncounted"] else ""
    cached = f", {spent['cached']:,} more answered from the cache" if spent.get("cached") else ""
    return f"asked: {_counted(spent['calls'], 'model call')}, {spent['tokens']:,} tokens{uncounted}, {cost}{cached}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
