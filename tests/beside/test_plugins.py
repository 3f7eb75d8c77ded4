"""Runs beside other plugins, and under unusual conditions, come to the same as a run without them.

Each plugin is loaded by its name, into a process without the other plugins that are installed. All of them have to be
installed; CONTRIBUTING.md has the command.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from itertools import permutations
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from pytest_packbench.testing import write_case
from tests.beside.project import Left, left_by, run, write_project
from tests.integration.conftest import toy_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OWN = ("-p", "packbench")
LOADED = (*OWN, "-p", "pytest_jsonreport")
SELECTED = ("--packbench-suite=toy", "test_plain.py", "--junitxml=junit.xml")
MODES = {"fixture": ("test_marked.py",), "live": ("--packbench-mode=live", "--packbench-trials=2")}
ANY_UTF8 = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


class Row(NamedTuple):
    """A plugin or a condition, beside which a run has to come to the same.

    Attributes:
        name: the name of its tests.
        plugins: the names of entry points to load.
        options: options of pytest.
        proof: a pattern in the output that shows that the plugin works, or the condition is there.
        left: a pattern of a file that shows the same.
        ini: lines of pytest.ini.
        environ: variables.
        loaded: the options that load our own plugins.
        differs: the names in `Left` that differ, because the user wants it so.
    """

    name: str
    plugins: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    proof: str = ""
    left: str = ""
    ini: str = ""
    environ: Mapping[str, str] = {}
    loaded: tuple[str, ...] = LOADED
    differs: tuple[str, ...] = ()


def _rows(kind: str) -> list[Row]:
    """Read rows of `rows.yaml`."""
    fields = {name: {key: _frozen(value) for key, value in row.items()} for name, row in DATA[kind].items()}
    return [Row(name, **row) for name, row in fields.items()]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


DATA = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text("utf-8"))
PLUGINS, CONDITIONS = _rows("plugins"), _rows("conditions")
TOGETHER = {row.name for row in PLUGINS} - {"timeout-thread", "asyncio-strict", "json-report", "json-report-summary"}
"""What gets along, with one set of options."""


def _missing() -> str:
    """The entry points that are not installed, in a line."""
    installed = {point.name for point in entry_points(group="pytest11")}
    return ", ".join(sorted({name for row in (*PLUGINS, *CONDITIONS) for name in row.plugins} - installed))


pytestmark = pytest.mark.skipif(bool(_missing()), reason=f"not installed: {_missing()}")


def _run_row(root: Path, row: Row, *options: str) -> Left:
    write_project(root, ini=row.ini)
    loaded = [part for name in row.plugins for part in ("-p", name)]
    environ = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "" if "--disable-plugin-autoload" in row.options else "1",
        **row.environ,
    }
    return left_by(root, run(root, *row.loaded, *loaded, *row.options, *SELECTED, *options, environ=environ))


@pytest.fixture(scope="session")
def plain() -> Iterator[Callable[[str], Left]]:
    """What a run without other plugins leaves, by mode; it is made once."""
    folder = Path(mkdtemp())

    @cache
    def left(mode: str) -> Left:
        result = _run_row(folder / mode, Row("plain"), *MODES[mode])
        assert result.status == 1, result.output
        assert len(result.outcomes) == (13 if mode == "fixture" else 11)
        return result

    yield left
    shutil.rmtree(folder)


def _compare(row: Row, found: Left, expected: Left, root: Path) -> None:
    assert found.status == expected.status, found.output[-4000:]
    # the plain test that is repeated is twice in JUnit's file
    assert sorted(set(found.junit) - _REPEATED) == sorted(set(expected.junit) - _REPEATED)
    for name in ("files", "totals", "outcomes"):
        if name not in row.differs:
            assert getattr(found, name) == getattr(expected, name)
    if row.left:
        assert any(root.glob(row.left)), found.output[-4000:]
    assert re.search(row.proof, found.output), found.output[-4000:]
    assert "Traceback" not in found.output
    assert "INTERNALERROR" not in found.output


_REPEATED = {("test_plain::test_fails",)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", PLUGINS, ids=[row.name for row in PLUGINS])
def test_a_plugin_changes_nothing(row: Row, mode: str, plain: Callable[[str], Left], tmp_path: Path) -> None:
    _compare(row, _run_row(tmp_path, row, *MODES[mode]), plain(mode), tmp_path)


@pytest.mark.parametrize("row", CONDITIONS, ids=[row.name for row in CONDITIONS])
def test_a_condition_changes_nothing(row: Row, plain: Callable[[str], Left], tmp_path: Path) -> None:
    _compare(row, _run_row(tmp_path, row, *MODES["fixture"]), plain("fixture"), tmp_path)


@pytest.mark.parametrize("row", [row for row in PLUGINS if row.name in DATA["with_workers"]], ids=lambda row: row.name)
def test_a_plugin_and_workers_change_nothing(row: Row, plain: Callable[[str], Left], tmp_path: Path) -> None:
    # workers print nothing, and some plugins tell less with them
    row = row._replace(plugins=("xdist", *row.plugins), proof="")
    _compare(row, _run_row(tmp_path, row, "-n2", *MODES["fixture"]), plain("fixture"), tmp_path)


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["plain", "xdist"])
def test_all_installed_plugins_change_nothing(
    workers: tuple[str, ...], plain: Callable[[str], Left], tmp_path: Path
) -> None:
    # pytest-sugar, teamcity-messages and workers together end pytest, without this plugin too
    used = [row for row in PLUGINS if row.name in TOGETHER and not (workers and row.name == "teamcity")]
    options = [option for row in used for option in row.options]
    # loaded first, so that pytest-html-plus gets its option
    row = Row(
        "all", options=(*options, "--disable-warnings"), environ={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}, loaded=OWN
    )
    found = _run_row(tmp_path, row, *workers, *MODES["fixture"])
    _compare(row, found, plain("fixture"), tmp_path)
    for written in (row.left for row in used if row.left):
        assert any(tmp_path.glob(written)), written


ORDER = """
import importlib.metadata as metadata
import os

found = metadata.distributions
names = os.environ["ORDER_OF_PLUGINS"].split()


def distributions(**options):
    plugins = [plugin for plugin in found(**options) if plugin.name in names]
    return sorted(plugins, key=lambda plugin: names.index(plugin.name))


metadata.distributions = distributions
"""
NAMES = ("pytest-json-report", "pytest-html-plus", "pytest-packbench")


@pytest.mark.parametrize("names", list(permutations(NAMES)), ids=lambda names: "-".join(name[7] for name in names))
def test_two_plugins_may_have_the_option_json_report(
    names: tuple[str, ...], plain: Callable[[str], Left], tmp_path: Path
) -> None:
    # pytest loads plugins in the order of the folder of packages, which depends on the file system
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(ORDER, "utf-8")
    path = os.pathsep.join((str(tmp_path / "first"), os.environ.get("PYTHONPATH", "")))
    environ = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "", "PYTHONPATH": path, "ORDER_OF_PLUGINS": " ".join(names)}
    # nothing can be done by a plugin that is loaded after both, but the user can load it first
    loaded = OWN if names[-1] == "pytest-packbench" else ()
    row = Row("order", environ=environ, loaded=loaded, left="report_output/report.html")
    _compare(row, _run_row(tmp_path, row, *MODES["fixture"]), plain("fixture"), tmp_path)


def test_a_fixture_of_json_report_is_there_beside_html_plus(tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "test_own.py").write_text("def test_own(json_metadata): json_metadata['noted'] = 1\n", "utf-8")
    # without a suite, and with one
    for options in ((), ("--packbench-suite=toy", "-k", "test_own or good")):
        process = run(tmp_path, "-p", "pytest_html_plus", *OWN, "test_own.py", *options)
        assert b"passed" in process.stdout, process.stdout.decode()[-3000:]
        assert b"error" not in process.stdout.splitlines()[-1]


HANGS = "import time\nwhile True:\n    try:\n        time.sleep(30)\n    except Exception:\n        pass"


def _write_hanging(root: Path) -> None:
    write_project(root)
    # after `good`, before `later`
    write_case(root / "storage" / "benchmarks" / "toy", toy_case("hangs", python=HANGS))


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_time_limits_of_pytest_timeout_make_a_case_an_error_or_end_a_process_that_can_be_resumed(
    method: str, plain: Callable[[str], Left], tmp_path: Path
) -> None:
    def left(name: str, *options: str) -> tuple[subprocess.CompletedProcess[bytes], Left]:
        _write_hanging(tmp_path / name)
        process = run(tmp_path / name, *LOADED, "-p", "timeout", f"--timeout-method={method}", *options, *SELECTED)
        return process, left_by(tmp_path / name, process)

    def check(found: Left, message: str) -> None:
        (hangs,) = [error for error in found.files["toy/errors.jsonl"] if error["test_id"] == "toy:plain:hangs"]
        assert (found.status, hangs["verdict"]) == (1, "error")
        assert message in hangs["kind"] + hangs["message"]
        assert found.files["toy/records.jsonl"] == plain("fixture").files["toy/records.jsonl"]

    # ours ends the case before
    check(left("ours", "--timeout=60", "--packbench-case-timeout=0.5")[1], "timeout")
    process, found = left("theirs", "--timeout=2")
    if method == "signal":
        check(found, "Timeout")
        return
    assert process.returncode != 0
    assert b"Timeout" in process.stdout
    (journal,) = (tmp_path / "theirs" / "reports" / "benchmarks" / "toy").glob("*/journal.jsonl")
    assert not (journal.parent / "records.jsonl").exists()
    check(left("theirs", "--packbench-resume=latest", "--packbench-case-timeout=0.5")[1], "timeout")


def _without_privileges() -> tuple[str, ...]:
    """The command before a program by which the permissions of files hold for root, too."""
    if os.geteuid():
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is not installed: root writes into every folder")
    return (setpriv, "--bounding-set", "-dac_override,-dac_read_search", "--")


def test_a_project_that_is_read_only_writes_its_reports_elsewhere(plain: Callable[[str], Left], tmp_path: Path) -> None:
    root = tmp_path / "project"
    elsewhere = tmp_path / "elsewhere"
    write_project(root)
    elsewhere.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    for folder in (home, *(path for path in (root, *root.rglob("*")) if path.is_dir())):
        folder.chmod(0o555)
    try:
        options = (f"--packbench-output={elsewhere}", f"--junitxml={elsewhere}/junit.xml", "test_plain.py")
        environ = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
        command = (*_without_privileges(), sys.executable)
        process = run(
            root, *LOADED, "--packbench-suite=toy", *options, "test_marked.py", environ=environ, command=command
        )
        assert b"could not create cache path" in process.stdout
        found = left_by(root, process, output=elsewhere)
        expected = plain("fixture")
        assert (found.status, found.files, found.totals) == (1, expected.files, expected.totals)
        # without the option it is an error in a line
        process = run(root, *LOADED, "--packbench-suite=toy", environ=environ, command=command)
        assert process.returncode == 1
        assert b"Traceback" not in process.stdout
        assert re.search(rb"packbench: .*reports.*(Permission denied|can't be written)", process.stdout), process.stdout
    finally:
        for folder in (home, *(path for path in (root, *root.rglob("*")) if path.is_dir())):
            folder.chmod(0o755)


@pytest.fixture(scope="session")
def latin_1(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The variables of a German locale with the encoding ISO-8859-1."""
    folder = tmp_path_factory.mktemp("locales")
    localedef = shutil.which("localedef")
    if localedef is None:
        pytest.skip("localedef is not installed")
    command = [localedef, "-i", "de_DE", "-f", "ISO-8859-1", str(folder / "de_DE.ISO-8859-1")]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("the sources of locales are not installed")
    return {"LOCPATH": str(folder), "LC_ALL": "de_DE.ISO-8859-1", **ANY_UTF8}


def test_a_locale_that_is_not_utf_8_changes_nothing(
    latin_1: Mapping[str, str], plain: Callable[[str], Left], tmp_path: Path
) -> None:
    seen = run(tmp_path, environ=latin_1, program=("-c", "import locale; print(locale.getpreferredencoding())"))
    assert seen.stdout.strip().lower() == b"iso-8859-1"
    row = Row("latin-1", environ=latin_1)
    _compare(row, _run_row(tmp_path, row, *MODES["fixture"]), plain("fixture"), tmp_path)


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["plain", "xdist"])
def test_a_file_whose_name_the_locale_does_not_have_hides_nothing(
    workers: tuple[str, ...], plain: Callable[[str], Left], tmp_path: Path
) -> None:
    write_project(tmp_path)
    odd = tmp_path / "storage/benchmarks/toy/cases/plain/grüße_☃.json"
    odd.write_text(json.dumps(toy_case("grüße_☃")), "utf-8")
    environ = {"LC_ALL": "C", **ANY_UTF8}
    found = left_by(tmp_path, run(tmp_path, *LOADED, *workers, *SELECTED, *MODES["fixture"], environ=environ))
    expected = plain("fixture").files
    assert (found.status, "Traceback" in found.output) == (1, False), found.output
    assert found.files["toy/records.jsonl"] == expected["toy/records.jsonl"]
    others = [error["kind"] for error in found.files["toy/errors.jsonl"] if error not in expected["toy/errors.jsonl"]]
    assert others == ["case_unreadable"]
