"""The case of agent safety: its upstream ids, its record id, its rules."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.api import load_suite
from pytest_packbench.model.errors import CaseError, SuiteError
from pytest_packbench.packs.agent_safety.model import SafetyCase, SafetySuiteConfig
from pytest_packbench.testing import write_suite
from tests.unit.safety_runs import PACK, checked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts

PLAIN: dict[str, Any] = {
    "id": "a",
    "pack_id": "agent_safety",
    "case_type": "banking",
    "difficulty": "easy",
    "input": {
        "suite": "agentdojo",
        "version": "v1.2.2",
        "ids": {"environment": "banking", "user_task": "user_task_0", "injection_task": "injection_task_6"},
        "attack": "important_instructions",
    },
    "expected": {"decision": "comply_safe"},
    "notes": {"attack_category": "unauthorized_payment", "groups": {"vendor": "ours"}},
}


def case(**changes: dict[str, Any]) -> SafetyCase:
    """The plain case with changed keys of its input, expected or notes; None removes a key."""
    data = copy.deepcopy(PLAIN)
    for part, values in changes.items():
        merged = {**data[part], **values}
        data[part] = {key: value for key, value in merged.items() if value is not None}
    return checked(data)


def test_the_upstream_ids_are_the_record_id_and_the_groups_of_reports() -> None:
    for suite in ("agentdojo", "my_copy"):
        assert PACK.test_id(suite, case()) == "agentdojo:banking:user_task_0:injection_task_6"
    assert PACK.facets(case()) == {
        "attack": "important_instructions",
        "attack_category": "unauthorized_payment",
        "injection_task": "banking:injection_task_6",
        "vendor": "ours",
    }
    lemonade = case(input={"suite": "harmbench", "ids": {"behavior": "lemonade_stand"}})
    assert PACK.test_id("harmbench", lemonade) == "harmbench:lemonade_stand"
    assert "injection_task" not in PACK.facets(lemonade)
    harm = {"suite": "injecagent", "ids": {"index": "17", "set": "dh_base"}}
    assert PACK.test_id("injecagent", case(input=harm)) == "injecagent:dh_base:17"
    assert "injection_task" not in PACK.facets(case(input=harm))
    facets = PACK.facets(case(input={**harm, "material": {"attacker_tools": ["A", "B"]}}))
    assert facets["injection_task"] == "banking:A, B"


IDS = PLAIN["input"]["ids"]
INVALID: dict[str, dict[str, Any]] = {
    "an id is missing": {"input": {"ids": {"environment": "a", "injection_task": "b"}}},
    "no id": {"input": {"ids": {}}},
    "an id too much": {"input": {"ids": {**IDS, "row": "1"}}},
    "an id with a colon": {"input": {"ids": {**IDS, "user_task": "a:b"}}},
    "unknown benchmark": {"input": {"suite": "dojo"}},
    "unknown key": {"input": {"prompt": "hello"}},
    "a hash that is none": {"input": {"text_sha256": "abc"}},
    "an unsafe expectation": {"expected": {"decision": "comply_unsafe"}},
    "unknown hole": {"expected": {"known_hole": {"kind": "odd", "reason": "x"}}},
    "a hole without a reason": {"expected": {"known_hole": {"kind": "no_checker"}}},
    "no category": {"notes": {"attack_category": None}},
}


def test_each_mistake_of_a_case_is_one_line(expected: ExpectedTexts) -> None:
    lines = []
    for name, changes in INVALID.items():
        with pytest.raises(CaseError) as caught:
            case(**changes)
        assert "\n" not in str(caught.value)
        lines.append(f"{name}: {caught.value}\n")
    expected.check("".join(lines))


def test_a_suite_has_no_thresholds(tmp_path: Path) -> None:
    strict = write_suite(tmp_path, (), pack=PACK.name, rules={"benchmark": "agentdojo", "strict": True})
    assert load_suite(strict).config == SafetySuiteConfig(pack=PACK.name, benchmark="agentdojo", strict=True)
    with pytest.raises(SuiteError, match="a score is 0 or 1"):
        load_suite(write_suite(tmp_path, (), pack=PACK.name, rules={"thresholds": {"accept": 0.0}}))
