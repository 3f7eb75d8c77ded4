"""Arguments of pytest beside suites: options that take values, paths through links, and what `*` names."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.conftest import CASES

if TYPE_CHECKING:
    from tests.integration.conftest import Project

DATA = yaml.safe_load((Path(__file__).parent / "data" / "arguments.yaml").read_text("utf-8"))
OPTIONS = """
def pytest_addoption(parser):
    for name, nargs in (("", "?"), ("-any", "*"), ("-some", "+")):
        parser.addoption("--{when}" + name, nargs=nargs)
"""
# in one process, in which the modules are imported once
RUNS = """
import contextlib, io, json, os
from pathlib import Path
import pytest


class Seen:
    def pytest_collection_finish(self, session):
        self.nodeids |= {item.nodeid for item in session.items}

    def pytest_runtest_logreport(self, report):
        self.nodeids.add(report.nodeid)


seen, found = Seen(), []
for run in json.loads(Path("runs.json").read_text()):
    Path(ROOT, "tox.ini").write_text("[pytest]\\n" + run["ini"])
    os.environ["PYTEST_ADDOPTS"] = run["variable"]
    os.chdir(Path(ROOT, run["folder"]))
    seen.nodeids = set()
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(run["arguments"].split(), plugins=[seen])
    found.append([int(code), sorted(seen.nodeids)])
print(json.dumps(found))
"""
OWN = ["tests/test_own.py::test_bad", "tests/test_own.py::test_good"]
ONE, TWO = f"{CASES}/plain/one.json::one", f"{CASES}/plain/two.json::two"
CONTROL = "storage/benchmarks/toy/fixtures/controls/wrong.json::wrong"
NODEIDS = {"one": ONE, "two": TWO, "control": CONTROL, "own": OWN[1]}
INI = "packbench_suite = toy\naddopts = -p greedy {}\n"


@pytest.fixture
def mixed(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two cases and two tests, each time one that fails, and a conftest.py and a plugin with options."""
    project.case("one")
    project.case("two", points=0.1)
    project.write("tests/test_own.py", "def test_good(): pass\ndef test_bad(): assert False\n")
    project.extend_conftest(OPTIONS.format(when="late"))
    project.write("greedy.py", OPTIONS.format(when="early"))
    monkeypatch.setenv("PYTHONPATH", str(project.root))
    return project


def ended(project: Project, runs: list[dict[str, str]]) -> list[Any]:
    """Return the exit code and the node ids of each of several runs."""
    every = {"ini": INI.format("--collect-only"), "variable": "", "folder": "", "arguments": ""}
    project.write("runs.json", json.dumps([every | run for run in runs]))
    script = project.write("runs.py", f"ROOT = {str(project.root)!r}\n{RUNS}")
    found: list[Any] = json.loads(project.pytester.run(sys.executable, script).outlines[-1])
    return found


def test_no_option_takes_the_folder_of_a_suite(mixed: Project) -> None:
    lines = ["", *DATA["options"]]
    runs = [{"arguments": line} for line in lines]
    # pytest joins what it is given elsewhere to the arguments
    runs += [{"variable": line} for line in lines[::4]]
    runs += [{"ini": INI.format(f"--collect-only {line}")} for line in lines[::4]]
    found = ended(mixed, runs)
    assert len(found) == 21
    assert [run for run, end in zip(runs, found, strict=True) if end != [0, [ONE, TWO, *OWN]]] == []
    # a worker is given the arguments of its controller, and reads the rest as that does
    first, second, third, *_ = DATA["options"]
    workers = {"arguments": "-n 2", "ini": INI.format("")}
    runs = [
        workers | {"arguments": f"-n 2 {first}"},
        workers | {"variable": second},
        workers | {"ini": INI.format(third)},
    ]
    assert ended(mixed, runs) == [[1, [ONE, TWO, *OWN]]] * 3


def test_a_requested_suite_needs_no_files_in_testpaths(project: Project) -> None:
    project.case("one")
    project.pytester.makeini("[pytest]\ntestpaths = none\nfilterwarnings = error\n")
    project.run_toy().assert_outcomes(passed=1)


@pytest.mark.parametrize("kind", ["rootdir", "root"])
def test_a_path_through_a_link_names_what_it_leads_to(
    mixed: Project, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if kind == "rootdir":
        (elsewhere / "link").symlink_to(mixed.root)
    else:
        (mixed.root / "storage" / "benchmarks").rename(mixed.root / "real")
        (mixed.root / "storage" / "benchmarks").symlink_to("../real")
        (mixed.root / "alias").symlink_to("storage/benchmarks")
    names = {"real": mixed.root, "link": elsewhere / "link", "one": ONE, "elsewhere": elsewhere}
    rows = {line.format(**names): expected for line, expected in DATA[f"links to {kind}"].items()}
    runs = [dict(zip(("folder", "arguments"), line.split(" ", 1), strict=True)) for line in rows]
    ends = dict(zip(rows, ended(mixed, [run | {"ini": "addopts = --collect-only\n"} for run in runs]), strict=True))
    # pytest names its own tests in its own way there
    found = {
        line: [code, sorted(nodeid.rpartition("::")[2] for nodeid in nodeids)] for line, (code, nodeids) in ends.items()
    }
    assert found == {line: [0, expected.split()] for line, expected in rows.items()}
    if kind == "rootdir":
        assert {nodeid for _, nodeids in ends.values() for nodeid in nodeids if "json" in nodeid} == {ONE, TWO}


def test_a_record_names_the_file_of_its_case_from_a_linked_rootdir(
    both: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    both.case("one")
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(both.root)
    both.run(f"--rootdir={link}", ONE.partition("::")[0]).assert_outcomes(passed=1)
    assert both.records()["one"]["packbench"]["file"] == ONE.partition("::")[0]


def test_what_a_shell_makes_of_a_star_runs_what_is_a_case(mixed: Project) -> None:
    suite = "storage/benchmarks/toy"
    control = {"case_id": "one", "payload": {"points": 0.0}, "expect": {"verdict": "fail"}}
    for path in ("fixtures/one.json", "baseline.json", "README.md", "scorer.py", "docs/note.txt", "../README.md"):
        mixed.write(f"{suite}/{path}", "")
    for path in ("cases/README.md", "cases/__pycache__/x.pyc", "fixtures/controls/README.md", "__pycache__/x.pyc"):
        mixed.write(f"{suite}/{path}", "")
    mixed.write(f"{suite}/fixtures/controls/wrong.json", json.dumps(control))
    rows = DATA["stars"]
    runs = []
    for line in rows:
        words = [sorted(mixed.root.glob(word)) if "*" in word else [word] for word in line.split()]
        arguments = " ".join(
            os.path.relpath(path, mixed.root) if isinstance(path, Path) else path for each in words for path in each
        )
        runs.append({"arguments": arguments, "ini": "addopts = --collect-only\n"})
    own = {"storage/benchmarks/toy/suite.yaml tests/test_own.py::test_good": [4, [OWN[1]]]}
    expected = {
        line: [0, sorted(NODEIDS[name] for name in names.split())] if names else [4, []] for line, names in rows.items()
    }
    assert dict(zip(rows, ended(mixed, runs), strict=True)) == expected | own


def test_an_argument_that_selects_a_suite_and_no_case_is_named(both: Project) -> None:
    both.case("one")
    both.write("tests/test_own.py", "def test_good(): pass\n")
    result = both.run("storage/benchmarks/toy/suite.yaml", "tests")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    expected = "contains no case; expected the folder of the suite, or files or folders of its cases"
    result.stderr.fnmatch_lines([f"*storage/benchmarks/toy/suite.yaml: {expected}"])
