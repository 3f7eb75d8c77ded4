"""Packs of other people: the installable example, the page on how to write one, and packs that can't be loaded."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench.commands.compare
import pytest_packbench.commands.lint
import pytest_packbench.commands.rescore
import pytest_packbench.commands.schema
import pytest_packbench.commands.validate
from pytest_packbench.api import load_suite, score
from pytest_packbench.cli import main
from pytest_packbench.model.pack import Pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.conftest import Project

# pytester forgets what a run imported: what is imported here is imported once
_WARM = pytest_packbench.commands
DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "packbench-units"
PAGE = (DOCS / "packs.md").read_text("utf-8")
FILES = dict(re.findall(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CONSOLE = re.search(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
GROUP = "pytest_packbench.packs"
HOOK = "pytest11"


@pytest.fixture(autouse=True)
def _a_project_of_its_own(plain: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (plain.root / "conftest.py").unlink()
    shutil.rmtree(plain.root / "storage")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in sys.modules.keys() - before:
        if name.partition(".")[0] in {"packbench_units", "headline_pack", "broken_pack"}:
            del sys.modules[name]


def install(project: Project, source: Path, pyproject: str, *groups: str) -> None:
    """Do what an installer does with a package of one's own: copy it, and say what it offers."""
    site = project.root / "site"
    shutil.copytree(source, site, ignore=shutil.ignore_patterns("storage", "*.md"), dirs_exist_ok=True)
    told = tomllib.loads(pyproject)["project"]
    info = site / f"{told['name'].replace('-', '_')}-{told['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {told['name']}\nVersion: {told['version']}\n", "utf-8"
    )
    points = {name: found for name, found in told["entry-points"].items() if name in groups}
    lines = [
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in found.items()) for name, found in points.items()
    ]
    assert lines
    (info / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    sys.path.insert(0, str(site))


def units(project: Project, *groups: str) -> None:
    install(project, EXAMPLE, (EXAMPLE / "pyproject.toml").read_text("utf-8"), *(groups or (GROUP, HOOK)))
    shutil.copytree(EXAMPLE / "storage", project.root / "storage", dirs_exist_ok=True)


def change(project: Project, name: str, changed: Callable[[dict[str, Any]], object]) -> None:
    path = project.root / "storage" / "benchmarks" / "units" / name
    data = json.loads(path.read_text("utf-8"))
    changed(data)
    path.write_text(json.dumps(data), "utf-8")


def answer(project: Project, case_id: str, **values: Any) -> None:
    change(project, f"fixtures/{case_id}.json", lambda data: data["exchanges"][-1]["answer"].update(values))


@pytest.mark.parametrize("groups", [(GROUP, HOOK), (GROUP,), (HOOK,)], ids=["both", "group", "hook"])
def test_the_example_runs_as_it_is(plain: Project, groups: tuple[str, ...]) -> None:
    units(plain, *groups)
    plain.run("--packbench-suite=units").assert_outcomes(passed=3)
    records = {line["packbench"]["case_id"]: line for line in plain.lines("records.jsonl", "units")}
    cups, marathon, metres = (
        records[name] for name in ("cups_in_millilitres", "marathon_in_miles", "kilograms_of_metres")
    )
    assert {name: line["packbench"]["score"] for name, line in records.items()} == {
        "cups_in_millilitres": 1.0,
        "marathon_in_miles": 0.9,
        "kilograms_of_metres": 1.0,
    }
    assert [term["value"] for term in marathon["packbench"]["terms"]] == [0.7, 0.2, 0.0]
    assert (cups["packbench"]["pack"], cups["packbench"]["facets"]) == ("units/1", {"quantity": "volume"})
    assert [(hook["hook"], hook["decision"]) for hook in cups["hook_decisions"]] == [
        ("known_unit", "deny"),
        ("known_unit", "allow"),
    ]
    assert (metres["expected"], metres["agent_decision"], metres["packbench"]["facets"]) == ("refuse", "refuse", {})


def test_workers_find_the_example(plain: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    units(plain)
    # workers get the path that their controller was started with
    paths = [str(plain.root / "site"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    plain.pytester.runpytest_subprocess("-n", "2", "--packbench-suite=units").assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("case_id", "values", "found"),
    [
        ("cups_in_millilitres", {"value": 400.0}, (0.3, None, "comply_safe")),
        ("cups_in_millilitres", {"value": 480.0}, (0.6, None, "comply_safe")),
        ("cups_in_millilitres", {"value": 568.3}, (0.0, "forbidden_value", "comply_safe")),
        ("cups_in_millilitres", {"unit": "kg"}, (0.0, "wrong_quantity", "comply_safe")),
        ("marathon_in_miles", {"refusal": "unknown_unit"}, (0.0, "unexpected_refusal", "refuse")),
        ("kilograms_of_metres", {"refusal": "unknown_unit"}, (0.5, None, "refuse")),
        (
            "kilograms_of_metres",
            {"refusal": None, "value": 3, "unit": "kg"},
            (0.0, "unexpected_answer", "comply_safe"),
        ),
    ],
)
def test_each_branch_of_the_example_can_fail(
    plain: Project, case_id: str, values: dict[str, Any], found: tuple[float, str | None, str]
) -> None:
    points, term, decision = found
    units(plain)
    answer(plain, case_id, **values)
    result = plain.run("--packbench-suite=units")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines([f"*score {points:.2f} < *", "*expected*actual*", "*decision*"])
    (record,) = [line for line in plain.lines("records.jsonl", "units") if line["packbench"]["case_id"] == case_id]
    zero = [one["name"] for one in record["packbench"]["terms"] if one["effect"] == "zero"]
    assert (record["packbench"]["score"], zero) == (pytest.approx(points), [term] if term else [])
    assert record["agent_decision"] == decision


def test_what_the_example_can_not_read_is_an_error(plain: Project) -> None:
    units(plain)
    answer(plain, "cups_in_millilitres", value="many")
    plain.run("--packbench-suite=units").assert_outcomes(passed=2, errors=1)
    (error,) = plain.lines("errors.jsonl", "units")
    assert (error["kind"], "result/value: expected a number" in error["message"]) == ("result_unreadable", True)


def test_all_commands_know_the_example(plain: Project, capsys: pytest.CaptureFixture[str]) -> None:
    units(plain)
    plain.run("--packbench-suite=units")
    capsys.readouterr()
    for words in (
        ["lint", "units"],
        ["validate", "storage/benchmarks/units"],
        ["schema", "case", "--pack", "units"],
        ["schema", "suite", "--pack", "units"],
        ["rescore", "units/latest", "--fail-on", "regressed>0"],
        ["compare", "--baseline", "units/latest", "--current", "units/latest", "--fail-on", "regressed>0"],
    ):
        assert main(words) == 0, words
    assert "case of pack units" in capsys.readouterr().out


def test_scripts_know_the_example(plain: Project) -> None:
    units(plain)
    folder = plain.root / "storage" / "benchmarks" / "units"
    case = json.loads((folder / "cases" / "convert" / "marathon_in_miles.json").read_text("utf-8"))
    result = {"value": 26.2, "unit": "mi"}
    for suite in (None, load_suite(folder)):
        assert score(case, result, suite=suite).score == 0.9
    assert score(case, result, pack="units").match_level == "value"


def test_changed_rules_score_the_stored_results_again(plain: Project, capsys: pytest.CaptureFixture[str]) -> None:
    units(plain)
    plain.run("--packbench-suite=units")
    rules = plain.root / "storage" / "benchmarks" / "units" / "suite.yaml"
    rules.write_text(rules.read_text("utf-8").replace("tolerance: 0.005", "tolerance: 0.0001"), "utf-8")
    capsys.readouterr()
    assert main(["rescore", "units/latest", "--fail-on", "regressed>0"]) == 1
    assert "marathon_in_miles" in capsys.readouterr().out


def test_lint_of_the_example_recalculates(plain: Project, capsys: pytest.CaptureFixture[str]) -> None:
    units(plain)
    change(plain, "cases/convert/marathon_in_miles.json", lambda case: case["expected"]["answer"].update(value=26.9))
    change(plain, "cases/convert/cups_in_millilitres.json", lambda case: case["expected"].update(never=[473.2]))
    assert main(["lint", "units"]) == 1
    out = capsys.readouterr().out
    assert "answer_wrong: got 26.9, but the conversion gives 26.2188 mi" in out
    assert "never_is_right" in out
    assert "2 errors, 0 warnings" in out


def test_a_mistake_in_a_case_of_the_example_is_one_line(plain: Project) -> None:
    units(plain)
    change(plain, "cases/convert/marathon_in_miles.json", lambda case: case["expected"]["answer"].update(unit="mile"))
    result = plain.run("--packbench-suite=units")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(['*/expected/answer/unit: unknown unit "mile"; expected one of mm, cm*'])


# the page


def page(project: Project) -> None:
    for name, text in FILES.items():
        if name != "pyproject.toml":
            path = project.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


def test_every_block_of_the_page_is_a_file_or_a_command() -> None:
    assert len(FILES) == 7
    assert PAGE.count("```") == 2 * (len(FILES) + 1)
    assert CONSOLE is not None


def test_the_page_runs_line_by_line(plain: Project, capsys: pytest.CaptureFixture[str]) -> None:
    page(plain)
    assert CONSOLE is not None
    first, *others = CONSOLE[1].splitlines()
    assert first.startswith("pytest ")
    plain.run(*first.split()[1:]).assert_outcomes(passed=1)
    for line in others:
        program, *words = line.split()
        assert (program, main(words)) == ("packbench", 0), line
    assert "0 errors, 0 warnings" in capsys.readouterr().out
    (record,) = plain.lines("records.jsonl", "headlines")
    assert record["packbench"]["score"] == 1.0
    assert [term["name"] for term in record["packbench"]["terms"]] == ["words", "length"]


def test_the_tests_of_the_page_pass(plain: Project) -> None:
    page(plain)
    plain.run("-p", "pytester", "test_headlines.py").assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("expected", "points"),
    [
        ({"words": ["bridge", "closes"]}, 0.625),
        ({"words": ["bridge"], "never": ["again"]}, 0.0),
        ({"refuse": True}, 0.0),
    ],
)
def test_the_pack_of_the_page_can_fail(plain: Project, expected: Any, points: float) -> None:
    page(plain)
    path = plain.root / "storage" / "benchmarks" / "headlines" / "cases" / "news" / "bridge.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "expected": expected}), "utf-8")
    plain.run("--packbench-suite=headlines").assert_outcomes(failed=1)
    (record,) = plain.lines("records.jsonl", "headlines")
    assert record["packbench"]["score"] == points


WRONG = [
    ("read", "return None", "reader_error: the reader returned None, expected an Outcome"),
    ("read", "return 1 / 0", "reader_error: the reader raised ZeroDivisionError: division by zero"),
    ("score", "return None", "scorer_error: the scorer returned None, expected a Score"),
    ("score", "return 1 / 0", "scorer_error: the scorer raised ZeroDivisionError: division by zero"),
    (
        "score",
        "return Score(score=1.01, threshold=0.5, verdict='passed')",
        "scorer_error: the scorer returned the score 1.01, expected 0 to 1",
    ),
    (
        "score",
        "return Score(score='1', threshold=0.5, verdict='passed')",
        "scorer_error: the scorer returned the score '1', expected 0 to 1",
    ),
    ("request", "return None", "pack_error: the pack's request() returned None, expected a VerifyRequest"),
    ("facts", "return 1 / 0", "pack_error: the pack headlines raised ZeroDivisionError: division by zero"),
    ("explain", "return 1 / 0", "pack_error: the pack headlines raised ZeroDivisionError: division by zero"),
    (
        "explain",
        "return [5]",
        "pack_error: the pack headlines raised TypeError: explain() returned [5], expected Comparisons whose fields are str",
    ),
    ("facets", "return 1 / 0", "pack_error: the pack headlines raised ZeroDivisionError: division by zero"),
    (
        "test_id",
        "return 5",
        "pack_error: the pack headlines raised TypeError: test_id() returned 5, expected a str that is not empty",
    ),
    (
        "facets",
        "return {'a': 5}",
        "pack_error: the pack headlines raised TypeError: facets() returned {'a': 5}, expected a dict of str to str",
    ),
]


@pytest.mark.parametrize(("method", "body", "said"), WRONG)
def test_a_pack_that_breaks_is_an_error_of_the_case(plain: Project, method: str, body: str, said: str) -> None:
    page(plain)
    with (plain.root / "headline_pack.py").open("a", encoding="utf-8") as file:
        file.write(f"\n    def {method}(self, *given):\n        {body}\n")
    path = plain.root / "storage" / "benchmarks" / "headlines" / "cases" / "news" / "bridge.json"
    # only a case that fails is explained
    path.write_text(path.read_text("utf-8").replace('"opens"', '"closes"'), "utf-8")
    plain.run("--packbench-suite=headlines").assert_outcomes(errors=1)
    (error,) = plain.lines("errors.jsonl", "headlines")
    assert f"{error['kind']}: {error['message']}" == said


@pytest.mark.parametrize(("method", "body"), [("for_suite", "return 1 / 0"), ("unusable", "return 1 / 0")])
def test_a_pack_that_breaks_before_any_case_is_a_usage_error(plain: Project, method: str, body: str) -> None:
    page(plain)
    with (plain.root / "headline_pack.py").open("a", encoding="utf-8") as file:
        file.write(f"\n    def {method}(self, *given):\n        {body}\n")
    result = plain.run("--packbench-suite=headlines")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['*suite "headlines": the pack "headlines" raised ZeroDivisionError: *'])


def test_the_pack_of_the_page_can_be_installed(plain: Project, capsys: pytest.CaptureFixture[str]) -> None:
    page(plain)
    (plain.root / "conftest.py").unlink()
    source = plain.root / "source"
    source.mkdir()
    (plain.root / "headline_pack.py").rename(source / "headline_pack.py")
    install(plain, source, FILES["pyproject.toml"], GROUP)
    plain.run("--packbench-suite=headlines").assert_outcomes(passed=1)
    capsys.readouterr()
    assert main(["lint", "headlines"]) == 0


def test_the_page_names_everything_that_a_pack_may_say() -> None:
    told = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", PAGE))
    names = {name for name in vars(Pack) if not name.startswith("_")}
    assert names | set(Pack.__annotations__) <= told | {"Pack"}


# packs that can't be loaded


def broken(project: Project, text: str) -> None:
    source = project.root / "source"
    source.mkdir()
    (source / "broken_pack.py").write_text(text, "utf-8")
    told = (
        f'[project]\nname = "broken"\nversion = "1"\n[project.entry-points."{GROUP}"]\nbroken = "broken_pack:Broken"\n'
    )
    install(project, source, told, GROUP)
    project.suite("mine", "pack: broken\n")


BROKEN = [
    ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
    ("raise SystemError('no')", "SystemError: no"),
    ("Broken = 5", "expected an instance of pytest_packbench.Pack, got 5"),
    ("from pytest_packbench.model.pack import Pack as Broken", "Can't instantiate abstract class"),
    (
        "from pytest_packbench.packs.generic.pack import GenericPack as Broken",
        'has the name "generic"; give the entry point the same name',
    ),
]


@pytest.mark.parametrize(("text", "said"), BROKEN)
def test_a_pack_that_can_not_be_loaded_is_told_in_one_line(
    plain: Project, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    broken(plain, text)
    result = plain.run("--packbench-suite=mine")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.stderr.lines if "broken_pack:Broken" in line]
    assert len(errors) == 1
    assert re.search(said.replace("Can't", "Can.t"), errors[0])
    capsys.readouterr()
    assert main(["lint", "mine"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_pack_that_can_not_be_loaded_harms_its_own_suites_only(plain: Project) -> None:
    broken(plain, "import nothing_like_it")
    units(plain)
    plain.run("--packbench-suite=units").assert_outcomes(passed=3)
    assert main(["lint", "units"]) == 0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere:Pack", "can't load the pack nowhere:Pack: ModuleNotFoundError"),
        ("json:dumps", "json:dumps: expected an instance of"),
        ("json", "json: expected an instance of"),
    ],
)
def test_a_pack_that_is_none_is_bad_usage(
    plain: Project, capsys: pytest.CaptureFixture[str], spec: str, said: str
) -> None:
    units(plain)
    assert main(["lint", "units", "--pack", spec]) == 2
    assert said in capsys.readouterr().err


def test_a_hook_that_gives_no_pack_is_a_usage_error(plain: Project) -> None:
    units(plain)
    (plain.root / "conftest.py").write_text("def pytest_packbench_packs():\n    return [5]\n", "utf-8")
    result = plain.run("--packbench-suite=units")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pytest_packbench_packs failed: *expected an instance of*got 5*"])
