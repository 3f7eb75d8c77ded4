"""`--packbench-base-url`: the address of the model's server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


def test_a_password_in_an_address_reaches_no_file_and_no_terminal(project: Project, model: Model) -> None:
    project.prepare("points 0.1")
    address = f"--packbench-base-url={model.url.replace('//', '//me:planted-password@')}/v1"
    refused = model.run(project, address)
    assert (refused.ret, model.requests) == (pytest.ExitCode.USAGE_ERROR, [])
    refused.stderr.fnmatch_lines(["*base URL of the backend openai is invalid: *no user name, password or query"])
    # the target calls no model
    unused = project.run_toy("--packbench-mode=live", "--packbench-target=pipeline:hang", address)
    unused.assert_outcomes(passed=1)
    text = project.all_text() + "".join(result.stdout.str() + result.stderr.str() for result in (refused, unused))
    assert "planted-password" not in text


def test_the_address_is_in_the_command_that_runs_a_case_again(project: Project, model: Model) -> None:
    project.prepare("points 0.1")
    model.run(project).stdout.fnmatch_lines([f"re-run: *--packbench-base-url={model.url}/v1"])
    assert [received.path for received in model.requests] == ["/v1/chat/completions"]
