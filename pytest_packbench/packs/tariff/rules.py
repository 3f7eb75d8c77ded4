"""The rules of interpretation by name, and the rule that decides a trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.packs.tariff.checks.sequence import TraceStep

Rule = Literal["1", "2a", "2b", "3a", "3b", "3c", "4", "5a", "5b", "6", "us_1a", "us_1b", "us_1c", "us_1d"]
Level = Literal["heading", "subheading", "line", "suffix"]
RULES: tuple[str, ...] = get_args(Rule)
_LEVELS: tuple[str, ...] = get_args(Level)
_BESIDE = frozenset({"5a", "5b", "us_1a", "us_1b", "us_1c", "us_1d"})
"""Rules that apply beside the one that decides."""
_ROUTINE = "6"
_PREFIX = re.compile(r"gri|generalrule(?:ofinterpretation)?|rule")
_US = re.compile(r"(?:add(?:itional|l)?)?us(?:rules?)?(?:ofinterpretation)?")


def parse_rule(text: object) -> Rule | None:
    """Return a rule in one spelling: `3b` for `3(b)`, `GRI 3(b)` or `gri_3b`; None for anything else."""
    if not isinstance(text, str):
        return None
    plain = re.sub(r"[\s_.()\-]", "", text.lower())
    us_rule = _US.match(plain)
    short = f"us_{plain[us_rule.end() :]}" if us_rule else _PREFIX.sub("", plain)
    return short if short in RULES else None  # type: ignore[return-value]  # a member of the literal


def deciding_rules(steps: Sequence[TraceStep]) -> list[str]:
    """Return the rules that decide a trace.

    They are those of the heading or, where rule 1 decides it, of the level below it that another rule decides. Rule 6
    opens every level below the heading, and rule 5 and the Additional US Rules apply beside others, so none of them
    decides. More than one rule for a level contradict each other.
    """
    by_level = [_decided(steps, level) for level in _LEVELS]
    below = next((rules for rules in reversed(by_level[1:]) if rules), [])
    return below if by_level[0] == ["1"] and below else by_level[0]


def _decided(steps: Sequence[TraceStep], level: str) -> list[str]:
    rules = (step.rule for step in steps if step.level == level and step.outcome == "decided")
    return list(dict.fromkeys(rule for rule in rules if rule not in _BESIDE and rule != _ROUTINE))


def rules_beside(steps: Sequence[TraceStep]) -> set[str]:
    """Return the rules of packing and of the United States that a trace decides by."""
    return {step.rule for step in steps if step.outcome == "decided" and step.rule in _BESIDE}
