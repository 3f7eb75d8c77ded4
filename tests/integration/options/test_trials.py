"""`--packbench-trials`: each case is run so often, and the suite's rule decides on all of its trials."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.integration.conftest import json_lines
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received, Reply


def test_the_rule_of_the_suite_decides_on_the_trials_of_a_case(both: Project, model: Model) -> None:
    answers = {"even": [1.0, 0.7, 1.0], "low": [1.0, 0.1, 0.3]}
    both.prepare(*answers)

    def next_answer(received: Received) -> Reply:
        scores = answers[parse_request(received).text]
        scores.append(scores.pop(0))
        return openai_reply(json.dumps({"points": scores[-1]}))

    model.handler = next_answer
    for rule, passed in (("mean", 1), ("any", 2)):
        both.suite(text=f"pack: toy\ntrials: {rule}\n")
        result = model.run(both, "--packbench-trials=3")
        result.assert_outcomes(passed=passed, failed=2 - passed)
        if rule == "mean":
            result.stdout.fnmatch_lines(["*1 of 3 trials passed, mean score 0.47, threshold 0.80 (rule: mean)*"])
        records = json_lines(both.folders()[-1] / "records.jsonl")
        trials = [(record["packbench"]["case_id"], record["packbench"]["trial"]) for record in records]
        assert trials == [(case, trial) for case in ("case_00", "case_01") for trial in range(3)]
