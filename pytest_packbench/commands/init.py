"""`packbench init`: create a suite that runs at once, or a copy of a bundled suite."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cases.packed import single_files
from pytest_packbench.cases.suites import bundled_root, find_suites
from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.baseline import write_first_baseline
from pytest_packbench.commands.paths import (
    PYTEST_FILES,
    SHARED_FILES,
    add_shared,
    chosen_pack,
    command_lines,
    new_root,
    packs_of,
    say,
)
from pytest_packbench.model.authoring import SUITE_NAME, TARGET_MODULE, Starter
from pytest_packbench.model.case import NAME
from pytest_packbench.model.errors import describe_error, format_value, pluralize
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.suite import BASELINE_NAME
from pytest_packbench.packs.registry import DEFAULT_PACK, Packs
from pytest_packbench.reports.terminal import one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

_MAX_NAME = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    about = "the name of the new suite: lower-case letters, digits, _ and -; with --from, that suite's name by default"
    parser.add_argument("name", metavar="NAME", nargs="?", help=about)
    about = f"the pack of its cases: a name, or MODULE:ATTR for a pack to import (default: {DEFAULT_PACK})"
    parser.add_argument("--pack", metavar="PACK", help=about)
    about = (
        "write a target that calls a model with a client of its own, to be recorded as it is: openai, langchain or node"
    )
    parser.add_argument("--target", metavar="CLIENT", help=about)
    about = "write a copy of a suite of the installed package: its rules, and a file for each case and each recording"
    parser.add_argument("--from", dest="source", metavar="SUITE", help=about)
    about = "whether recordings contain what the model was asked; asked on a terminal (default: yes)"
    parser.add_argument("--record-prompts", choices=["yes", "no"], help=about)
    add_shared(parser, "--root")


def run(arguments: argparse.Namespace) -> int:
    """Write the starter of a pack or the files of a bundled suite, and print what was written and what to do next."""
    if arguments.source is not None:
        return _copy(arguments)
    if arguments.name is None:
        raise UsageError("init: expected the NAME of the new suite, or --from SUITE for a copy of a bundled one")
    name, root = suite_name(arguments.name), new_root(arguments)
    starter = _starter(arguments.pack or DEFAULT_PACK, arguments.target, packs_of(arguments))
    is_recorded = arguments.target is not None
    files = _files(starter, name, root / name)
    _refuse_existing(root / name, *files)
    _write({path: text.encode() for path, text in files.items()})
    lines = [f"wrote {path.as_posix()}" for path in files]
    if not is_recorded:
        lines += _first_baseline(name, root)
    lines += _record_prompts(arguments.record_prompts)
    readme = (root / name / "README.md").as_posix()
    commands = command_lines(name, arguments)
    lines += ["", *_next_steps(starter, readme, *commands, is_recorded=is_recorded)]
    say(*lines)
    return FINE


def _first_baseline(name: str, root: Path) -> list[str]:
    """Run the cases of a new suite, and write what they come to as its first committed baseline.

    Returns:
        A line that says what was written, or why nothing was.
    """
    try:
        path = write_first_baseline(name, root)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - packs and targets are the user's code
        reason = one_line(describe_error(error), 200)
        advice = f"after the first run: packbench baseline set {name}/latest --reason TEXT"
        return [f"no {BASELINE_NAME} was written: {reason}; {advice}"]
    return [f"wrote {path.as_posix()}"]


def _record_prompts(answer: str | None) -> list[str]:
    """Ask whether recordings may contain prompts unless the option says so; write a `no` into a new pytest.ini.

    Returns:
        Lines that say what was written, or what to write.
    """
    if answer is None and sys.stdin.isatty() and sys.stdout.isatty():
        sys.stdout.write(
            "Keep prompts in recordings? They help to read failures, but may contain personal data. [Y/n] "
        )
        sys.stdout.flush()
        answer = "no" if sys.stdin.readline().strip().lower() in {"n", "no"} else "yes"
    if answer != "no":
        return []
    setting = "packbench_record_prompts = no"
    existing = next((name for name in (*PYTEST_FILES, *SHARED_FILES) if Path(name).is_file()), None)
    if existing is not None:
        return [f"add to the pytest settings in {existing}: {setting}"]
    Path("pytest.ini").write_text(f"[pytest]\n{setting}\n", encoding="utf-8")
    return [f"wrote pytest.ini: {setting}"]


def _copy(arguments: argparse.Namespace) -> int:
    """Write a bundled suite as single files, and print what was written and what to do next."""
    for option in ("pack", "target"):
        if getattr(arguments, option) is not None:
            raise UsageError(f"--{option}: a copy has the {option} of its suite; remove the option")
    source, suites = arguments.source.removeprefix(BUNDLED), find_suites(bundled_root())
    if source not in suites:
        listed = ", ".join(suites) or "none"
        raise UsageError(f'--from: unknown suite "{arguments.source}"; suites of the installed package: {listed}')
    name, root = suite_name(arguments.name or source), new_root(arguments)
    folder = root / name
    # the baseline of the original is that of another suite
    files = {folder / file: content for file, content in single_files(suites[source]) if file != BASELINE_NAME}
    _refuse_existing(folder)
    _write(files)
    say(
        f"wrote {folder.as_posix()}: {pluralize(len(files), 'file')}",
        *_first_baseline(name, root),
        "",
        *command_lines(name, arguments),
        f"In this project, {name} is now your copy, and {BUNDLED}{source} the original.",
    )
    return FINE


def _write(files: Mapping[Path, bytes]) -> None:
    """Write new files, all or none.

    Raises:
        OSError: one can't be written; it names the file.
    """
    written: list[Path] = []
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # exclusively: the file may have been created since the check
            with path.open("xb") as file:
                written.append(path)
                file.write(content)
    except OSError as error:
        for made in (*written, path):
            if made in written:
                made.unlink()
            # folders that are empty now: any file in the suite's would make the next one refuse
            for folder in made.parents:
                with suppress(OSError):
                    folder.rmdir()
        raise OSError(error.errno, error.strerror, path.as_posix()) from None


def suite_name(name: str) -> str:
    """Return the name of a suite, checked.

    Raises:
        UsageError: no suite can have this name.
    """
    if len(name) > _MAX_NAME or re.fullmatch(NAME, name) is None:
        better = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:_MAX_NAME]
        hint = f"; try {better}" if better else ""
        expected = f"expected at most {_MAX_NAME} lower-case letters, digits, _ and -, the first a letter or a digit"
        raise UsageError(f"invalid suite name {format_value(name)}: {expected}{hint}")
    return name


def _starter(name: str, client: str | None, packs: Packs) -> Starter:
    """Return the starter of a pack, or the one whose target has a client of its own.

    Raises:
        UsageError: there is none.
    """
    starter = chosen_pack(name, packs).starter()
    if starter is None:
        raise UsageError(f'the pack "{name}" has no starter suite; choose another pack')
    if client is None:
        return starter
    if client not in starter.pipelines:
        expected = f"one of {', '.join(starter.pipelines)}" if starter.pipelines else f'none with the pack "{name}"'
        raise UsageError(f"--target: unknown client {format_value(client)}; expected {expected}")
    return starter.pipelines[client]


def _files(starter: Starter, name: str, folder: Path) -> dict[Path, str]:
    # a module's name has no hyphen and begins with no digit
    module = f"target_{name.replace('-', '_')}"

    def filled(text: str) -> str:
        return text.replace(SUITE_NAME, name).replace(TARGET_MODULE, module)

    suite = {folder / filled(key): filled(text) for key, text in starter.suite.items()}
    return suite | {Path(filled(key)): filled(text) for key, text in starter.project.items()}


def _refuse_existing(*paths: Path) -> None:
    existing = next(filter(os.path.lexists, paths), None)
    if existing is not None:
        advice = "nothing was written; choose another name, or remove what exists"
        raise UsageError(f"{existing.as_posix()} already exists; {advice}")


def _next_steps(starter: Starter, readme: str, run_line: str, lint_line: str, *, is_recorded: bool) -> Iterator[str]:
    yield from (f'first:  pip install "pytest-packbench[{extra}]"' for extra in _missing(starter.needs))
    yield from (f"first:  pip install {package}" for package in _missing(starter.installs))
    next_step = f"One case passes and one fails; the output shows why. Next steps: {readme}"
    if is_recorded:
        yield f"record: {run_line.removeprefix('run it: ')} --packbench-mode=record"
        next_step = f"Recording calls a model with your OPENAI_API_KEY; later runs are offline. Next steps: {readme}"
    yield from (run_line, lint_line, next_step)
    for extra in _missing(starter.takes):
        yield f'Some rules of this pack need an extra: pip install "pytest-packbench[{extra}]"'


def _missing(libraries: Mapping[str, str]) -> list[str]:
    """Return the extras of the libraries that aren't installed, each once."""
    absent = (extra for library, extra in libraries.items() if find_spec(library.partition(".")[0]) is None)
    return list(dict.fromkeys(absent))
