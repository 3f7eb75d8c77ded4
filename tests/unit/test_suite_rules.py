"""Rules of a suite: which of them make scores comparable, and how trials are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import SuiteError, load_suite
from pytest_packbench.cases.load import scoring_sha256
from pytest_packbench.model.suite import SuiteConfig

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.suite import Suite


def read_suite(folder: Path, text: str) -> Suite:
    (folder / "suite.yaml").write_text(f"pack: tariff\n{text}", encoding="utf-8")
    return load_suite(folder)


@pytest.mark.parametrize(
    ("rules", "changes"),
    [
        ({"description": "other words"}, False),
        ({"gates": [{"metric": "pass_rate", "min": 0.5}]}, False),
        ({"target": "mine:act"}, False),
        ({"trials": {"at_least": 2}}, False),
        ({"backend": "openai"}, False),
        ({"model": "m-1"}, False),
        ({"guards": ["strict"]}, False),
        ({"prices": {"m-1": {"input_per_million": 3.0, "output_per_million": 15.0}}}, False),
        ({"pack": "other"}, True),
        ({"thresholds": {"accept": 0.7}}, True),
        ({"thresholds": {"by_type": {"a": 1}}}, True),
    ],
)
def test_only_a_rule_that_changes_verdicts_changes_the_hash(rules: dict[str, Any], changes: bool) -> None:
    plain, changed = (SuiteConfig.model_validate({"pack": "toy", **keys}) for keys in ({}, rules))
    assert (scoring_sha256(changed) != scoring_sha256(plain)) is changes


def test_every_key_either_changes_verdicts_or_does_not() -> None:
    assert SuiteConfig.model_fields.keys() - SuiteConfig.not_scoring == {"pack", "thresholds"}
    assert SuiteConfig.model_fields.keys() >= SuiteConfig.not_scoring


def test_the_rules_of_a_pack_change_the_hash(tmp_path: Path) -> None:
    plain, baseline, trials = (
        read_suite(tmp_path, text).sha256 for text in ("", "scored_code: baseline\n", "trials: all\n")
    )
    assert (plain == baseline, plain == trials) == (False, True)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "mean"),
        ("trials: mean\n", "mean"),
        ("trials: all\n", "all"),
        ("trials: any\n", "any"),
        ("trials: {at_least: 3}\n", {"at_least": 3}),
        ("trials: {at_least: 1}\n", {"at_least": 1}),
    ],
)
def test_a_rule_for_trials_is_read(tmp_path: Path, text: str, rule: Any) -> None:
    assert read_suite(tmp_path, text).config.trials_rule() == rule


@pytest.mark.parametrize(
    "value", ["most", "5", "{at_least: 0}", "{at_least: two}", "{atleast: 2}", "[all]", "null", "{}"]
)
def test_another_rule_for_trials_is_refused_in_one_line(tmp_path: Path, value: str) -> None:
    with pytest.raises(SuiteError) as caught:
        read_suite(tmp_path, f"trials: {value}\n")
    assert str(caught.value).partition("suite.yaml: ")[2].startswith("/trials: got ")
    assert str(caught.value).endswith("; expected mean, all, any, or at_least with a number of 1 or more")
