"""`--packbench-backend`: calls through the client library of a provider, which may fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.options.conftest import SECRET, points
from tests.servers.fake import Reply
from tests.servers.wire import error_reply, parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model

FAILURES = {
    "rate_limit": error_reply(429, "slow down", headers={"retry-after": "0"}),
    "server_error": error_reply(500, "an error"),
    "auth": error_reply(401, f"wrong key {SECRET}"),
    "response_unreadable": Reply(body=b"<html>Welcome</html>"),
    "timeout": Reply(hang=True),
    "network": Reply(body=b"{" * 100, cut=True),
}


def test_a_failed_call_is_an_error_of_its_case_even_if_the_target_ignores_it(project: Project, model: Model) -> None:
    project.prepare(*FAILURES, "points 1")
    project.pytester.makeini("[pytest]\npackbench_retries = 1\npackbench_call_timeout = 0.5\n")
    model.handler = lambda received: FAILURES.get(parse_request(received).text) or points(received)
    model.run(project, target="pipeline:ignore_errors").assert_outcomes(errors=len(FAILURES), passed=1)
    errors = [(line["verdict"], line["kind"]) for line in project.lines("errors.jsonl")]
    assert errors == [("error", kind) for kind in FAILURES]
    # the wait that a server asks for is made as often as the setting says
    assert [parse_request(received).text for received in model.requests].count("rate_limit") == 2
