"""What commands need of the generic pack, and no run: lint, importers, a starter, accepted answers, an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.model.authoring import Finding, Tools
from pytest_packbench.model.errors import format_value, pluralize
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.generic.rules import ANYWHERE, LIST_RULES, PLAIN_RULES
from pytest_packbench.packs.generic.suite import has_list
from pytest_packbench.packs.generic.values import GENERIC, MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.authoring import FiledCase, Importer, Starter
    from pytest_packbench.model.case import Location
    from pytest_packbench.packs.generic.pack import GenericAnswer
    from pytest_packbench.packs.generic.suite import Comparing, GenericCase, GenericSuiteConfig


class GenericTools(Tools):
    """The tools of generic suites."""

    dated = False

    def lint(
        self, cases: Sequence[FiledCase], rules: GenericSuiteConfig, options: Mapping[str, Path]
    ) -> Iterator[Finding]:
        """Find criteria that compare with a key that no case has, and count the cases without a date."""
        del options
        undated = sum(filed.loaded.case.notes.date is None for filed in cases)
        if undated:
            message = f"{undated} of {pluralize(len(cases), 'case')} without the day on which the answer was verified"
            yield Finding(
                file=CONFIG_NAME,
                pointer="",
                rule="date_missing",
                message=f"{message}; add notes.date, or import with --date",
                severity="warning",
            )
        for line in rules.unused_rules([filed.loaded.case.expected for filed in cases]) if cases else ():
            pointer, _, message = line.partition(": ")
            rule = "forbidden_unused" if pointer.startswith("/forbidden") else "criterion_unused"
            yield Finding(file=CONFIG_NAME, pointer=pointer, rule=rule, message=message)

    def criteria(self, rules: GenericSuiteConfig) -> dict[str, tuple[str | int, ...]]:
        """Return each criterion with the part of the result that it reads."""
        return {criterion.title: criterion.result_path.location for criterion in rules.criteria}

    def wrong_results(self, case: GenericCase, result: Any, rules: GenericSuiteConfig) -> Iterator[tuple[str, Any]]:
        """Return the result with each forbidden value in it."""
        for criterion in rules.forbidden:
            expected = criterion.expected_in(case.expected)
            if expected is not MISSING:
                what = criterion.title
                if criterion.has_value and criterion.name is None:
                    what = f"{what} {format_value(criterion.value)}"
                yield f"forbidden: {what}", with_forbidden(criterion, result, expected)

    def also_acceptable(
        self, case: GenericCase, answer: GenericAnswer, rules: GenericSuiteConfig
    ) -> list[tuple[Location, Any]]:
        """Return the values of the answer for the lists of the criteria `one_of` that it fails.

        Raises:
            ValueError: it fails other criteria only, or is a refusal.
        """
        if answer.refused or rules.refusal.is_expected(case):
            raise ValueError("the case or the answer is a refusal; change expected by hand")
        missed = [
            (criterion, value) for criterion, _, value, grade in rules.compared(case, answer.result) if grade.points < 1
        ]
        additions = [
            (criterion.expected_path.location, value)
            for criterion, value in missed
            if has_list(criterion) and value is not MISSING
        ]
        if not additions:
            titles = ", ".join(criterion.title for criterion, _ in missed) or "in forbidden"
            advice = f"only one_of has a list of accepted values: use it in {CONFIG_NAME}, or change expected by hand"
            raise ValueError(f"the criterion {titles} accepts one value; {advice}")
        return additions

    def starter(self) -> Starter:
        """Return a suite that sorts messages into queues; it runs without any extra."""
        return read_starter(__package__, takes={"jsonpath": GENERIC, "regex": GENERIC, "jsonschema": GENERIC})

    def importers(self) -> tuple[Importer, ...]:
        """Return the importers of tables: `csv` and `jsonl`."""
        from pytest_packbench.packs.generic.importer import Csv, Jsonl  # only the command needs them

        return (Csv(), Jsonl())


def with_forbidden(criterion: Comparing, result: Any, expected: Any) -> Any:
    """Return a copy of a result that contains what a criterion forbids; None where it is not a plain value.

    Args:
        criterion: the forbidden criterion.
        result: the result, plain JSON.
        expected: what it forbids in the case.
    """
    if criterion.rule not in PLAIN_RULES or criterion.path.startswith("$"):
        return None
    value = expected[0] if isinstance(expected, list) and criterion.rule in LIST_RULES else expected
    # what is forbidden anywhere gets a key of its own
    is_beside = criterion.rule == ANYWHERE and not criterion.path and isinstance(result, dict)
    return placed(result, ("forbidden",) if is_beside else criterion.result_path.location, value)


def placed(document: Any, keys: Sequence[str | int], value: Any) -> Any:
    """Return a copy of a document with a value at keys; what is no object on the way becomes one."""
    if not keys:
        return value
    members = document if isinstance(document, dict) else {}
    return {**members, keys[0]: placed(members.get(keys[0]), keys[1:], value)}
