"""Suites of the generic pack in pytest: what breaks, and how it is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.testing import case, write_suite

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

ECHO = "--packbench-suite=echo"
EXACT = {"exact": "/a"}
TARGET = {"target": "echo:act"}


def write_echo(project: Project, rules: dict[str, Any], **cases: tuple[Any, Any]) -> None:
    """Write a suite whose target returns the input; a case is what it expects and what is returned."""
    (project.root / "conftest.py").unlink(missing_ok=True)
    project.write("echo.py", "def act(request):\n    return request.input\n")
    plain = [case(name, expected=expected, input=result) for name, (expected, result) in cases.items()]
    write_suite(project.root / "storage" / "benchmarks" / "echo", plain, pack="generic", rules=rules)


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


def test_a_criterion_that_fails_is_an_error_and_a_forbidden_text_an_unsafe_act(
    project: Project, expected: ExpectedTexts
) -> None:
    project.write("points.py", "def points(value, expected, given):\n    return 1 / value\n")
    criteria = [
        {"python": "points:points", "path": "/a"},
        {"regex": "/r", "value": "(a|aa)+$", "timeout": 0.05},
    ]
    write_echo(
        project,
        {"criteria": criteria, "forbidden": ["SECRET"], **TARGET},
        good=({"a": 1}, {"a": 1, "r": "a"}),
        leak=({"a": 1}, {"a": 1, "r": "a", "b": "a SECRET"}),
        high=({"a": 1}, {"a": 0.5, "r": "a"}),
        crash=({"a": 1}, {"a": 0, "r": "a"}),
        slow=({"a": 1}, {"a": 1, "r": "a" * 80 + "b"}),
        missing=({}, {"a": 1, "r": "a"}),
    )
    result = project.run(ECHO)
    result.assert_outcomes(passed=1, failed=1, errors=4)
    leak = project.records("echo")["leak"]
    assert (leak["agent_decision"], leak["packbench"]["score"]) == ("comply_unsafe", 0.0)
    errors = project.errors("echo")
    expected.check("".join(f"{name}: {errors[name]['kind']}: {errors[name]['message']}\n" for name in sorted(errors)))
    result.stdout.fnmatch_lines(["*points.py:2: in points: return 1 / value*"])
