"""The program `packbench`: runs a command, and reports its errors in one line with an exit code.

Exit codes: 0 success, 1 a gate or comparison failed, 2 usage error or unreadable input. `COMMANDS` says in which
module a command is, as `add_<command>_arguments(parser)` and `run_<command>(arguments) -> exit code`. What commands
share is here too: options for suites, packs and reports, the project's configuration, and output.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench import __version__
from pytest_packbench.api import load_found, load_suite
from pytest_packbench.cases.finder import (
    FoundSuite,
    Project,
    bundled_root,
    find_suites,
    missing_config_message,
    named_suites,
    unknown_suite_message,
)
from pytest_packbench.files import LIMITS, encode_utf8, read_regular, write_atomic
from pytest_packbench.model.errors import StoredRunError, describe_raised, suggestion
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.suite import CONFIG_NAME, Suite
from pytest_packbench.packs.registry import Packs, import_pack
from pytest_packbench.reports.terminal import printable, printable_json
from pytest_packbench.runs.folder import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_packbench.model.pack import Pack


ROOT = Path("storage") / "benchmarks"
PYTEST_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
SHARED_FILES = ("pyproject.toml", "tox.ini", "setup.cfg")
_PYTEST_SECTION = re.compile(rb"^\s*\[(tool[.:])?pytest\b", re.MULTILINE)
_SHARED: dict[str, dict[str, Any]] = {
    "--output": {
        "type": Path,
        "default": OUTPUT,
        "help": "the folder of reports (default: reports/benchmarks)",
    },
    "--root": {
        "type": Path,
        "help": "the folder of suites (default: ini packbench_root, else storage/benchmarks)",
    },
    "--pack": {
        "dest": "packs",
        "action": "append",
        "default": [],
        "metavar": "MODULE:ATTR",
        "help": "a pack to import from the current folder (repeat); packs of installed packages and of conftest.py "
        "files are found without it",
    },
    "--trust": {
        "action": "store_true",
        "help": "import the functions that a suite names which is none of the project",
    },
    "--fail-on": {
        "metavar": "CONDITIONS",
        "help": 'fail if one of these conditions is met, such as "regressed>0, mean<-0.02" (scores go from 0 to 1)',
    },
}
"""Options that several commands have, as `argparse` declares them."""
_VARIABLES = ("PACKBENCH_ROOT", "PYTEST_ADDOPTS", "PYTEST_PLUGINS")


def add_shared(parser: argparse.ArgumentParser, *options: str) -> None:
    """Declare some of the options that several commands have."""
    for name in options:
        parser.add_argument(name, **_SHARED[name])


def add_run_options(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Declare `--option`, the options of the pytest run that a command stands for; `purpose` completes the help."""
    parser.add_argument(
        "--option",
        dest="options",
        action="append",
        default=[],
        metavar="OPTION",
        help=f"an option of the pytest run that {purpose}, such as --option=--packbench-guard=redact (repeat)",
    )


def packs_for_options(parser: argparse.ArgumentParser) -> Packs:
    """Return the packs that add options to a command, and keep the project that they come from for the command.

    A project that can't be read is reported when the command runs, so that its help works.
    """
    try:
        project = _configured_project()
    except UsageError:
        return Packs()
    parser.set_defaults(project=project)
    return Packs(project.packs)


def root_of(arguments: argparse.Namespace) -> Path:
    """Return the folder of suites: `--root`, else as pytest finds it, relative to the current folder.

    Raises:
        UsageError: pytest can't read the project's configuration.
    """
    root: Path | None = getattr(arguments, "root", None)
    return Path(os.path.relpath(project_of(arguments).root)) if root is None else root


def new_root(arguments: argparse.Namespace) -> Path:
    """Return the folder for a new suite, as `root_of`.

    Raises:
        UsageError: pytest would not look for suites here, or can't read the project's configuration.
    """
    rootdir = project_of(arguments).rootdir
    if arguments.root is None and rootdir != Path.cwd():
        raise UsageError(f"pytest's rootdir is {rootdir}: run packbench init there, or pass --root")
    return root_of(arguments)


def command_lines(name: str, arguments: argparse.Namespace) -> tuple[str, str]:
    """Return the lines that say how to run a suite from the current folder, and how to check it.

    Raises:
        UsageError: pytest can't read the project's configuration.
    """
    project, root = project_of(arguments), arguments.root
    pytest, lint_option = "pytest", ""
    if root is not None:
        if project.rootdir != Path.cwd():
            # so that targets of the current folder are found
            pytest = "python -m pytest"
        if root.resolve() != project.root.resolve():
            of_pytest = root if pytest == "pytest" else Path(os.path.relpath(root, project.rootdir))
            pytest += f" -o packbench_root={of_pytest.as_posix()}"
            lint_option = f" --root {root.as_posix()}"
    return f"run it: {pytest} --packbench-suite={name}", f"check:  packbench lint {name}{lint_option}"


def packs_of(arguments: argparse.Namespace) -> Packs:
    """Return all packs by name: those of `--pack`, else those of pytest's hooks, else the registered ones.

    They are read once per command. The rules of the project's suites import the functions that they name, those of
    others only with `--trust`.

    Raises:
        PackError: a pack of `--pack` can't be loaded.
        UsageError: pytest can't read the project's configuration.
    """
    packs: Packs | None = getattr(arguments, "loaded", None)
    if packs is not None:
        return packs
    requested = [import_pack(spec) for spec in getattr(arguments, "packs", ())]
    # with both options nothing of the project's configuration is needed
    is_explicit = requested and getattr(arguments, "root", None) is not None
    found = () if is_explicit else project_of(arguments).packs
    trusted = None
    if not getattr(arguments, "trust", False):
        trusted = {found.path.resolve() for found in _known_suites(arguments).values()}
    packs = arguments.loaded = Packs([*found, *requested], trusted=trusted)
    return packs


def chosen_pack(name: str, packs: Packs) -> Pack:
    """Return the pack that a user names, or gives as MODULE:ATTR.

    Raises:
        UsageError: there is none of this name.
        PackError: it can't be loaded.
    """
    if ":" in name:
        return import_pack(name)
    if name not in packs:
        raise UsageError(f'unknown pack "{name}"; {suggestion(name, sorted(packs))}')
    return packs[name]


def policy_project(arguments: argparse.Namespace) -> Project:
    """Return the project with the folder of suites of the command, for its acceptance policies.

    Raises:
        UsageError: pytest can't read the project's configuration.
    """
    from pytest_packbench.policy import policy_settings

    project = project_of(arguments)
    # without following links
    root = Path(os.path.abspath(root_of(arguments)))  # noqa: PTH100 - see above
    settings = dict(project.settings) or policy_settings({}, (), "")
    if arguments.root is not None:
        settings["root"] = Path(os.path.relpath(root, project.rootdir)).as_posix()
    return project._replace(root=root, settings=settings)


def suite_and_pack(name: str, arguments: argparse.Namespace, *, by_name: bool = False) -> tuple[Suite, Pack]:
    """Read a suite, and return with it its pack as the suite configures it.

    Args:
        name: its name, or its folder; a name that begins with `bundled/` is always that of a bundled suite.
        arguments: of the command.
        by_name: whether it can't be a folder, as what a stored file names.

    Raises:
        UsageError: there is no such suite, or pytest can't read the project's configuration.
        SuiteError: its rules can't be read.
        PackError: its pack, or one of `--pack`, can't be loaded.
    """
    packs, root, known = packs_of(arguments), root_of(arguments), _known_suites(arguments)
    found = known.get(name)
    folder = None
    if not by_name and not name.startswith(BUNDLED) and (found is None or found.bundled):
        folder = next((path for path in (Path(name), root / name) if (path / CONFIG_NAME).is_file()), None)
    if folder is not None:
        suite = load_suite(folder, packs=packs)
    elif found is not None:
        suite = load_found(found, packs=packs)
    else:
        bare = "" if by_name or name.startswith(BUNDLED) else missing_config_message(Path(name))
        advice = "pass --root, or run packbench in the project's folder"
        raise UsageError(bare or unknown_suite_message(name, known, root, advice))
    return suite, packs[suite.config.pack].for_suite(suite.config)


def _known_suites(arguments: argparse.Namespace) -> dict[str, FoundSuite]:
    """Return the suites of the project and the bundled ones, by name."""
    return named_suites(root_of(arguments).resolve(), bundled_root())


def bundled_folder(path: Path) -> Path:
    """Return the folder of the bundled suite that a path `bundled/NAME` names if nothing is there; else the path."""
    is_name = path.parent == Path(BUNDLED) and not path.exists()
    return find_suites(bundled_root()).get(path.name, path) if is_name else path


def project_of(arguments: argparse.Namespace) -> Project:
    """Return what pytest finds in the current folder; read once per command.

    Raises:
        UsageError: pytest can't read the project's configuration.
    """
    if not hasattr(arguments, "project"):
        arguments.project = _configured_project()
    project: Project = arguments.project
    return project


def _configured_project() -> Project:
    """Return what pytest finds in the current folder; the defaults, without starting pytest, if nothing is set."""
    folder = Path.cwd()
    project = None
    if _is_configured(folder):
        from pytest_packbench.pytest_plugin.project import ProjectError, read_project

        try:
            project = read_project()
        except ProjectError as error:
            raise UsageError(f"pytest can't read this project's configuration: {error}") from None
    return project or Project(folder, folder / ROOT)


def _is_configured(folder: Path) -> bool:
    """Whether pytest, called in a folder, may find a setting, a conftest.py or another rootdir."""
    parents = (folder, *folder.parents)
    return (
        any(os.environ.get(name) for name in _VARIABLES)
        or any((parent / name).is_file() for parent in parents for name in (*PYTEST_FILES, "conftest.py"))
        or any(_PYTEST_SECTION.search(_content(parent / name)) for parent in parents for name in SHARED_FILES)
        or any((parent / name).is_file() for parent in folder.parents for name in ("pyproject.toml", "setup.py"))
    )


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, LIMITS["configuration"])
    except OSError:
        return b""


def write_file(path: Path, text: str) -> None:
    """Write a file that the user named, whole or not at all; into a device or a pipe, which is not replaced.

    Raises:
        UsageError: it can't be written; the system's own error names a temporary file, which the user did not name.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; expected the name of a file")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(encode_utf8(text))
        else:
            write_atomic(path, text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def write_report(path: Path, text: str) -> None:
    """Write a report to the file that an option names, and say so.

    Raises:
        UsageError: it can't be written.
    """
    write_file(path, text)
    sys.stderr.write(f"wrote report to {path}\n")


@contextmanager
def code_of(pack: Pack, method: str, documented: type[Exception] = OSError) -> Iterator[None]:
    """Report what a method of a pack raises in this block, but for files that can't be read, and what it may raise.

    Raises:
        UsageError: it raises another exception.
    """
    try:
        yield
    except (StoredRunError, OSError, documented):
        raise
    except Exception as error:
        raise UsageError(f"the pack {pack.name} raised in {method}: {describe_raised(error)}") from error


def say(*lines: str) -> None:
    """Print lines, with escapes for what a terminal or a service of CI would interpret."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


def write_stdout(text: str) -> None:
    """Write a text as UTF-8: it may contain line ends and characters that a terminal's encoding would change."""
    sys.stdout.flush()
    sys.stdout.buffer.write(encode_utf8(text))
    sys.stdout.buffer.flush()


def json_text(document: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return a JSON document for standard output, of one line for each value.

    Args:
        document: its content.
        default: as for `json.dumps`.
    """
    return printable_json(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2, default=default)) + "\n"


FINE, FAILED, UNUSABLE = 0, 1, 2
_MAX_MESSAGE = 2000
COMMANDS = {
    "accept": "Take over recordings that change older ones: shows scores before and after, and the changed answers.",
    "audit": "Break right results in many ways, and show which rules of a suite notice it and which do not.",
    "baseline": "Set the committed baseline of a suite from a run, with a reason, or show it with its history.",
    "capture": "Run an app of yours, and make a case with its recording of each conversation that it has with a model.",
    "init": "Create a suite of your own, with two cases and a target, or a copy of a bundled one.",
    "import": "Convert files into cases: CSV, JSONL, and other formats that packs can read.",
    "report": "Summarize any number of records: rates with intervals, gates, duplicates, failing cases.",
    "compare": "Compare two runs: what improved, what regressed, and whether that may be chance.",
    "gate": "Check stored runs against gates, and acceptance policies against those of a base.",
    "history": "Show like runs of a suite over time, its flaky cases, and what a case came to in each run.",
    "lint": "Check a suite's cases, cassettes and rules for mistakes.",
    "open": "Open the page of a run in a browser.",
    "merge": "Join runs, or the shards of a run, and apply the gates.",
    "rescore": "Score the stored results of a run with the current rules, without running the target.",
    "review": "Write what reviewers marked on the page of a run into the cases; shows the patch first.",
    "schema": "Print the JSON Schema of a file format, such as case, suite, cassette or record.",
    "validate": "Check any file of a suite or a run, and print its kind and version.",
}
_MODULES = {
    "accept": "review",
    "baseline": "judging",
    "compare": "report",
    "gate": "judging",
    "history": "report",
    "import": "authoring",
    "init": "authoring",
    "lint": "validate",
    "merge": "judging",
    "open": "report",
    "rescore": "judging",
    "schema": "validate",
}
"""The modules that have not the name of their command."""


class UsageError(Exception):
    """A command can't do what was requested; reported in one line, with exit code 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments, without the program's name; `sys.argv` by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    # suites may name functions of the project; appended, so that a file of the project can't shadow a library
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    # only the module of the requested command is imported
    requested = words[0] if words and words[0] in COMMANDS else None
    parser = argparse.ArgumentParser(prog="packbench", description="Create and check suites; report and compare runs.")
    parser.add_argument("--version", action="version", version=f"packbench {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, description in COMMANDS.items():
        command = commands.add_parser(name, help=description, description=description)
        if name == requested:
            declare(name, command)
    if not words:
        parser.print_help()
        return UNUSABLE
    arguments = parser.parse_args(words)
    try:
        return int(arguments.command(arguments))
    except KeyboardInterrupt:
        warn("interrupted")
    except BrokenPipeError:
        # the reader of the output has closed it; output that was not read is no success
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # the system's own text has the file behind it
        warn(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error))
    except (UsageError, ValueError) as error:
        warn(str(error))
    return UNUSABLE


def declare(name: str, parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a command, and as `command` what runs it; only its module is imported."""
    module = import_module(f"pytest_packbench.commands.{_MODULES.get(name, name)}")
    getattr(module, f"add_{name}_arguments")(parser)
    parser.set_defaults(command=getattr(module, f"run_{name}"))


def warn(text: str) -> None:
    """Print a problem in one line on standard error."""
    from pytest_packbench.reports.terminal import one_line

    sys.stderr.write(f"packbench: {one_line(text, _MAX_MESSAGE)}\n")
