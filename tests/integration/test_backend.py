"""`--packbench-backend`, `-model`, `-base-url`: who answers, which failures are errors, and what the options need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import SECRET, live, model_server, points, prepare
from tests.servers.fake import Received, Reply
from tests.servers.wire import error_reply, openai_reply, parse_request

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

FAILURES = {
    "rate_limit": error_reply(429, "slow down", headers={"retry-after": "0"}),
    "server_error": error_reply(500, "an error"),
    "auth": error_reply(401, f"wrong key {SECRET}"),
    "answer_unreadable": openai_reply('{"points": ', finish_reason="stop"),
    "truncated": openai_reply('{"points": 1', finish_reason="length"),
    "timeout": Reply(hang=True),
    "network": Reply(body=b"{" * 100, cut=True),
}


@pytest.mark.parametrize("target", ["pipeline:ask", "pipeline:ignore_errors"])
def test_a_failed_call_is_an_error_of_its_case_even_if_the_target_ignores_it(project: Project, target: str) -> None:
    prepare(project, *FAILURES, "points 1")
    project.pytester.makeini("[pytest]\npackbench_retries = 1\npackbench_call_timeout = 0.5\n")

    def fail(received: Received) -> Reply:
        return FAILURES.get(parse_request(received).text) or points(received)

    with model_server(fail) as server:
        result = project.run_toy(*live(server, target=target))
    result.assert_outcomes(errors=len(FAILURES), passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [(line["verdict"], line["kind"]) for line in project.lines("errors.jsonl")] == [
        ("error", kind) for kind in FAILURES
    ]
    assert [record["test_id"] for record in project.lines("records.jsonl")] == ["toy:plain:case_07"]


def test_calls_that_an_overloaded_server_refused_are_repeated(project: Project) -> None:
    prepare(project, *["points 1"] * 6)
    refusals = [error_reply(429, "slow down", headers={"retry-after": "0.05"}) for _ in range(3)]
    with model_server(lambda received: refusals.pop() if refusals else points(received)) as server:
        project.run_toy(*live(server)).assert_outcomes(passed=6)
        assert len(server.requests) == 9


def test_the_command_to_run_a_case_again_has_the_options_of_its_model(project: Project) -> None:
    prepare(project, "points 0.5")
    with model_server() as server:
        result = project.run_toy(*live(server, "--packbench-trials=2"))
    base_url = f"--packbench-base-url={server.url}/v1"
    result.stdout.fnmatch_lines(["model:    openai fake-1, 1 call", f"re-run: * --packbench-model=fake-1 {base_url} *"])
    result.stdout.fnmatch_lines(["re-run: * --packbench-trials=2"])


def test_an_unused_address_is_not_shown(project: Project) -> None:
    prepare(project, "points 1")
    project.pytester.makepyfile(
        alone="""
        from pytest_packbench import without_model

        @without_model
        def score(request):
            return {"points": 0.5}
        """
    )
    options = ("--packbench-mode=live", "--packbench-target=alone:score")
    result = project.run_toy(*options, "--packbench-base-url=http://me:pw@h/")
    result.stdout.fnmatch_lines([f"re-run: * {' '.join(options)}"])
    result.stdout.no_fnmatch_line("*me:pw*")


MISTAKES = {
    "no backend": ("--packbench-mode=live",),
    "fixture mode": ("--packbench-backend=openai",),
    "no model": ("--packbench-mode=live", "--packbench-backend=openai"),
    "no key": ("--packbench-mode=live", "--packbench-backend=openai", "--packbench-model=m"),
    "no scripted model": ("--packbench-mode=live", "--packbench-backend=stub"),
    "unknown backend": ("--packbench-mode=live", "--packbench-backend=nobody"),
    "trials in fixture mode": ("--packbench-trials=2",),
    "no trial": ("--packbench-mode=live", "--packbench-trials=0"),
    "no concurrency": ("--packbench-concurrency=0",),
    "negative cost": ("--packbench-max-cost=-1",),
    "no number of tokens": ("--packbench-max-tokens=1.5",),
    "no time": ("--packbench-max-seconds=0",),
    "no number of seconds": ("--packbench-case-timeout=nan",),
    "price of a program": (
        "--packbench-mode=live",
        "--packbench-target=cmd:python program.py",
        "--packbench-max-cost=1",
    ),
    "unknown guard": ("--packbench-guard=nobody",),
    "guards and none": ("--packbench-guard=none", "--packbench-guard=redact"),
}


def test_a_mistake_in_the_options_is_one_line_before_the_first_case(
    project: Project, expected: ExpectedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    prepare(project, "x")
    lines = []
    for name, options in MISTAKES.items():
        result = project.run_toy("--packbench-target=pipeline:ask", *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, name
        lines.append(f"{name}: {result.stderr.str().strip()}\n")
    expected.check("".join(lines))
    assert not project.folders()


def test_a_missing_key_is_a_usage_error_of_workers_too(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    prepare(project, "x")
    options = ("--packbench-mode=live", "--packbench-target=pipeline:ask", "--packbench-backend=openai")
    result = project.run_toy("-n2", *options, "--packbench-model=m")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "OPENAI_API_KEY" in result.stderr.str()
