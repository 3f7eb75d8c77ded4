"""The package on all versions of what it needs that `pyproject.toml` declares: lowest, newest, and pytest in between.

    nox                                          all of it; Pythons that are not installed are left out
    nox -s lowest-3.11 newest-3.13               the corners
    nox -s 'pytest(9.0.0)' 'extra(openai)'       some of it; `nox --list` shows the names
    nox -s lowest-3.11 -- --durations=20         with options for the pytest that runs the tests

Each session builds a wheel, installs it beside exactly the versions that it is about, checks them, runs the suite that
comes with the package and one that `packbench init` makes, in one process and in two workers, and then tests. The
versions come from `pyproject.toml` (`benchmarks/matrix.py`), so what is declared is what is run.
"""

from __future__ import annotations

import os
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from tempfile import TemporaryDirectory

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from benchmarks import matrix  # noqa: E402 # nox does not look for modules beside this file

nox.options.default_venv_backend = "uv"
# a Python that is not installed is left out, on CI too: which one is the newest differs between machines
nox.options.error_on_missing_interpreters = False

# the package that is installed is tested, and nothing but the command line configures it
for name in ("PYTHONPATH", "PYTEST_ADDOPTS"):
    os.environ.pop(name, None)
# commands such as `python3.13` of pyenv start only the versions that this variable names
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
os.environ["PYENV_VERSION"] = ":".join(sorted(each.name for each in PYENV.glob("3.1?.*")) or ["system"])

PYTHONS = matrix.pythons()
# what differs between versions of any requirement: verdicts and their reports, workers, options
FEW = (
    "tests/integration/test_verdicts.py",
    "tests/integration/test_workers.py",
    "tests/integration/test_settings.py",
)
# and between releases of pytest: collection, node ids, other plugins and their documents, JUnit, the hooks of a
# conftest.py
COLLECTION = (
    "tests/integration/options/test_output.py",
    "tests/integration/options/test_suite.py",
    "tests/integration/test_imports.py::test_an_installed_package_is_imported_from_what_its_installer_compiled",
    "tests/integration/test_names.py",
)
# and between Pythons: event loops and threads, audit events, JSON's words, patterns; and what all of these do together
MOST = (
    *FEW,
    "tests/integration/options/test_output.py",
    "tests/integration/test_names.py",
    "tests/engine/test_attempt.py",
    "tests/unit/test_cases.py",
    "tests/model/test_record.py",
    "tests/unit/test_nasty_inputs.py",
    "tests/engine/test_offline.py",
    "tests/engine/test_scheduler.py",
    "tests/golden/test_golden.py::test_scenario[broken]",
    "tests/integration/test_controls.py::test_each_control_ends_as_written_or_is_reported",
    "tests/integration/test_controls.py::test_controls_are_selected_as_tests_are",
    "tests/integration/test_controls.py::test_what_a_control_left_running_makes_it_broken",
    "tests/integration/test_marked_cases.py::test_each_verdict_as_for_items_from_files",
    "tests/integration/test_marked_cases.py::test_methods_async_functions_and_fixtures_may_check",
    "tests/integration/test_offline.py",
    "tests/integration/options/test_resume.py::test_only_attempts_with_errors_are_repeated",
    "tests/integration/options/test_suite.py::test_cases_are_selected_as_tests_are",
    "tests/integration/options/test_suite.py::test_before_pytest_9_an_argument_within_another_is_left_out",
    "tests/integration/options/test_suite.py::test_a_conftest_applies_to_the_cases_of_its_folder",
)
ALONE = [*matrix.declared(), *(text for text in matrix.tools() if matrix.name_of(text) == "pytest-xdist")]
_BUILT: list[Path] = []
# of what may be left out: extras that a session is not about, programs, and data that are not in this repository
MAY_SKIP = ("agentdojo", "'mcp'", "spacy", "shared", "allure", "pytest_html", "[tool.pytest]")


@nox.session(python=PYTHONS)
def lowest(session: nox.Session) -> None:
    """Everything at the lowest version that is declared; with the oldest Python it is a corner."""
    pins = [matrix.lowest(text) for text in matrix.beside_each_other()]
    prepare(session, pins)
    run_suites(session)
    run_tests(session, *MOST)


@nox.session(python=PYTHONS)
def newest(session: nox.Session) -> None:
    """Everything at its newest version; with the newest Python it is a corner."""
    prepare(session, [])
    run_suites(session)
    run_tests(session, *MOST)


@nox.session(python=PYTHONS[0], name="pytest")
@nox.parametrize("release", matrix.pytest_releases(), ids=[each.split("==")[1] for each in matrix.pytest_releases()])
def pytest_release(session: nox.Session, release: str) -> None:
    """One release of pytest, with everything else at its newest version."""
    prepare(session, [release])
    run_suites(session)
    run_tests(session, *FEW, *COLLECTION)


@nox.session(python=PYTHONS[0])
@nox.parametrize("requirement", ALONE, ids=[*map(matrix.name_of, ALONE)])
def alone(session: nox.Session, requirement: str) -> None:
    """One requirement at its lowest version, with everything else at its newest."""
    prepare(session, [matrix.lowest(requirement)])
    run_suites(session)
    run_tests(session, *FEW)


@nox.session(python=PYTHONS[0])
@nox.parametrize("extra", matrix.extras(), ids=matrix.extras())
def extra(session: nox.Session, extra: str) -> None:
    """What an extra needs at its lowest version, with everything else at its newest."""
    pins = [matrix.lowest(text) for text in matrix.declared(extra)]
    prepare(session, pins, extra, *matrix.NEEDED_BESIDE.get(extra, ()))
    run_suites(session)
    run_tests(session, *matrix.TESTS_OF_EXTRAS[extra])


def prepare(session: nox.Session, pins: list[str], *more: str) -> None:
    """Install the wheel with its extras and exactly the versions in `pins`, all else at its newest one; check it."""
    names = sorted({*matrix.extras()} - {*matrix.APART} | {*more})
    session.install(f"{matrix.NAME}[{','.join(names)}] @ {wheel(session).as_uri()}", *matrix.tools(), *pins)
    session.run("python", "benchmarks/matrix.py", *pins)


def wheel(session: nox.Session) -> Path:
    """Return the wheel of this checkout, which the first session builds."""
    folder = session.cache_dir / "wheel"
    if not _BUILT:
        shutil.rmtree(folder, ignore_errors=True)
        session.run_install("uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT))
        _BUILT.extend(folder.glob("*.whl"))
    return _BUILT[0]


def run_suites(session: nox.Session) -> None:
    """Run a suite of the wheel, and one of `packbench init`, of whose two cases one fails on purpose."""
    # outside of this project, whose settings pytest would read
    with TemporaryDirectory() as folder, session.chdir(folder):
        session.run("packbench", "init", "mine", silent=True)
        for suite, code in (("bundled/tariff", 0), ("mine", 1)):
            for workers in ("0", "2"):
                session.run("pytest", "-q", "-n", workers, f"--packbench-suite={suite}", success_codes=[code])


def run_tests(session: nox.Session, *arguments: str) -> None:
    """Run tests in two workers; one that is skipped for a reason that no session has is an error."""
    with TemporaryDirectory() as folder:
        report = Path(folder, "tests.xml")
        options = ("-q", "-n", "2", "-p", "no:cacheprovider", f"--junit-xml={report}", *session.posargs)
        if session.run("pytest", *options, *arguments) is None:  # nothing is run: --install-only
            return
        skipped = [each.get("message", "") for each in ET.parse(report).getroot().iter("skipped")]  # noqa: S314 # ours
    strange = sorted({reason for reason in skipped if not any(word in reason for word in MAY_SKIP)})
    if strange:
        session.error(f"a test was skipped that needs nothing from outside: {'; '.join(strange)}")
