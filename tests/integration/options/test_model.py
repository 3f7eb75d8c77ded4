"""`--packbench-model`: the model that is called; the suite's own is the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers.wire import parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


def test_the_option_comes_before_the_model_of_the_suite(project: Project, model: Model) -> None:
    project.suite(text="pack: toy\nbackend: openai\nmodel: of-the-suite\n")
    project.prepare("points 1")
    options = ("--packbench-mode=live", "--packbench-target=pipeline:ask", f"--packbench-base-url={model.url}/v1")
    for more in ((), ("--packbench-model=of-the-option",)):
        project.run_toy(*options, *more).assert_outcomes(passed=1)
    assert [parse_request(received).model for received in model.requests] == ["of-the-suite", "of-the-option"]
