"""`--packbench-trials`: each case runs several times, and the rule of the suite makes one verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import live, model_server, prepare
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.servers.fake import Received, Reply


@pytest.mark.parametrize(("rule", "passed"), [("mean", 1), ("any", 2), ("all", 0)])
def test_the_rule_of_the_suite_decides_on_the_trials_of_a_case(project: Project, rule: str, passed: int) -> None:
    check_trials(project, rule, passed)


def test_workers_run_the_trials_of_a_case(project: Project) -> None:
    check_trials(project, "mean", 1, "-n2")


def check_trials(project: Project, rule: str, passed: int, *options: str) -> None:
    answers = {"even": [1.0, 0.7, 1.0], "low": [1.0, 0.1, 0.3]}
    prepare(project, "even", "low")
    project.suite(text=f"pack: toy\ntrials: {rule}\n")

    def next_answer(received: Received) -> Reply:
        return openai_reply(json.dumps({"points": answers[parse_request(received).text].pop(0)}))

    with model_server(next_answer) as server:
        result = project.run_toy(*options, *live(server, "--packbench-trials=3"))
    result.assert_outcomes(passed=passed, failed=2 - passed)
    assert [(record["test_id"], record["packbench"]["trial"]) for record in project.lines("records.jsonl")] == [
        (f"toy:plain:case_0{case}", trial) for case in (0, 1) for trial in (0, 1, 2)
    ]
    if rule == "mean":
        result.stdout.fnmatch_lines(["*1 of 3 trials passed, mean score 0.47, threshold 0.80 (rule: mean)*"])
