"""Generic suites for tests: rules as `suite.yaml` holds them, and what they make of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from pytest_packbench import testing
from pytest_packbench.cases.load import read_config
from pytest_packbench.packs.generic.model import GenericSuiteConfig
from pytest_packbench.packs.generic.pack import GenericPack

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.score import Score


def suite(text: str) -> GenericSuiteConfig:
    """The rules of a suite, without the line that names the pack."""
    return GenericSuiteConfig.model_validate({"pack": "generic", **(yaml.safe_load(text) or {})})


def read(folder: Path, text: str) -> GenericSuiteConfig:
    """The same, read from a file as runs do."""
    (folder / "suite.yaml").write_text(f"pack: generic\n{text}", encoding="utf-8")
    found = read_config(folder, {"generic": GenericSuiteConfig}, source="suite.yaml")
    assert isinstance(found, GenericSuiteConfig)
    return found


def case(expected: Any, **changes: Any) -> dict[str, Any]:
    """A case that expects something."""
    return testing.case("a", pack_id="generic", input={"q": 1}, expected=expected, **changes)


def score_of(rules: GenericSuiteConfig, expected: Any, result: Any, **changes: Any) -> Score:
    """The score of a result."""
    return testing.score(GenericPack(), case(expected, **changes), result, rules=rules)
