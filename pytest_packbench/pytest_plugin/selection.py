"""Which suites were asked for, by name or by path. Looks at folders only; reads no suite."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pytest

# by the module for SUITES: tests put another folder there
from pytest_packbench import plugin
from pytest_packbench.cases.files import LINES_SUFFIX, SUFFIXES, file_stem, find_case, is_line_name
from pytest_packbench.cases.suites import describe_case_counts, find_suites, suite_names, unknown_suite_message
from pytest_packbench.model.run import shard_of
from pytest_packbench.plugin import ASKED, setting_of
from pytest_packbench.pytest_plugin.suites import known_packs, read_suite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.pytest_plugin.suites import SessionSuites


class Asked(NamedTuple):
    """What was asked for on the command line, before any suite is read.

    Attributes:
        root: the folder of suites, absolute.
        bundled: whether it is the one in the wheel.
        named: suites asked for by name.
        folders: folders of all suites asked for, by name or by a path in them; name to absolute path.
        files: the files of cases among the arguments, absolute, with the names of the cases behind `::`; with none
            where the whole file is asked for as well.
        single: those of them that nothing else asks for.
    """

    root: Path
    bundled: bool
    named: tuple[str, ...]
    folders: dict[str, Path]
    files: Mapping[str, frozenset[str]] = MappingProxyType({})
    single: Mapping[str, frozenset[str]] = MappingProxyType({})


def suites_root(config: pytest.Config, namespace: object) -> tuple[Path, bool]:
    """Give the folder of suites, and whether it is the bundled one.

    The suites in the wheel are looked at only where the project's folder does not exist at all.
    """
    own = _own_root(config, namespace)
    return (own, False) if own.is_dir() else (plugin.SUITES, True)


def unknown(name: str, known: dict[str, Path], config: pytest.Config, namespace: object) -> str:
    """Say that no suite has a name, and which ones there are (`known`, name to folder)."""
    return unknown_suite_message(name, known, _own_root(config, namespace), plugin.SUITES)


def activate(config: pytest.Config, args: list[str]) -> None:
    """Find the suites that are asked for, and add their folders to pytest's arguments.

    A suite that some argument already selects from is not added whole. Where none is asked for after all, nothing
    changes.

    Raises:
        pytest.UsageError: no suite has such a name.
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
            raise pytest.UsageError(f"--packbench-suite: {unknown(name, known, config, namespace)}")
    selected = {name for path, _ in under for name in _suites_at(Path(path), root, known)}
    folders = {name: path for name, path in known.items() if name in selected or name in names}
    files, single = _files(under)
    config.stash[ASKED] = Asked(
        root=root, bundled=bundled, named=tuple(names), folders=folders, files=files, single=single
    )
    args.extend(str(known[name]) for name in names if name not in selected)


def _own_root(config: pytest.Config, namespace: object) -> Path:
    """Give the folder of the project's own suites, absolute, whether it is there or not."""
    return Path(os.path.normpath(config.rootpath / setting_of("root", namespace, config.getini)[0]))


def _under(root: Path, here: Path, arguments: list[str]) -> list[tuple[str, str]]:
    """Give the absolute paths among the arguments that lie under the root, each with what stands behind `::`."""
    parts = [argument.partition("::") for argument in arguments]
    given = [(os.path.normpath(here / path), name) for path, _, name in parts]
    return [(path, name) for path, name in given if (path + os.sep).startswith(str(root) + os.sep)]


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
    """Print the suites and give the exit code: 0, or 4 where a suite's rules can't be read."""
    root, bundled = suites_root(config, config.option)
    packs = known_packs(config)
    status = pytest.ExitCode.OK
    found = find_suites(root)
    lines = [f"suites under {os.path.relpath(root)}{' (bundled)' if bundled else ''}: {len(found) or 'none'}"]
    for name, path in found.items():
        try:
            suite = read_suite(config, name, path, packs, bundled=bundled)
            about = f"pack {suite.config.pack}: {suite.config.description}"
        except pytest.UsageError as error:
            about, status = f"can't be used: {error}", pytest.ExitCode.USAGE_ERROR
        lines.append(f"  {name}: {describe_case_counts(path / 'cases')}; {about}")
    sys.stdout.write("\n".join(lines) + "\n")
    return int(status)


def check_asked(contexts: SessionSuites, asked: Asked) -> None:
    """Check that the cases that the command line names are in the shard.

    Raises:
        pytest.UsageError: one of them is in another.
    """
    shard = contexts.settings.shard
    if shard is None:
        return
    folders = tuple(str(suite.cases_path) + os.sep for suite in contexts.suites.values())
    for path, given in asked.files.items():
        if not path.startswith(folders):
            continue
        for name in sorted(given or ([] if path.endswith(LINES_SUFFIX) else [file_stem(path)])):
            own = shard_of(name, shard.count)
            if own != shard.number and not is_line_name(name):
                raise pytest.UsageError(
                    f"--packbench-shard: {name} is in shard {own}/{shard.count}, not in {shard}; "
                    "run a case by its path without a shard"
                )


def check_there(contexts: SessionSuites, asked: Asked) -> None:
    """Check that the cases that the command line names are there.

    Raises:
        pytest.UsageError: one of them is not.
    """
    folders = tuple(str(suite.cases_path) + os.sep for suite in contexts.suites.values())
    for path, names in asked.files.items():
        if not path.startswith(folders):
            continue
        shown = os.path.relpath(path)
        if not os.path.exists(path):  # noqa: PTH110 - as text it came
            raise pytest.UsageError(f"file not found: {shown}")
        for name in sorted(names):
            if find_case(path, name) is None or (not path.endswith(LINES_SUFFIX) and name != file_stem(path)):
                raise pytest.UsageError(f"not found: {shown}::{name}: no case of the file has this id")
