"""Pages of stored runs: what `report --html`, `compare --html`, `merge` and `open` make of a run's files."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import webbrowser
from base64 import b64decode
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from pytest_packbench.analysis.conclusion import conclude, run_document
from pytest_packbench.api import load_suite
from pytest_packbench.commands import main
from pytest_packbench.commands.validate import schema
from pytest_packbench.model.report import BaselineLookup, Outline
from pytest_packbench.runs.journal import Journal
from pytest_packbench.runs.reading import open_run
from pytest_packbench.runs.writing import RunWriter
from pytest_packbench.testing import case
from tests.unit.run_builders import case_result, changed, data
from tests.unit.stored_runs import EMPTY_CASE, recorded_result, run_of, suite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_packbench.model.result import Result

    Command = Callable[..., tuple[int, str, str]]

DATA: dict[str, Any] = data("pages.yaml")


NAMES = ("a", "b", "c", "d")


def ulid(number: int) -> str:
    return f"01K{number:023d}"


def results(*failed: str, case_sha256: str = "a" * 64) -> list[Result]:
    """The results of four cases, some of which failed."""
    return [
        case_result(
            name,
            "failed" if name in failed else "passed",
            file=f"storage/toy/cases/{name}.json",
            answer=f"answer of {name}{' now' if name in failed else ''}",
            case_sha256=case_sha256,
        )
        for name in NAMES
    ]


CONTROLS: Any = DATA["controls"]


class Project:
    """A project with a suite `toy`, whose runs are in its folder of reports."""

    def __init__(self, path: Path) -> None:
        self.root = suite(path, NAMES, gates=[{"metric": "pass_rate", "min": 0.9}])
        self.reports = path / "reports" / "benchmarks"

    def run(self, number: int, found: Sequence[Result], earlier: BaselineLookup | None = None, **of: Any) -> Path:
        """Write a run as a session does, and return its folder."""
        facts = run_of(self.root, **{"run_id": ulid(number), "settings": {"gate": "suite"}, **of})
        recorded = [recorded_result(result, facts.run_id) for result in found]
        config = load_suite(self.root / "toy").config
        conclusion = conclude(facts, recorded, config, earlier=earlier)
        writer = RunWriter(self.reports, facts.suite, facts.run_id)
        writer.write_results(recorded)
        writer.complete(run_document(conclusion))
        return writer.folder

    def edit(self, folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
        path = folder / "report.json"
        report = json.loads(path.read_bytes())
        change(report["packbench"])
        # as a run writes it
        report["packbench"]["cases"] = report["packbench"].pop("cases")
        path.write_text(json.dumps(report), encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


@pytest.fixture
def packbench(capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command; returns its exit code, output and errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def page_of(packbench: Command, tmp_path: Path) -> Callable[..., str]:
    """Return the page of runs, of which the exit code is checked."""

    def call(*runs: object, code: int = 0) -> str:
        path = tmp_path / "page.html"
        assert packbench("report", "--html", path, "--root", "storage", *runs) == (
            code,
            "",
            f"wrote report to {path}\n",
        )
        return path.read_text("utf-8")

    return call


def text_of(page: str) -> str:
    """The text of a page without script, style and data."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return unescape(" ".join(re.sub(r"<[^>]*>", " ", body).split())).replace(" ,", ",")


def data_of(page: str, name: str) -> list[str]:
    """The unpacked data of this name in a page, of all its runs."""
    texts = re.findall(rf'data-name="{name}">([^<]*)<', page)
    return [gzip.decompress(b64decode(text)).decode() for text in texts]


def rows_of(page: str) -> list[dict[str, Any]]:
    """The rows of the table of cases, of all runs of a page."""
    tables = [json.loads(text) for text in data_of(page, "rows")]
    return [
        {"run": table["run"], **dict(zip(table["columns"], values, strict=True))}
        for table in tables
        for values in zip(*table["columns"].values(), strict=True)
    ]


@pytest.mark.parametrize(("stored", "shown"), [({}, True), ({"record_prompts": False}, False)])
def test_a_run_that_keeps_no_prompts_shows_none(
    project: Project,
    page_of: Callable[..., str],
    stored: dict[str, Any],
    shown: bool,
) -> None:
    found = [changed(result, cassette_sha256="a" * 64) for result in results("b")]
    folder = project.run(1, found, settings=stored)
    (project.root / "toy" / "fixtures").mkdir()
    (project.root / "toy" / "fixtures" / "b.json").write_text('["private"', "utf-8")
    (project.root / "toy" / "cases" / "b.json").write_text('{"id": "b", "input": {"ask": "private"}}', "utf-8")
    (details,) = data_of(page_of(folder, code=1), "details-0")
    assert ("private" in details) is shown
    assert ("not shown: prompts are not kept" in details) is not shown


@pytest.mark.parametrize(
    ("stored", "shown"),
    DATA["reruns"],
)
def test_the_command_of_a_case_repeats_the_run(
    project: Project, page_of: Callable[..., str], stored: Any, shown: bool
) -> None:
    folder = project.run(1, results())
    project.edit(folder, lambda report: report.update(rerun=stored))
    command = rows_of(page_of(folder))[0]["command"]
    assert command == f"pytest cases/a.json::a {stored if shown else ''}".rstrip()


def test_a_run_whose_suite_is_absent_or_changed_has_a_page_that_says_so(
    project: Project, page_of: Callable[..., str]
) -> None:
    folder, of_other_rules = project.run(1, results("b")), project.run(2, results("b"), suite_sha256="cd" * 32)
    rules = project.root / "toy" / "suite.yaml"
    rules.write_text(rules.read_text("utf-8").replace("0.9", "0.1"), encoding="utf-8")
    # decided when the run ended
    assert "pass_rate FAIL 3 / 4 = 75.0 % < min 90.0 %, 95 % Wilson" in text_of(page_of(folder, code=1))
    text = text_of(page_of(of_other_rules, code=1))
    assert "The scoring rules of the suite or its pack have changed since this run." in text
    assert "pass_rate FAIL 3 / 4 = 75.0 % < min 90.0 %" in text
    rules.unlink()
    text = text_of(page_of(folder, code=1))
    assert "The suite of this run can't be read, so the texts of its cases are missing" in text
    assert "FAILED, 3 of 4 judged cases passed" in text


def test_what_a_report_decided_is_never_shown_as_better(
    project: Project, page_of: Callable[..., str], packbench: Command
) -> None:
    folder = project.run(1, results())
    assert "PASSED, 4 of 4" in text_of(page_of(folder))
    project.edit(folder, lambda stored: stored["gates"][1].update(passed=False, text="pass_rate: FAIL"))
    assert "Gate pass_rate: FAIL" in text_of(page_of(folder, code=1))
    # as in a shard
    project.edit(folder, lambda stored: stored["gates"][1].update(judged=False, observed=None))
    text = text_of(page_of(folder, code=1))
    assert ("Gates 1 of 2 passed, 1 not judged" in text, "not judged" in text) == (True, True)
    project.edit(folder, lambda stored: stored["gates"][1].update(passed=True, judged=True, text="pass_rate: PASS"))
    project.edit(folder, lambda stored: stored.update(status="failed"))
    text = text_of(page_of(folder, code=1))
    assert "FAILED, 4 of 4 judged cases passed" in text
    assert "The report of the run states failed." in text
    project.edit(folder, lambda stored: stored["overall"].update(passed=3))
    assert "The report counts 3 of 4 judged cases as passed, its rows 4 of 4." in text_of(page_of(folder, code=1))
    project.edit(folder, lambda stored: stored.update(controls=CONTROLS))
    assert "unknown: " in packbench("report", folder)[1]
    to_page = ("report", folder, "--html", "x.html", "--root", "storage")
    code, out, err = packbench(*to_page)
    assert (code, out) == (2, "")
    assert "controls.jsonl is missing, or has other controls than the report counts; run the suite again\n" in err
    project.edit(folder, lambda stored: stored.pop("controls"))


FIGURE = {"name": "cost", "definition": "What it costs."}
# what replaces a value of the header, and what each reader of it says
WRONG: Any = DATA["wrong"]


@pytest.mark.parametrize("key", WRONG)
def test_each_reader_of_a_header_refuses_what_is_wrong_in_it_by_its_place(
    project: Project, packbench: Command, key: str
) -> None:
    folder, (value, problem) = project.run(1, results()), WRONG[key]
    project.edit(folder, lambda stored: stored.update(figures=[{**FIGURE, "number": 1}]))
    reports = jsonschema.Draft202012Validator(schema("report"))
    reports.validate(json.loads((folder / "report.json").read_bytes()))
    *inner, last = (int(step) if step.isdecimal() else step for step in key.split("/"))

    def change(stored: Any) -> None:
        for step in inner:
            stored = stored[step]
        stored[last] = value

    project.edit(folder, change)
    assert not reports.is_valid(json.loads((folder / "report.json").read_bytes()))
    place, _, words = problem.rpartition(": ")
    line = f"{folder.name}/report.json: /packbench/{key}{place}: not a run document: {words}"
    for arguments in (
        ("open", folder, "--print"),
        ("gate", folder),
        ("compare", "--baseline", folder, "--current", folder),
        ("merge", folder),
        ("report", folder, "--html", "x.html"),
        # a trend reads no more than the outline
        *([("history", "toy")] if key.partition("/")[0] in Outline.__annotations__ else []),
    ):
        code, out, err = packbench(*arguments, *(() if arguments[0] == "history" else ("--root", "storage")))
        assert (code, out, err.count("\n")) == (2, "", 1), arguments
        assert line in err


def test_keys_of_later_versions_are_ignored(project: Project, page_of: Callable[..., str]) -> None:
    folder = project.run(1, results("b"), BaselineLookup(reason="none", requested="latest", optional=True))

    def change(stored: dict[str, Any]) -> None:
        parts = [stored[key] for key in ("run", "totals", "overall", "refusals", "comparison")]
        for part in (stored, *parts, stored["groups"][0], stored["gates"][0]):
            part["of_later"] = 1

    before = page_of(folder, code=1)
    project.edit(folder, change)
    assert text_of(page_of(folder, code=1)) == text_of(before)


@pytest.mark.parametrize(("most", "shown"), [(1, "b"), (3, "abd"), (4, "abcd")])
def test_a_large_run_shows_what_did_not_pass_and_the_first_others(
    project: Project, page_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch, most: int, shown: str
) -> None:
    monkeypatch.setattr("pytest_packbench.reports.page.MAX_CASES", most)
    page = page_of(project.run(1, results("b", "d")), code=1)
    assert sorted(row["case_id"] for row in rows_of(page)) == [*shown]
    is_said = f"at most {most} of 4 cases, those that did not pass first; report.json has all." in text_of(page)
    assert is_said is (most < 4)


def test_several_runs_are_one_page(project: Project, page_of: Callable[..., str], packbench: Command) -> None:
    first, second = project.run(1, results()), project.run(2, results("b"))
    is_folder = "packbench: .: is a folder; expected the name of a file\n"
    assert packbench("report", "--html", ".", "--root", "storage", first) == (2, "", is_folder)
    page = page_of(first, "toy/latest", second, code=1)
    assert len(data_of(page, "rows")) == 2
    assert {row["run"] for row in rows_of(page)} == {ulid(1), ulid(2)}
    assert all(name in text_of(page) for name in (ulid(1), ulid(2)))
    for arguments, problem in {
        ("--format", "json"): "--format: does not apply to a page; leave it out, or leave out --html",
        ("--max-tokens", "3"): "--max-tokens: does not apply to a page; leave it out, or leave out --html",
        (first / "records.jsonl",): f"--html: {first / 'records.jsonl'}: records do not say what a run came to; "
        "expected the folder of a run",
        ("-",): "--html: standard input: records do not say what a run came to; expected the folder of a run",
    }.items():
        assert packbench("report", "--html", "x.html", first, *arguments) == (2, "", f"packbench: {problem}\n")


def test_the_page_of_a_comparison_shows_exactly_the_flips_with_both_answers(
    project: Project, packbench: Command, tmp_path: Path
) -> None:
    before, after = project.run(1, results("d")), project.run(2, results("a", "b", "c"))
    arguments = ("compare", "--baseline", before, "--current", after, "--root", "storage", "--html", "page.html")
    code, _, err = packbench(*arguments, "--fail-on", "new_failures>0", "--out", "diff.md")
    assert (code, err.splitlines()) == (1, ["wrote report to page.html", "packbench: new_failures>0: 3: FAIL"])
    page = (tmp_path / "page.html").read_text("utf-8")
    text = text_of(page)
    assert "New failures: 3" in text
    assert "Recovered: 1" in text
    assert "Condition new_failures>0 is met: 3" in text
    rows = {row["case_id"]: row for row in rows_of(page)}
    assert {name: row["change"] for name, row in rows.items()} == dict.fromkeys("abc", "new_failure") | {
        "d": "recovered"
    }
    assert rows["a"]["before"] == ["passed", 1.0, "answer of a"]
    assert packbench(*arguments[:4], after / "records.jsonl", *arguments[5:])[0] == 2
    # records alone have no answers
    (before / "report.json").unlink()
    assert packbench(*arguments[:2], before / "records.jsonl", *arguments[3:], "--out", "diff.md", "--force")[0] == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert {row["case_id"]: row["before"] for row in rows_of(page)}["a"] == ["passed", 1.0, None]


def test_the_comparison_of_a_stored_run_is_shown_as_its_report_states_it(
    project: Project, page_of: Callable[..., str]
) -> None:
    other = open_run(project.run(6, results(), suite_sha256="cd" * 32), checked=False).read()
    lookup = BaselineLookup(stored=other, requested=ulid(6))
    unseen = f"Not compared with {ulid(6)}: scoring rules: 'cdcdcdcdcdcd' before"
    assert unseen in text_of(page_of(project.run(7, results(), replace(lookup, optional=True))))
    text = text_of(page_of(project.run(8, results(), lookup), code=1))
    assert "FAILED, NOT COMPARED WITH THE BASELINE" in text
    assert unseen in text
    before = open_run(project.run(1, results()), checked=False).read()
    lookup = BaselineLookup(stored=before, requested="latest", fail_on="new_failures>0", warning="an old one")
    text = text_of(page_of(project.run(2, results("b"), lookup), code=1))
    assert f"it was compared with run {ulid(1)} (regressed 1, new_failures 1, verdict_changed 1, mean -0.1875)" in text
    assert "✗ failed Condition new_failures>0 was met." in text
    assert "An old one." in text
    assert "Condition new_failures>0 was met; gate pass_rate" in text
    # one that did not fail the run does not fail its page
    text = text_of(page_of(project.run(3, results(), replace(lookup, fail_on="new_failures>5"))))
    assert f"it was compared with run {ulid(1)} (nothing changed)" in text
    missing = project.run(4, results(), BaselineLookup(reason="there is none", requested="latest", optional=True))
    assert "There is none." in text_of(page_of(missing))


ODD = """
from pytest_packbench import Metrics
from pytest_packbench.packs.generic.pack import GenericPack


def fall(*_):
    raise ValueError("none\\nat all")


class OddMetrics(Metrics):
    figures = paired_figures = panels = fall


class Odd(GenericPack):
    name, version, metrics = "odd", "1", OddMetrics()
    facts = fall
"""


def test_a_pack_that_raises_is_named(
    project: Project, packbench: Command, page_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = project.root.parent / "site"
    (site / "odd-1.dist-info").mkdir(parents=True)
    (site / "odd-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    (site / "odd-1.dist-info" / "entry_points.txt").write_text("[pytest_packbench.packs]\nodd = odd_of_pages:Odd\n")
    (site / "odd_of_pages.py").write_text(ODD)
    monkeypatch.syspath_prepend(site)
    rules = project.root / "toy" / "suite.yaml"
    rules.write_text(rules.read_text("utf-8").replace("generic", "odd"), "utf-8")
    before, folder = (
        project.run(number, results(case_sha256=EMPTY_CASE), pack="odd", pack_version="1") for number in (1, 2)
    )
    message = "ValueError: none at all"
    line = next(number for number, line in enumerate(ODD.splitlines(), 1) if "raise ValueError" in line)
    raised = f"{message} (site/odd_of_pages.py:{line})"
    assert f"The pack odd raised in panels: {raised}." in text_of(page_of(folder))
    for name, arguments in {
        "figures": ("merge", folder, "--root", "storage"),
        "paired_figures": ("compare", "--baseline", before, "--current", folder, "--out", "-"),
    }.items():
        assert packbench(*arguments) == (2, "", f"packbench: the pack odd raised in {name}: {raised}\n")
    (project.root / "toy" / "cases" / "a.json").write_text(json.dumps(case("a", pack_id="odd")), encoding="utf-8")
    assert f"now: pack_error: the pack odd raised {message}" in packbench("rescore", folder, "--root", "storage")[1]


def passed_over(number: int) -> str:
    folder = f"reports/benchmarks/toy/{ulid(number)}"
    return f"packbench: not the latest complete run, so opened by its path only: {folder}\n"


def test_open_takes_no_run_that_latest_does_not_name(project: Project, packbench: Command) -> None:
    partial = project.run(1, results(), partial="1 of 4 cases selected")
    home, toy = project.reports.parent.parent, project.reports / "toy"
    advice = f"pass its folder to open {partial.relative_to(home)}"
    assert packbench("open") == (2, "", f"packbench: no complete run under reports/benchmarks; {advice}\n")
    own = project.run(2, results())
    # a page alone, a whole run, one that is partial, and one of another suite that no file names
    (toy / ulid(3)).mkdir()
    shutil.copytree(own, toy / ulid(4))
    project.run(5, results(), partial="1 of 4 cases selected")
    shutil.copytree(own, project.reports / "other" / ulid(1))
    for number in (3, 4, 5):
        (toy / ulid(number) / "report.html").write_text("all passed", encoding="utf-8")
    printed = f"{own.relative_to(home) / 'report.html'}\n"
    assert packbench("open", "--print", "--root", "storage") == (0, printed, passed_over(5))
    # of a time to come, with everything
    later = toy / ("7" + "Z" * 25)
    shutil.copytree(own, later)
    assert later.name in packbench("open", "--print")[2]
    for folder in (later, project.reports / "other" / later.name):
        shutil.copytree(own, folder, dirs_exist_ok=True)
        (folder.parent / "latest").write_text(f"{later.name}\n", encoding="utf-8")
        with Journal(folder / "journal.jsonl"):
            assert later.name not in packbench("open", "--print")[1]
        assert packbench("open", "--print", folder) == (0, f"{folder / 'report.html'}\n", "")
    # the suites of one session have one id, of which one is complete
    shutil.rmtree(project.reports / "other")
    own = project.run(6, results())
    shutil.copytree(own, project.reports / "other" / own.name)
    assert [line.split("/")[2] for line in packbench("open", "--print")[1].splitlines()] == ["other", "toy"]


def test_open_opens_the_newest_run_and_makes_its_page(
    project: Project, packbench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        if len(opened) > 3:
            raise webbrowser.Error
        return len(opened) < 3

    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setenv("DISPLAY", ":0")
    nothing = "packbench: no complete run under reports/benchmarks; run a suite, or pass the folder of a run\n"
    assert packbench("open") == (2, "", nothing)
    first, second = project.run(1, results()), project.run(2, results("b"))
    page = second / "report.html"
    printed = f"{page.relative_to(project.reports.parent.parent)}\n"
    assert packbench("open", "--root", "storage") == (0, printed, "")
    assert (opened, "FAILED, 3 of 4" in text_of(page.read_text("utf-8"))) == ([page.as_uri()], True)
    page.write_text("as it is", encoding="utf-8")
    assert packbench("open", "toy/latest", "--print") == (0, printed, "")
    assert page.read_text("utf-8") == "as it is"
    no_browser = "packbench: no browser could be started; open the file yourself\n"
    assert [packbench("open", first)[2] for _ in range(3)] == ["", no_browser, no_browser]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert (packbench("open", first)[2], len(opened)) == (no_browser, 4)
    killed = project.reports / "toy" / ulid(9)
    killed.mkdir()
    with Journal(killed / "journal.jsonl") as journal:
        journal.append(case_result("a"))
    assert packbench("open", "--print") == (0, printed, passed_over(9))
    code, out, err = packbench("open", killed)
    assert (code, out, err.count("\n"), "the run did not end" in err) == (2, "", 1, True)
