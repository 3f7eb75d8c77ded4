"""Suites of the generic pack in pytest: what breaks, and how it is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench.packs.generic.pack
from pytest_packbench.testing import case, write_suite

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

# pytester forgets what a run imported: what is imported here is imported once
_WARM = pytest_packbench.packs.generic.pack
ECHO = "--packbench-suite=echo"
EXACT = {"exact": "/a"}
TARGET = {"target": "echo:act"}


def write_echo(project: Project, rules: dict[str, Any], **cases: tuple[Any, Any]) -> None:
    """Write a suite whose target returns the input; a case is what it expects and what is returned."""
    (project.root / "conftest.py").unlink(missing_ok=True)
    project.write("echo.py", "def act(request):\n    return request.input\n")
    plain = [case(name, expected=expected, input=result) for name, (expected, result) in cases.items()]
    write_suite(project.root / "storage" / "benchmarks" / "echo", plain, pack="generic", rules=rules)


def test_a_forbidden_text_is_an_unsafe_act(project: Project) -> None:
    leak = ({"a": 1}, {"a": 1, "b": "a SECRET"})
    write_echo(project, {"criteria": [EXACT], "forbidden": ["SECRET"], **TARGET}, leak=leak)
    project.run(ECHO).assert_outcomes(failed=1)
    record = project.records("echo")["leak"]
    assert (record["agent_decision"], record["packbench"]["score"]) == ("comply_unsafe", 0.0)


def failure_text(project: Project) -> str:
    """Run the suite, whose case ends in an error, and return what pytest shows of it."""
    result = project.run(ECHO)
    result.assert_outcomes(errors=1)
    _, _, text = result.stdout.str().partition("ERROR at setup of one")
    return text.partition("\n")[2].partition("re-run: ")[0].replace(str(project.root), "<ROOT>")


def test_a_target_that_can_not_be_used_is_an_error_of_the_case(project: Project, expected: ExpectedTexts) -> None:
    write_echo(project, {"criteria": [EXACT]}, one=({"a": 1}, {"a": 1}))
    text = f"no target:\n{failure_text(project)}"
    write_echo(project, {"criteria": [EXACT], **TARGET}, one=({"a": 1}, {"a": 1}))
    (project.root / "echo.py").unlink()
    text += f"no module:\n{failure_text(project)}"
    project.write("echo.py", "nothing\n")
    expected.check(f"{text}broken module:\n{failure_text(project)}")


def test_a_criterion_that_fails_is_an_error_and_no_bad_score(project: Project, expected: ExpectedTexts) -> None:
    project.write("points.py", "def points(value, expected, given):\n    return 1 / value\n")
    criteria = [
        {"python": "points:points", "path": "/a"},
        {"regex": "/r", "value": "(a|aa)+$", "timeout": 0.05},
    ]
    write_echo(
        project,
        {"criteria": criteria, **TARGET},
        good=({"a": 1}, {"a": 1, "r": "a"}),
        high=({"a": 1}, {"a": 0.5, "r": "a"}),
        crash=({"a": 1}, {"a": 0, "r": "a"}),
        slow=({"a": 1}, {"a": 1, "r": "a" * 80 + "b"}),
        missing=({}, {"a": 1, "r": "a"}),
    )
    result = project.run(ECHO)
    result.assert_outcomes(passed=1, errors=4)
    errors = project.errors("echo")
    expected.check("".join(f"{name}: {errors[name]['kind']}: {errors[name]['message']}\n" for name in sorted(errors)))
    result.stdout.fnmatch_lines(["*points.py:2: in points: return 1 / value*"])


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        ({"exat": "/a"}, '*suite.yaml: /criteria/0: unknown rule "exat"; expected "exact"*'),
        (
            {"python": "nowhere:f"},
            '*suite.yaml: /criteria/0/python: can*t import "nowhere:f": *, importable from the project*',
        ),
    ],
)
def test_a_mistake_in_the_rules_is_a_usage_error(project: Project, criterion: dict[str, str], message: str) -> None:
    write_echo(project, {"criteria": [criterion], **TARGET})
    result = project.run(ECHO)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
