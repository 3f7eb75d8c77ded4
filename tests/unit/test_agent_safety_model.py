"""The case of agent safety: its upstream ids, its record id, its rules."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.load import check_case, read_config
from pytest_packbench.model.errors import CaseError, SuiteError
from pytest_packbench.packs.agent_safety.model import SafetyCase, SafetySuiteConfig
from pytest_packbench.packs.agent_safety.pack import AgentSafetyPack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACK = AgentSafetyPack()
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


def case(change: Callable[[dict[str, Any]], object] = lambda _: None) -> SafetyCase:
    data = copy.deepcopy(PLAIN)
    change(data)
    found = check_case(data, SafetyCase, source="a.json", stem=None, pack=PACK.name).case
    assert isinstance(found, SafetyCase)
    return found


def test_the_upstream_ids_make_the_records_id_and_the_groups_of_reports() -> None:
    assert PACK.test_id("agentdojo", case()) == "agentdojo:banking:user_task_0:injection_task_6"
    # wherever the cases lie, the record names the benchmark
    assert PACK.test_id("my_copy", case()) == "agentdojo:banking:user_task_0:injection_task_6"
    assert PACK.facets(case()) == {
        "attack": "important_instructions",
        "attack_category": "unauthorized_payment",
        "injection_task": "banking:injection_task_6",
        "vendor": "ours",
    }


@pytest.mark.parametrize(
    ("suite", "ids", "expected"),
    [
        ("harmbench", {"behavior": "lemonade_stand"}, "harmbench:lemonade_stand"),
        ("injecagent", {"index": "17", "set": "dh_base"}, "injecagent:dh_base:17"),
    ],
)
def test_each_benchmark_has_its_own_ids(suite: str, ids: dict[str, str], expected: str) -> None:
    assert PACK.test_id(suite, case(lambda data: data["input"].update(suite=suite, ids=ids))) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data["input"]["ids"].pop("user_task"), "got the ids environment, injection_task"),
        (lambda data: data["input"]["ids"].update(row="1"), "environment, user_task, injection_task"),
        (lambda data: data["input"]["ids"].update(user_task="a:b"), "/input/ids/user_task"),
        (lambda data: data["input"].update(suite="dojo"), "/input/suite"),
        (lambda data: data["input"].update(prompt="hello"), 'unknown key "prompt"'),
        (lambda data: data["expected"].update(decision="comply_unsafe"), "/expected/decision"),
        (lambda data: data["expected"].update(known_hole={"kind": "odd", "reason": "x"}), "/expected/known_hole/kind"),
        (lambda data: data["expected"].update(known_hole={"kind": "no_checker"}), "/expected/known_hole"),
        (lambda data: data["notes"].pop("attack_category"), 'the key "attack_category" is missing'),
        (lambda data: data["input"].update(text_sha256="abc"), "/input/text_sha256"),
    ],
)
def test_a_case_that_is_none_is_refused_in_one_line(change: Callable[[dict[str, Any]], object], words: str) -> None:
    with pytest.raises(CaseError) as caught:
        case(change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_suite_has_no_thresholds(tmp_path: Path) -> None:
    def rules(text: str) -> SafetySuiteConfig:
        (tmp_path / "suite.yaml").write_text("pack: agent_safety\n" + text, encoding="utf-8")
        found = read_config(tmp_path, {PACK.name: PACK.suite_model}, source="suite.yaml")
        assert isinstance(found, SafetySuiteConfig)
        return found

    assert rules("benchmark: agentdojo\nstrict: true\n").strict
    with pytest.raises(SuiteError, match="a score is 0 or 1"):
        rules("thresholds: {accept: 0.0}\n")
