"""`packbench lint --profile imported`: what is wrong in any suite stays, what only our suites promise goes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_packbench.cases.lint import OWN_RULES, PROFILES, SOFT_RULES
from pytest_packbench.commands import main
from pytest_packbench.packs.tariff.tools import TariffTools
from tests.packs.tariff.small_suite import small_suite

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# rules that fire on the case below, with the profile that finds them
KEPT = ("code_conflict", "savings_conflict", "type_expectation")
LEFT_OUT = ("date_missing", "edition_missing", "forbidden_unreachable", "tag_unknown")


def test_a_case_that_no_suite_can_use_is_found_in_both_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = small_suite(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = suite.path("powder")
    case = json.loads(path.read_text("utf-8"))
    codes = {"preferred_hts": ["0712.90.40.20"], "allowed_hts": [], "must_not_hts": ["0712904020", "07129040"]}
    savings = {"no_savings_expected": True, "lever_count_min": 1}
    case["expected"] |= {**codes, **savings}
    case["notes"] = {"source": "synthetic", "tags": ["imported_tag"]}
    path.write_text(json.dumps(case), "utf-8")
    # the same goods again, as a refusal that is none
    twin = {**case, "id": "twin", "case_type": "negative"}
    path.with_name("twin.json").write_text(json.dumps(twin), "utf-8")
    found = {}
    for profile in PROFILES:
        assert main(["lint", "suite", "--profile", profile, "--format=json"]) == 1
        found[profile] = {each["rule"]: each["severity"] for each in json.loads(capsys.readouterr().out)["findings"]}
    own, imported = (found[profile] for profile in PROFILES)
    left_out = OWN_RULES | TariffTools.own_lint_rules
    assert imported == {
        rule: "warning" if rule in SOFT_RULES else severity for rule, severity in own.items() if rule not in left_out
    }
    assert set(KEPT) <= imported.keys()
    assert set(LEFT_OUT) <= own.keys()
    assert own["duplicate_input"] == "error"
    assert imported["duplicate_input"] == "warning"
