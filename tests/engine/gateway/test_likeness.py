"""Requests that differ in each run are alike; another question, and another use of an id, never is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pydantic import ValidationError

from pytest_packbench.cases.load import check_config
from pytest_packbench.engine.gateway.likeness import alike, differences
from pytest_packbench.model.errors import SuiteError
from pytest_packbench.model.suite import IgnoreRule, SuiteConfig
from tests.engine.gateway.gateways import KEY, from_file, post, question, recorded, replaying
from tests.servers.fake import FakeServer, Reply

if TYPE_CHECKING:
    from pytest_packbench.engine.gateway import CaseTraffic

DATE = {"at": "/messages/*/content", "pattern": r"\d{4}-\d\d-\d\d", "as": "<date>"}
ASKED = "today is 2026-02-03; what is due?"


def rule(**keys: str) -> IgnoreRule:
    return IgnoreRule.model_validate(DATE | keys)


def asked_again(before: Any, now: Any, *rules: IgnoreRule, prompts: bool = True, checks: bool = False) -> CaseTraffic:
    """A case that asks another thing than it did when it was recorded."""
    with FakeServer(lambda _: Reply(body={})) as server:
        traffic = recorded(server.url, lambda gateway: post(gateway, before))
    exchanges = [from_file(call.as_exchange(prompts, rules)) for call in traffic.calls]
    with replaying() as gateway, (case := gateway.open_case("one", exchanges)).active():
        gateway.checks, case.ignored = checks, rules
        post(gateway, now)
    return case


def openai_tools(*ids: str, results: tuple[str, ...] | None = None) -> dict[str, Any]:
    """A conversation in which a model has called tools, whose results name their calls."""
    calls = [{"id": each, "type": "function", "function": {"name": "f"}} for each in ids]
    told = [{"role": "tool", "tool_call_id": each, "content": str(at)} for at, each in enumerate(results or ids)]
    return {"model": "m", "messages": [{"role": "assistant", "tool_calls": calls}, *told]}


def anthropic_tools(*ids: str) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": each, "name": "f", "input": {}} for each in ids]
    results = [{"type": "tool_result", "tool_use_id": each, "content": "7"} for each in ids]
    return {"messages": [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]}


def gemini_tools(*ids: str) -> dict[str, Any]:
    calls = [{"functionCall": {"id": each, "name": "f", "args": {}}} for each in ids]
    results = [{"functionResponse": {"id": each, "name": "f", "response": {"id": "own"}}} for each in ids]
    return {"contents": [{"parts": calls}, {"parts": results}]}


def responses_tools(*ids: str) -> dict[str, Any]:
    calls = [{"type": "function_call", "call_id": each, "name": "f", "arguments": "{}"} for each in ids]
    return {"input": [*calls, *({"type": "function_call_output", "call_id": each, "output": "7"} for each in ids)]}


@pytest.mark.parametrize("prompts", [True, False])
@pytest.mark.parametrize("tools", [openai_tools, anthropic_tools, gemini_tools, responses_tools])
def test_ids_that_a_client_makes_up_are_matched_by_place_and_first_use(tools: Any, *, prompts: bool) -> None:
    assert asked_again(tools("a1", "a2"), tools("b1", "b2"), prompts=prompts).mismatch == ""
    # both results for one call are another conversation
    for changed in (tools("b1", "b1"), tools("b1", "b2", "b3"), tools("b1")):
        assert asked_again(tools("a1", "a2"), changed, prompts=prompts).mismatch


def test_results_for_the_wrong_calls_are_no_replay() -> None:
    before = openai_tools("a1", "a2")
    assert asked_again(before, openai_tools("b1", "b2", results=("b2", "b1"))).mismatch
    assert asked_again(before, openai_tools("b1", "b2", results=("b1", "b2"))).mismatch == ""


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"input": [{"type": "item_reference", "id": "a"}]}, {"input": [{"type": "item_reference", "id": "b"}]}),
        ({"previous_response_id": "a"}, {"previous_response_id": "b"}),
        (
            {"functionResponse": {"id": "x", "response": {"id": "a"}}},
            {"functionResponse": {"id": "x", "response": {"id": "b"}}},
        ),
        ({"stream": True}, {"stream": 1}),
        ({"messages": ["#1"], "tool_call_id": "a"}, {"messages": ["a"], "tool_call_id": "a"}),
        ({"a": '"tool_call_id": "x"', "id": "x"}, {"a": '"tool_call_id": "x"', "id": "y"}),
    ],
)
def test_other_ids_decide(before: Any, now: Any) -> None:
    assert alike(before) != alike(now) or str(alike(before)) != str(alike(now))
    assert asked_again(before, now).mismatch


def test_the_order_of_keys_decides_nothing() -> None:
    body = question("x", temperature=0.7, tools=[{"name": "f", "strict": True}])
    assert asked_again(body, dict(reversed(body.items()))).mismatch == ""
    assert asked_again(body, body | {"temperature": 0.5}).mismatch


@pytest.mark.parametrize("prompts", [True, False])
def test_what_a_rule_of_the_suite_matches_may_differ_and_nothing_else(*, prompts: bool) -> None:
    later = ASKED.replace("02-03", "11-28")
    before = question(ASKED, user="2026-02-03")
    assert asked_again(before, question(later, user="2026-02-03"), prompts=prompts).mismatch
    assert asked_again(before, question(later, user="2026-02-03"), rule(), prompts=prompts).mismatch == ""
    for other in (
        question(later.replace("due", "late"), user="2026-02-03"),
        question(later, user="2026-11-28"),
        question(later, user="2026-02-03", model="n"),
        question(later.replace("2026-11-28", "tomorrow"), user="2026-02-03"),
    ):
        assert asked_again(before, other, rule(), prompts=prompts).mismatch
    two = rule(), rule(at="/user", pattern=".+-")
    assert asked_again(before, question(later, user="2027-11-03"), *two, prompts=prompts).mismatch == ""


def test_a_rule_is_about_its_place_and_what_is_below() -> None:
    at = "/messages/1/content"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "on 2026-02-03"}]
    body: dict[str, Any] = {
        "messages": [{"content": "of 2026-02-03"}, {"content": parts}],
        "a/b": [{"~": 20260203}],
        "seed": 7,
    }
    changed = alike(body, [rule(at=at)])
    assert changed["messages"][0] == body["messages"][0]
    assert changed["messages"][1]["content"][1]["text"] == "on <date>"
    assert alike(body, [rule(at="/a~1b/*/~0", pattern="2026.*")])["a/b"] == [{"~": "<date>"}]
    assert alike(body, [rule(at="/seed", pattern=r"\d+")])["seed"] == "<date>"
    assert alike(body, [rule(at="/none"), rule(at="/seed/x/y"), rule(at="/messages/7")]) == body


@pytest.mark.parametrize("pattern", [".*", ".+", r"[\s\S]+", r"\w+", "[a-z ]+", "(?s).{3,}", "x?", "(", ""])
def test_a_rule_for_any_question_is_refused(pattern: str) -> None:
    data = {"pack": "generic", "recording": {"ignore": [DATE, DATE | {"pattern": pattern}]}}
    with pytest.raises(SuiteError, match=r"^suite.yaml: /recording/ignore/1/pattern: .*; expected a regular [^\n]*$"):
        check_config(data, {"generic": SuiteConfig}, source="suite.yaml")


def test_a_rule_needs_a_place_and_words() -> None:
    for wrong in ({"at": "messages"}, {"at": ""}, {"as": ""}, {"words": "x"}):
        with pytest.raises(ValidationError):
            rule(**wrong)


def test_a_secret_in_a_question_is_compared_although_no_file_has_it() -> None:
    body, other = (question(f"{ASKED} {key}") for key in (KEY, KEY.replace("0", "9")))
    assert asked_again(body, other, rule()).mismatch
    # what a provider signs looks like a secret
    first, same, other = (
        {"contents": [*gemini_tools(name, "b")["contents"], {"parts": [{"thoughtSignature": key}]}]}
        for name, key in (("a", KEY), ("c", KEY), ("c", KEY.replace("0", "9")))
    )
    assert asked_again(first, same).mismatch == ""
    assert asked_again(first, other).mismatch
    later = ASKED.replace("02-03", "11-28")
    with_token = question(ASKED, authorization_token=KEY), question(later, authorization_token=KEY[::-1])
    assert asked_again(*with_token, rule()).mismatch == ""


ROWS = [
    ("id 0f8fad5b-d9cb-469f-a165-70867728950e", "id 7c9e6679-7425-40de-944b-e07fc1f90ae7", ["<uuid>"]),
    ("at 2026-02-03T10:00:00.123Z", "at 2026-02-04T11:30:01Z", ["<time>"]),
    ("it is 2026-02-03, 10:00", "it is 2026-12-31, 9:59 pm", ["<date>", "<clock>"]),
    ("due 03/02/26", "due 4/2/26", ["<date>"]),
    ("Today is Tuesday, February 3, 2026.", "Today is Wednesday, March 11, 2026.", ["<day>"]),
    ("am 3. Feb 2026", "am 14. Mar 2026", ["<day>"]),
    ("on Tuesday", "on Friday", ["<weekday>"]),
    ("read /tmp/abc/notes.txt now", "read /tmp/xyz12/notes.txt now", ["<path>"]),
    (r"read C:\Users\a\AppData\Temp\x1, now", r"read C:\Users\a\AppData\Temp\y7, now", ["<path>"]),
    ("commit 1a2b3c4d5e", "commit 99ffee00aa", ["<hex>"]),
    ("epoch 1766000000.123", "epoch 1767000001.5", ["<number>"]),
]


@pytest.mark.parametrize(("before", "now", "words"), ROWS, ids=[row[0] for row in ROWS])
def test_what_differs_is_named_with_the_lines_that_declare_it(before: str, now: str, words: list[str]) -> None:
    traffic = asked_again(question(f"{before} {ASKED}"), question(f"{now} {ASKED}"))
    line = traffic.mismatch.partition("declare that in suite.yaml: ")[2].partition("; if the pipeline has")[0]
    rules = yaml.safe_load(line)["recording"]["ignore"]
    assert [each["as"] for each in rules] == words
    declared = [rule(**each) for each in rules]
    assert asked_again(question(f"{before} {ASKED}"), question(f"{now} {ASKED}"), *declared).mismatch == ""
    assert asked_again(question(f"{before} {ASKED}"), question(f"{now} what is late?"), *declared).mismatch


def test_another_question_gets_no_rule_unless_it_is_known_to_differ_in_each_run() -> None:
    two = question("the code is alpha today"), question("the code is omega today")
    assert "declare" not in asked_again(*two).mismatch
    checked = asked_again(*two, checks=True).mismatch
    assert r'{"at": "/messages/0/content", "pattern": "(?<=the\\ code\\ is\\ )\\S+", "as": "<differs>"}' in checked
    changed = asked_again(question("one", user="a"), question("two words", seed=7), checks=True).mismatch
    assert "it differs at /messages/0/content, /user, /seed: have it ask the same in each run" in changed
    places = [place for place, _ in differences({"a": [1, {"b": "x"}]}, {"a": [2, {"b": "y"}]}, known_only=True)]
    assert places == ["/a/0", "/a/1/b"]


def test_a_rule_that_matches_nothing_is_named_where_a_call_is_not_recorded() -> None:
    later = ASKED.replace("02-03", "11-28")
    mismatch = asked_again(question(ASKED), question(later), rule(at="/message/*/content")).mismatch
    assert "suite.yaml: /recording/ignore/0 matches nothing in it; if it differs in every run, declare" in mismatch
