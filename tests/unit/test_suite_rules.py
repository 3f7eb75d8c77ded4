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


CHANGES: dict[str, list[dict[str, Any]]] = {
    "the same": [{"description": "other words"}, {"gates": [{"metric": "pass_rate", "min": 0.5}]}, {"model": "m-1"}],
    "other": [{"pack": "other"}, {"thresholds": {"accept": 0.7}}, {"thresholds": {"by_type": {"a": 1}}}],
}


def test_only_a_rule_that_changes_verdicts_changes_the_hash(tmp_path: Path) -> None:
    plain = scoring_sha256(SuiteConfig.model_validate({"pack": "toy"}))
    for digest, rows in CHANGES.items():
        for row in rows:
            changed = scoring_sha256(SuiteConfig.model_validate({"pack": "toy", **row}))
            assert (changed == plain) is (digest == "the same"), row
    texts = ("", "scored_code: baseline\n", "trials: all\n")
    of_pack, baseline, trials = (read_suite(tmp_path, text).sha256 for text in texts)
    assert (of_pack == baseline, of_pack == trials) == (False, True)


def test_every_key_either_changes_verdicts_or_does_not() -> None:
    assert SuiteConfig.model_fields.keys() - SuiteConfig.not_scoring == {"pack", "thresholds"}
    assert SuiteConfig.model_fields.keys() >= SuiteConfig.not_scoring


RULES: dict[str, Any] = {"": "mean", "trials: mean": "mean", "trials: all": "all", "trials: any": "any"}
RULES |= {f"trials: {{at_least: {least}}}": {"at_least": least} for least in (1, 3)}
WRONG_RULES = ["most", "5", "{at_least: 0}", "{at_least: two}", "{atleast: 2}", "[all]", "null", "{}"]


def test_a_rule_for_trials_is_read_and_another_is_refused_in_one_line(tmp_path: Path) -> None:
    assert {text: read_suite(tmp_path, text).config.trials_rule() for text in RULES} == RULES
    for value in WRONG_RULES:
        with pytest.raises(SuiteError) as caught:
            read_suite(tmp_path, f"trials: {value}\n")
        assert str(caught.value).partition("suite.yaml: ")[2].startswith("/trials: got ")
        assert str(caught.value).endswith("; expected mean, all, any, or at_least with a number of 1 or more")
