"""The tools for authors of packs: a case scored in memory, and suites run plain and by two workers."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_packbench import CaseError, SuiteError
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.generic.suite import GenericSuiteConfig
from pytest_packbench.testing import case, run_suite, score, write_suite

SUM: dict[str, Any] = {"input": {"value": 4}, "expected": {"answer": 4}}
TARGETS = """
from pytest_packbench import ModelRequest, without_model

@without_model
def echo(request):
    return {"answer": request.input["value"]}

async def ask(request, context):
    question = ModelRequest(role="ask", system="", messages=({"role": "user", "content": "?"},))
    answer = await context.llm.complete(question)
    return {"answer": answer.content}
"""


def test_one_case_is_scored_in_memory_or_its_mistake_is_the_error_of_a_run() -> None:
    for rules in ({"description": "sums"}, GenericSuiteConfig(pack="generic"), None):
        right, wrong = (score(GenericPack(), case(**SUM), {"answer": answer}, rules=rules) for answer in (4, 5))
        assert (right.passed, right.score, wrong.passed) == (True, 1.0, False)
    with pytest.raises(CaseError, match="/difficulty"):
        score(GenericPack(), case(difficulty="silly", **SUM), {})
    with pytest.raises(SuiteError, match="/nothing"):
        score(GenericPack(), case(**SUM), {}, rules={"nothing": 1})


@pytest.mark.parametrize("workers", [0, 1])
def test_a_suite_is_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setenv("PACKBENCH_MODE", "live")
    pytester.makepyfile(targets=TARGETS)
    cases = [case("good", **SUM), case("bad", input={"value": 5}, expected={"answer": 4}), case("none", expected={})]
    root = pytester.path / "storage" / "benchmarks"
    write_suite(root / "sums", cases, pack="generic", rules={"target": "targets:echo"})
    results = run_suite(pytester, "sums", workers=workers)
    assert results.pytest is not None
    results.pytest.assert_outcomes(passed=1, failed=1, errors=1)
    assert results.exit_code == 1
    assert results.verdicts == {"good": "passed", "bad": "failed", "none": "error"}
    assert results.scores["good"] == 1.0
    assert [error["kind"] for error in results.errors] == ["target_error"]
    assert results.report["packbench"]["run"]["suite"] == "sums"
    assert "sums" in results.summary


def test_recorded_exchanges_are_replayed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(targets=TARGETS)
    folder = write_suite(
        pytester.path / "storage" / "benchmarks" / "sums",
        [case("a", expected={"answer": "4"})],
        pack="generic",
        rules={"target": "targets:ask"},
        recordings={"a": [{"role": "ask", "answer": "4"}]},
    )
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {"suite.yaml", "cases/plain/a.json", "fixtures/a.json"}
    assert run_suite(pytester, "sums").verdicts == {"a": "passed"}
    # a usage error leaves no folder
    results = run_suite(pytester, "other")
    assert (results.folder, results.exit_code, results.records, results.errors) == (None, 4, [], [])
