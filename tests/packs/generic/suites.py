"""Suites and cases of the generic pack, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import yaml

from pytest_packbench import testing
from pytest_packbench.cases.load import check_case
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.generic.suite import GenericCase, GenericSuiteConfig

if TYPE_CHECKING:
    from pytest_packbench.model.result import Score


def suite(text: str) -> GenericSuiteConfig:
    """The rules in a `suite.yaml` without the line that names the pack."""
    return GenericSuiteConfig.model_validate({"pack": "generic", **(yaml.safe_load(text) or {})})


def case(expected: Any, **fields: Any) -> dict[str, Any]:
    return testing.case("a", pack_id="generic", input={"q": 1}, expected=expected, **fields)


def load(rules: GenericSuiteConfig, expected: Any) -> tuple[GenericPack, GenericCase]:
    """The pack of a suite, and a case that its rules accept."""
    pack = cast("GenericPack", GenericPack().for_suite(rules))
    loaded = check_case(case(expected), pack.case_model, source="a.json", stem="a", pack="generic").case
    return pack, cast("GenericCase", loaded)


def score_of(rules: GenericSuiteConfig, expected: Any, result: Any, **fields: Any) -> Score:
    return testing.score(GenericPack(), case(expected, **fields), result, rules=rules)
