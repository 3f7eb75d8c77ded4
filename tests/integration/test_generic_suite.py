"""Suites of the generic pack in pytest: what breaks, and how it is reported."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.testing import case, write_suite

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

# what each case returns, and expects
CASES = {
    "good": ({"a": 1, "r": "a"}, {"a": 1}),
    "leak": ({"a": 1, "r": "a", "b": "a SECRET"}, {"a": 1}),
    "high": ({"a": 0.5, "r": "a"}, {"a": 1}),
    "crash": ({"a": 0, "r": "a"}, {"a": 1}),
    "slow": ({"a": 1, "r": "a" * 80 + "b"}, {"a": 1}),
    "missing": ({"a": 1, "r": "a"}, {}),
}
CRITERIA = [{"python": "points:points", "path": "/a"}, {"regex": "/r", "value": "(a|aa)+$", "timeout": 0.05}]


def test_what_fails_is_an_error_and_a_forbidden_text_an_unsafe_act(project: Project, expected: ExpectedTexts) -> None:
    (project.root / "conftest.py").unlink()
    project.write("points.py", "def points(value, expected, given):\n    return 1 / value\n")
    cases = [case(name, input=result, expected=wanted) for name, (result, wanted) in CASES.items()]
    rules = {"criteria": CRITERIA, "forbidden": ["SECRET"]}
    text = ""
    for name, target, code in (
        ("no target", {}, ""),
        ("no module", {"target": "absent:act"}, ""),
        ("broken module", {"target": "broken:act"}, "nothing\n"),
    ):
        project.write("broken.py", code)
        write_suite(project.root / "storage" / "benchmarks" / "echo", cases, pack="generic", rules=rules | target)
        result = project.run("--packbench-suite=echo", "-k", "good")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        text += f"{name}:\n{result.stderr.str()}".replace(str(project.root), "<ROOT>")
    project.write("echo.py", "def act(request):\n    return request.input\n")
    write_suite(
        project.root / "storage" / "benchmarks" / "echo", cases, pack="generic", rules=rules | {"target": "echo:act"}
    )
    shutil.rmtree(project.root / "reports", ignore_errors=True)
    result = project.run("--packbench-suite=echo")
    result.assert_outcomes(passed=1, failed=1, errors=4)
    leak = project.records("echo")["leak"]
    assert (leak["agent_decision"], leak["packbench"]["score"]) == ("comply_unsafe", 0.0)
    errors = project.errors("echo")
    expected.check(
        text + "".join(f"{name}: {errors[name]['kind']}: {errors[name]['message']}\n" for name in sorted(errors))
    )
    result.stdout.fnmatch_lines(["*points.py:2: in points: return 1 / value*"])


def test_a_rule_on_a_key_that_no_case_has_is_an_error_of_its_cases_or_of_the_suite(project: Project) -> None:
    (project.root / "conftest.py").unlink()
    project.write("echo.py", "def act(request):\n    return request.input\n")
    folder = project.root / "storage" / "benchmarks" / "echo"
    cases = [case(name, input={"queue": "a"}, expected={"queue": "a"}) for name in ("one", "two")]
    right: dict[str, Any] = {"target": "echo:act", "criteria": [{"exact": "/queue"}]}
    write_suite(folder, cases, pack="generic", rules=right | {"criteria": [{"exact": "/queu"}, {"exact": "/queue"}]})
    result = project.run("--packbench-suite=echo")
    result.assert_outcomes(errors=2)
    assert 'no value at /queu for the criterion "exact /queu"' in result.stdout.str()
    forbidden = {"forbidden": [{"one_of": "/queue", "expected": "/never"}]}
    write_suite(folder, cases, pack="generic", rules=right | forbidden)
    for options in ((), ("-k", "one"), ("-n", "1")):
        result = project.run("--packbench-suite=echo", *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        wrong = "storage/benchmarks/echo/suite.yaml: /forbidden/0: no case has a value at /never in expected, so this decides"
        assert f"{wrong} nothing; correct the path" in result.stderr.str() + result.stdout.str()
    # one case alone can't show it
    project.run("storage/benchmarks/echo/cases/plain/one.json").assert_outcomes(passed=1)
    write_suite(folder, cases, pack="generic", rules=right)
    project.run("--packbench-suite=echo").assert_outcomes(passed=2)


def test_a_hard_fail_of_any_pack_fails_its_case(project: Project) -> None:
    project.extend_conftest("""
        class Lenient(Toy):
            def terms(self, case, answer, rules):
                yield from super().terms(case, answer, rules)
                yield Term(name="leak", effect="zero")

        def pytest_packbench_packs():
            return [Lenient()]
        """)
    project.case("good")
    project.run_toy().assert_outcomes(failed=1)
    assert project.records()["good"]["passed"] is False


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "workers"])
def test_the_labels_of_a_run_are_in_its_summary_its_page_its_rows_and_its_gates(
    project: Project, capsys: pytest.CaptureFixture[str], workers: tuple[str, ...]
) -> None:
    (project.root / "conftest.py").unlink()
    project.write("echo.py", "def act(request):\n    return request.input\n")
    answers = {"right": "billing", "wrong": "billing", "none": None, "broken": "billing"}
    cases = [
        case(name, input={"intent": given, "n": 0 if name == "broken" else 1}, expected={"intent": label, "n": 1})
        for (name, given), label in zip(answers.items(), ("billing", "delivery", "legal", "billing"), strict=True)
    ]
    project.write("points.py", "def points(value, expected, given):\n    return value / value\n")
    gates = [
        {"metric": "label_precision", "min": 0.4},
        {"metric": "label_f1", "min": 0.7, "by": "label"},
    ]
    rules = {"target": "echo:act", "labels": "/intent", "gates": gates}
    criteria = [{"exact": "/intent"}, {"python": "points:points", "path": "/n", "weight": 0.1}]
    write_suite(
        project.root / "storage" / "benchmarks" / "desk", cases, pack="generic", rules={**rules, "criteria": criteria}
    )
    result = project.run("--packbench-suite=desk", *workers)
    result.assert_outcomes(passed=1, failed=2, errors=1)
    report = project.report("desk")
    rows = {row["case_id"]: row.get("labels") for row in report["packbench"]["cases"]}
    pairs = {"right": ["billing", "billing"], "wrong": ["delivery", "billing"], "none": ["legal", None]}
    assert rows == {**{name: [pair] for name, pair in pairs.items()}, "broken": None}
    assert {name: record["packbench"]["labels"] for name, record in project.records("desk").items()} == {
        name: [pair] for name, pair in pairs.items()
    }
    gates_of = {
        gate["text"].partition(":")[0].partition(" >=")[0].partition(" <")[0] for gate in report["packbench"]["gates"]
    }
    assert "label_f1 (label billing) 2 / 3 = 66.7 %" in gates_of
    assert "label_precision 1 / 2 = 50.0 %" in gates_of
    summary = project.left("desk").joinpath("summary.md").read_text("utf-8")
    page = project.left("desk").joinpath("report.html").read_text("utf-8")
    assert "macro F1" in result.stdout.str()
    assert "precision of billing" in summary
    assert "Confusion by label" in page
    assert "no answer with this label" in page
    # a command reads them again
    capsys.readouterr()
    assert main(["report", str(project.left("desk"))]) in {0, 1}
    assert "precision of billing" in capsys.readouterr().out
    assert main(["merge", str(project.left("desk")), "--root", "storage/benchmarks"]) in {0, 1}
    assert "4 of 5 gates failed" in capsys.readouterr().out
