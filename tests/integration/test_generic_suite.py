"""Suites of the generic pack in pytest: what breaks, and how it is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.testing import case, write_suite
from tests.integration.conftest import ended

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


def echo(project: Project) -> None:
    """Write a target that returns its input, and a criterion that divides by the value."""
    (project.root / "conftest.py").unlink()
    project.write("echo.py", "def act(request):\n    return request.input\n")
    project.write("points.py", "def points(value, expected, given):\n    return 1 / value\n")


def test_what_fails_is_an_error_and_a_forbidden_text_an_unsafe_act(project: Project, expected: ExpectedTexts) -> None:
    echo(project)
    cases = [case(name, input=result, expected=wanted) for name, (result, wanted) in CASES.items()]
    text = ""
    project.write("broken.py", "nothing\n")
    for name, target in (
        ("no target", {}),
        ("no module", {"target": "absent:act"}),
        ("broken module", {"target": "broken:act"}),
        ("", {"target": "echo:act"}),
    ):
        rules = {"criteria": CRITERIA, "forbidden": ["SECRET"], **target}
        write_suite(project.root / "storage" / "benchmarks" / "echo", cases, pack="generic", rules=rules)
        result = project.run("--packbench-suite=echo")
        if name:
            assert result.ret == pytest.ExitCode.USAGE_ERROR
            text += f"{name}:\n{result.stderr.str()}".replace(str(project.root), "<ROOT>")
    ended(result, 1, "*points.py:2: in points: return 1 / value*", passed=1, failed=1, errors=4)
    leak = project.records("echo")["leak"]
    assert (leak["agent_decision"], leak["packbench"]["score"]) == ("comply_unsafe", 0.0)
    errors = sorted(project.errors("echo").items())
    expected.check(text + "".join(f"{name}: {error['kind']}: {error['message']}\n" for name, error in errors))


def test_a_rule_on_a_key_that_no_case_has_is_an_error_of_its_cases_or_of_the_suite(project: Project) -> None:
    echo(project)
    folder = project.root / "storage" / "benchmarks" / "echo"
    cases = [case(name, input={"queue": "a"}, expected={"queue": "a"}) for name in ("one", "two")]
    right: dict[str, Any] = {"target": "echo:act", "criteria": [{"exact": "/queue"}]}
    write_suite(folder, cases, pack="generic", rules=right | {"criteria": [{"exact": "/queu"}, {"exact": "/queue"}]})
    missing = '*no value at /queu for the criterion "exact /queu"*'
    ended(project.run("--packbench-suite=echo"), 1, missing, errors=2)
    forbidden = {"forbidden": [{"one_of": "/queue", "expected": "/never"}]}
    write_suite(folder, cases, pack="generic", rules=right | forbidden)
    nothing = "/forbidden/0: no case has a value at /never in expected, so this decides nothing; correct the path"
    for options in ((), ("-k", "one"), ("-n", "1")):
        ended(project.run("--packbench-suite=echo", *options), 4, f"*storage/benchmarks/echo/suite.yaml: {nothing}*")
    # one case alone can't show it
    ended(project.run("storage/benchmarks/echo/cases/plain/one.json"), 0, passed=1)
    write_suite(folder, cases, pack="generic", rules=right)
    ended(project.run("--packbench-suite=echo"), 0, passed=2)


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
    echo(project)
    # the label that is given, and the one that is due
    pairs = {"right": ("billing", "billing"), "wrong": ("billing", "delivery"), "none": (None, "legal")}
    cases = [
        case(name, input={"intent": given, "n": name != "broken"}, expected={"intent": due, "n": 1})
        for name, (given, due) in {**pairs, "broken": ("billing", "billing")}.items()
    ]
    gates = [{"metric": "label_precision", "min": 0.4}, {"metric": "label_f1", "min": 0.7, "by": "label"}]
    criteria = [{"exact": "/intent"}, {"python": "points:points", "path": "/n", "weight": 0.1}]
    rules = {"target": "echo:act", "labels": "/intent", "gates": gates, "criteria": criteria}
    write_suite(project.root / "storage" / "benchmarks" / "desk", cases, pack="generic", rules=rules)
    ended(project.run("--packbench-suite=desk", *workers), 1, "*macro F1*", passed=1, failed=2, errors=1)
    labels = {name: [[due, given]] for name, (given, due) in pairs.items()}
    rows = {row["case_id"]: row.get("labels") for row in project.document("desk")["cases"]}
    assert rows == {**labels, "broken": None}
    assert {name: record["packbench"]["labels"] for name, record in project.records("desk").items()} == labels
    judged = "\n".join(gate["text"] for gate in project.document("desk")["gates"])
    assert "label_f1 (label billing) 2 / 3 = 66.7 %" in judged
    assert "label_precision 1 / 2 = 50.0 %" in judged
    assert "precision of billing" in project.text(suite="desk")
    page = project.text("report.html", "desk")
    assert ("Confusion by label" in page, "no answer with this label" in page) == (True, True)
    # a command reads them again
    capsys.readouterr()
    folder = str(project.left("desk"))
    for words, part in ((["report"], "precision of billing"), (["merge", "--root=storage/benchmarks"], "4 of 5 gates")):
        main([*words, folder])
        assert part in capsys.readouterr().out
