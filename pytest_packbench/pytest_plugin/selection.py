"""Which suites are requested, by name or by path. Looks only at folders; reads no suite."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pytest

# the module, because tests replace its SUITES
from pytest_packbench import plugin
from pytest_packbench.cases.files import LINES_SUFFIX, SUFFIXES, file_stem, find_case, is_line_name
from pytest_packbench.cases.suites import describe_case_counts, find_suites, suite_names, unknown_suite_message
from pytest_packbench.model.run import shard_of
from pytest_packbench.plugin import SELECTION, setting_of
from pytest_packbench.pytest_plugin.suites import known_packs, read_suite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.pytest_plugin.suites import SessionSuites


class Selection(NamedTuple):
    """What the command line requests, before any suite is read.

    Attributes:
        root: the folder of suites, absolute.
        bundled: whether it is the one in the wheel.
        named: suites requested by name.
        folders: folders of all suites requested, by name or by a path in them; name to absolute path.
        files: the files of cases among the arguments, absolute, with the names of the cases behind `::`; with none
            if the whole file is requested as well.
        single: those of them that no other argument requests as a whole.
    """

    root: Path
    bundled: bool
    named: tuple[str, ...]
    folders: dict[str, Path]
    files: Mapping[str, frozenset[str]] = MappingProxyType({})
    single: Mapping[str, frozenset[str]] = MappingProxyType({})


def suites_root(config: pytest.Config, namespace: object) -> tuple[Path, bool]:
    """Return the folder of suites, and whether it is the bundled one.

    The suites in the wheel are used only if the project's folder does not exist.
    """
    root = _project_root(config, namespace)
    return (root, False) if root.is_dir() else (plugin.SUITES, True)


def unknown_suite_text(name: str, known: dict[str, Path], config: pytest.Config, namespace: object) -> str:
    """Return the error for an unknown suite, with those that exist (`known`, name to folder)."""
    return unknown_suite_message(name, known, _project_root(config, namespace), plugin.SUITES)


def activate(config: pytest.Config, args: list[str]) -> None:
    """Find the requested suites, and add their folders to pytest's arguments.

    A suite of which an argument selects a part is not added. Without a requested suite nothing changes.

    Raises:
        pytest.UsageError: a suite does not exist.
    """
    namespace = config.known_args_namespace
    names = suite_names(setting_of("suite", namespace, config.getini)[0])
    root, bundled = suites_root(config, namespace)
    under = _under(root, config.invocation_params.dir, namespace.file_or_dir)
    if not names and not under:
        return
    known = find_suites(root)
    for name in names:
        if name not in known:
            raise pytest.UsageError(f"--packbench-suite: {unknown_suite_text(name, known, config, namespace)}")
    selected = {name for path, _ in under for name in _suites_at(Path(path), root, known)}
    folders = {name: path for name, path in known.items() if name in selected or name in names}
    files, single = _files(under)
    config.stash[SELECTION] = Selection(
        root=root, bundled=bundled, named=tuple(names), folders=folders, files=files, single=single
    )
    args.extend(str(known[name]) for name in names if name not in selected)


def _project_root(config: pytest.Config, namespace: object) -> Path:
    """Return the folder of the project's suites, absolute, whether it exists or not."""
    return Path(os.path.normpath(config.rootpath / setting_of("root", namespace, config.getini)[0]))


def _under(root: Path, folder: Path, arguments: list[str]) -> list[tuple[str, str]]:
    """Return the absolute paths among the arguments that are under the root, each with the text behind `::`."""
    parts = [argument.partition("::") for argument in arguments]
    paths = [(os.path.normpath(folder / path), name) for path, _, name in parts]
    return [(path, name) for path, name in paths if (path + os.sep).startswith(str(root) + os.sep)]


def _files(under: list[tuple[str, str]]) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    cases: dict[str, set[str]] = {}
    for path, name in under:
        if path.endswith(SUFFIXES):
            cases.setdefault(path, set()).add(name)
    whole = {path for path, name in under if not name}
    files = {path: frozenset() if "" in names else frozenset(names) for path, names in cases.items()}
    single = {
        path: names
        for path, names in files.items()
        if names and whole.isdisjoint(str(parent) for parent in Path(path).parents)
    }
    return files, single


def _suites_at(path: Path, root: Path, known: dict[str, Path]) -> list[str]:
    if path == root:
        return list(known)
    name = path.relative_to(root).parts[0]
    return [name] if name in known else []


def show_suites(config: pytest.Config) -> int:
    """Print the suites and return the exit code: 0, or 4 if the rules of a suite can't be read."""
    root, bundled = suites_root(config, config.option)
    packs = known_packs(config)
    status = pytest.ExitCode.OK
    suites = find_suites(root)
    lines = [f"suites under {os.path.relpath(root)}{' (bundled)' if bundled else ''}: {len(suites) or 'none'}"]
    for name, path in suites.items():
        try:
            suite = read_suite(config, name, path, packs, bundled=bundled)
            description = f"pack {suite.config.pack}: {suite.config.description}"
        except pytest.UsageError as error:
            description, status = f"can't be used: {error}", pytest.ExitCode.USAGE_ERROR
        lines.append(f"  {name}: {describe_case_counts(path / 'cases')}; {description}")
    sys.stdout.write("\n".join(lines) + "\n")
    return int(status)


def check_shard(contexts: SessionSuites, selection: Selection) -> None:
    """Check that the cases that the command line names are in the shard.

    Raises:
        pytest.UsageError: one of them is in another shard.
    """
    shard = contexts.settings.shard
    if shard is None:
        return
    folders = tuple(str(suite.cases_path) + os.sep for suite in contexts.suites.values())
    for path, names in selection.files.items():
        if not path.startswith(folders):
            continue
        for name in sorted(names or ([] if path.endswith(LINES_SUFFIX) else [file_stem(path)])):
            number = shard_of(name, shard.count)
            if number != shard.number and not is_line_name(name):
                raise pytest.UsageError(
                    f"--packbench-shard: {name} is in shard {number}/{shard.count}, not in {shard}; "
                    "to run a case by its path, leave out the shard"
                )


def check_cases_exist(contexts: SessionSuites, selection: Selection) -> None:
    """Check that the cases that the command line names exist.

    Raises:
        pytest.UsageError: one of them does not.
    """
    folders = tuple(str(suite.cases_path) + os.sep for suite in contexts.suites.values())
    for path, names in selection.files.items():
        if not path.startswith(folders):
            continue
        file = os.path.relpath(path)
        if not os.path.exists(path):  # noqa: PTH110 - it is text already
            raise pytest.UsageError(f"file not found: {file}")
        for name in sorted(names):
            if find_case(path, name) is None or (not path.endswith(LINES_SUFFIX) and name != file_stem(path)):
                raise pytest.UsageError(f"not found: {file}::{name}: no case of the file has this id")
