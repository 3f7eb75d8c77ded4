"""Rules of a suite: which of them make scores comparable, and how trials are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import SuiteError, load_suite
from pytest_packbench.cases.load import scoring_sha256
from pytest_packbench.model.suite import SuiteConfig

if TYPE_CHECKING:
    from pathlib import Path

PRICES = {"m-1": {"input_per_million": 3.0, "output_per_million": 15.0}}


def sha256(**rules: Any) -> str:
    return scoring_sha256(SuiteConfig.model_validate({"pack": "toy", **rules}))


@pytest.mark.parametrize(
    "rules",
    [
        {"description": "other words"},
        {"gates": [{"metric": "pass_rate", "min": 0.5}]},
        {"target": "mine:act"},
        {"trials": {"at_least": 2}},
        {"backend": "openai"},
        {"model": "m-1"},
        {"guards": ["strict"]},
        {"prices": PRICES},
    ],
)
def test_what_changes_no_score_changes_no_hash(rules: dict[str, Any]) -> None:
    assert sha256(**rules) == sha256()


@pytest.mark.parametrize(
    "rules", [{"pack": "other"}, {"thresholds": {"accept": 0.7}}, {"thresholds": {"by_type": {"a": 1}}}]
)
def test_what_changes_a_verdict_changes_the_hash(rules: dict[str, Any]) -> None:
    assert sha256(**rules) != sha256()


def test_every_key_is_on_one_side() -> None:
    scoring = SuiteConfig.model_fields.keys() - SuiteConfig.not_scoring
    assert scoring == {"pack", "thresholds"}
    assert SuiteConfig.model_fields.keys() >= SuiteConfig.not_scoring


def test_the_rules_of_a_pack_count(tmp_path: Path) -> None:
    hashes = []
    for text in ("pack: tariff\n", "pack: tariff\nscored_code: baseline\n", "pack: tariff\ntrials: all\n"):
        (tmp_path / "suite.yaml").write_text(text, encoding="utf-8")
        hashes.append(load_suite(tmp_path).sha256)
    assert (hashes[0] == hashes[1], hashes[0] == hashes[2]) == (False, True)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "mean"),
        ("trials: mean\n", "mean"),
        ("trials: all\n", "all"),
        ("trials: any\n", "any"),
        ("trials: {at_least: 3}\n", {"at_least": 3}),
    ],
)
def test_a_rule_for_trials_is_read(tmp_path: Path, text: str, rule: Any) -> None:
    (tmp_path / "suite.yaml").write_text(f"pack: tariff\n{text}", encoding="utf-8")
    assert load_suite(tmp_path).config.trials_rule() == rule


@pytest.mark.parametrize(
    "value", ["most", "5", "{at_least: 0}", "{at_least: two}", "{atleast: 2}", "[all]", "null", "{}"]
)
def test_a_rule_for_trials_that_is_none_is_one_line(tmp_path: Path, value: str) -> None:
    (tmp_path / "suite.yaml").write_text(f"pack: tariff\ntrials: {value}\n", encoding="utf-8")
    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path)
    assert str(caught.value).partition("suite.yaml: ")[2].startswith("/trials: got ")
    assert str(caught.value).endswith("; expected mean, all, any, or at_least with a number of 1 or more")
