"""`--packbench-base-url`: the address of the model's server, without a password in any output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.conftest import ended

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


def test_a_password_in_an_address_reaches_no_file_and_no_terminal(project: Project, model: Model) -> None:
    project.prepare("points 0.1")
    address = f"--packbench-base-url={model.url.replace('//', '//me:planted-password@')}/v1"
    invalid = "*base URL of the backend openai is invalid: *no user name, password or query"
    refused = ended(model.run(project, address), 4, invalid)
    # the target calls no model
    unused = ended(project.run_toy("--packbench-mode=live", "--packbench-target=pipeline:hang", address), 0, passed=1)
    text = project.all_text() + "".join(result.stdout.str() + result.stderr.str() for result in (refused, unused))
    assert "planted-password" not in text
    # an address is in the command that runs a case again
    ended(model.run(project), 1, f"re-run: *--packbench-base-url={model.url}/v1")
    assert [received.path for received in model.requests] == ["/v1/chat/completions"]
