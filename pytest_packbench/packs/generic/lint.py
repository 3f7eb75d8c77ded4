"""What a machine can see is not good in a generic suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pytest_packbench.model.finding import Finding
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs.generic.paths import MISSING
from pytest_packbench.packs.generic.scoring import threshold_of, wanted_category

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.finding import FiledCase
    from pytest_packbench.packs.generic.model import GenericCase, GenericSuiteConfig


def lint(cases: Sequence[FiledCase], rules: GenericSuiteConfig) -> Iterator[Finding]:
    """Give the findings: what is forbidden by no case, and a refusal that passes with the wrong category."""
    everything = [_case(filed) for filed in cases]
    for index, check in enumerate(rules.plan.forbidden):
        if everything and all(check.expected_in(case.expected) is MISSING for case in everything):
            message = f"no case has {check.expected} under expected, so nothing is forbidden; write it into one"
            yield Finding(file=CONFIG_NAME, pointer=f"/forbidden/{index}", rule="forbidden_unused", message=message)
    for filed in cases:
        yield from _category(filed, rules)


def _case(filed: FiledCase) -> GenericCase:
    return cast("GenericCase", filed.loaded.case)


def _category(filed: FiledCase, rules: GenericSuiteConfig) -> Iterator[Finding]:
    case = _case(filed)
    if not rules.plan.refusal_due(case.expected) or wanted_category(case, rules.plan) is None:
        return
    threshold = threshold_of(case, rules)
    if rules.refusal.wrong_category >= threshold:
        points = f"{rules.refusal.wrong_category:g} points reach {threshold:g}"
        message = f"a refusal of any category passes, {points}; lower refusal.wrong_category"
        yield Finding(file=filed.file, pointer="/expected", rule="category_undecided", message=message)
