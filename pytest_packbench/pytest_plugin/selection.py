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
from pytest_packbench.cases.recordings import count_controls, needs_gateway
from pytest_packbench.cases.suites import describe_case_counts, named_suites, suite_names, unknown_suite_message
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.run import MODES, shard_of
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.model.suite import CONTROLS, FIXTURES
from pytest_packbench.plugin import LEFT_OUT, SELECTION, rootdir_of, setting_of, suites_root
from pytest_packbench.pytest_plugin.suites import known_packs, read_suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.cases.suites import FoundSuite
    from pytest_packbench.pytest_plugin.suites import SessionSuites


class Selection(NamedTuple):
    """What the command line requests, before any suite is read.

    Attributes:
        named: suites requested by name, with the name that they have in the run.
        required: those of them that an option or the environment names, not the ini file: some of their cases must run.
        suites: all suites requested, by name or by a path in them.
        files: the files of cases among the arguments, absolute, with the names of the cases behind `::`; with none
            if the whole file is requested as well.
        single: those of them that no other argument requests as a whole.
        contained: the arguments that another one contains.
    """

    named: tuple[str, ...]
    suites: tuple[FoundSuite, ...]
    files: Mapping[str, frozenset[str]] = MappingProxyType({})
    single: Mapping[str, frozenset[str]] = MappingProxyType({})
    required: tuple[str, ...] = ()
    contained: tuple[str, ...] = ()


def find_named(config: pytest.Config) -> tuple[Path, dict[str, FoundSuite]]:
    """Return the folder of the project's suites, which may be missing, and the suites by the names that they have."""
    root = suites_root(config, home_of(config))
    return root, named_suites(root, plugin.SUITES)


def home_of(config: pytest.Config) -> Path:
    """Return the folder that relative paths start from: rootdir, unless an argument in the installed package moved it.

    Without a configuration file pytest derives rootdir from the arguments.
    """
    is_moved = (
        config.inipath is None
        and config.known_args_namespace.rootdir is None
        and _under(plugin.SUITES, plugin.arguments_of(config))
    )
    return config.invocation_params.dir if is_moved else rootdir_of(config)


def activate(config: pytest.Config, collected: list[str]) -> None:
    """Find the requested suites, and add their folders to what pytest collects.

    A suite of which an argument selects a part is not added. Without a requested suite nothing changes. Suites of the
    ini file are added to what pytest collects anyway; with paths on the command line, only those under a path.

    Args:
        config: the session's.
        collected: the arguments of pytest, or what it collects without any.

    Raises:
        pytest.UsageError: a suite does not exist.
    """
    value, source = setting_of("suite", config.known_args_namespace, config.getini)
    names, from_ini = suite_names(value), source.startswith("ini")
    root, known = find_named(config)
    arguments, texts = plugin.arguments_of(config), config.known_args_namespace.file_or_dir
    under = list({found: None for folder in (root, plugin.SUITES) for found in _under(folder, arguments)})
    if not names and not under:
        return
    for name in names:
        if name not in known:
            raise pytest.UsageError(f"--packbench-suite: {unknown_suite_message(name, known, root)}")
    selected = {suite for suite in known.values() for path, _ in under if _selects(path, suite)}
    paths = plugin.command_line_paths(config)
    if from_ini and paths:
        outside = [name for name in names if known[name] not in selected and not _is_under(known[name], paths, config)]
        names = [name for name in names if name not in outside]
        if outside:
            config.stash[LEFT_OUT] = ", ".join(outside)
        if not names and not under:
            return
    named = {known[name] for name in names}
    suites = tuple(dict.fromkeys(suite for suite in known.values() if suite in selected or suite in named))
    files, single = _files(under)
    config.stash[SELECTION] = Selection(
        named=tuple(suite.name for suite in named),
        suites=suites,
        files=files,
        single=single,
        required=() if from_ini else tuple(suite.name for suite in named),
        contained=_contained((root, plugin.SUITES), arguments, texts),
    )
    if not texts:
        collected[:] = [_argument(path, config) for path in collected] if from_ini else []
    # as above, pytest before 9.0 drops an argument that contains another one
    whole = [suite for suite in dict.fromkeys(known[name] for name in names) if suite not in selected]
    added = [suite for suite in whole if not _is_under(suite, collected, config)]
    collected += [_argument(str(suite.path), config) for suite in added]


def _argument(path: str, config: pytest.Config) -> str:
    """Return a path as an argument of pytest, which would take what follows `[` or `::` for the name of a test."""
    if "[" not in path and "::" not in path:
        return path
    relative = os.path.relpath(path, config.invocation_params.dir)
    return path if "[" in relative or "::" in relative else relative


def wants_gateway(config: pytest.Config) -> bool:
    """Whether calls of targets' own model clients have to be recorded or replayed; looks at a few recordings."""
    namespace = config.known_args_namespace
    # an invalid value is an error when all settings are read
    wanted, mode = (setting_of(name, namespace, config.getini)[0] for name in ("gateway", "mode"))
    if wanted == "off" or mode not in MODES or SELECTION not in config.stash or namespace.collectonly:
        return False
    folders = (suite.path / FIXTURES for suite in config.stash[SELECTION].suites)
    return mode != "fixture" or wanted == "on" or needs_gateway(folders)


def _is_under(suite: FoundSuite, paths: Iterable[str], config: pytest.Config) -> bool:
    """Whether one of the paths is a folder that contains the suite."""
    folders = tuple(os.path.normpath(config.invocation_params.dir / path) + os.sep for path in paths)
    return str(suite.path).startswith(folders)


def _selects(path: str, suite: FoundSuite) -> bool:
    return suite.contains(path) or path == str(suite.path.parent)


def _under(root: Path, arguments: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the arguments under the root, as `arguments_of` returns them."""
    return [(path, name) for path, name in arguments if (path + os.sep).startswith(str(root) + os.sep)]


def _contained(roots: Iterable[Path], arguments: list[tuple[str, str]], texts: list[str]) -> tuple[str, ...]:
    """Return the arguments under a root of suites that another argument contains, as pytest 9 leaves them out."""
    paths = [(path + os.sep, name) for path, name in arguments]
    whole = [path for path, name in paths if not name]
    under = tuple(f"{root}{os.sep}" for root in roots)
    return tuple(
        text
        for text, (path, name) in zip(texts, paths, strict=True)
        if path.startswith(under) and any(path.startswith(other) and (name or path != other) for other in whole)
    )


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


def show_suites(config: pytest.Config) -> int:
    """Print the suites and return the exit code: 0, or 4 if the rules of a suite can't be read."""
    root, known = find_named(config)
    packs = known_packs(config)
    status = pytest.ExitCode.OK
    lines: list[str] = []
    suites = list(dict.fromkeys(known.values()))
    for bundled in (False, True):
        listed = [suite for suite in suites if suite.bundled is bundled]
        if not listed and (bundled or not root.is_dir()):
            continue
        heading = "bundled suites" if bundled else f"suites under {os.path.relpath(root)}"
        lines.append(f"{heading}: {len(listed) or 'none'}")
        for found in listed:
            try:
                config_of = read_suite(config, found, packs).config
                description = f"pack {config_of.pack}: {config_of.description}"
            except pytest.UsageError as error:
                description, status = f"can't be used: {error}", pytest.ExitCode.USAGE_ERROR
            controls = count_controls(found.path / FIXTURES / CONTROLS)
            counted = f"; {pluralize(controls, 'control')}" if controls else ""
            lines.append(f"  {found.name}: {describe_case_counts(found.path / 'cases')}{counted}; {description}")
    sys.stdout.write("\n".join(lines or [f"suites under {os.path.relpath(root)}: none"]) + "\n")
    return int(status)


def check_shard(contexts: SessionSuites, selection: Selection) -> None:
    """Check that the cases that the command line names are in the shard.

    Raises:
        pytest.UsageError: one of them is in another shard.
    """
    shard = contexts.settings.shard
    if shard is None:
        return
    folders = _folders(contexts)
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


def check_controls(contexts: SessionSuites, selection: Selection) -> None:
    """Check that the command line names no control where controls are not replayed.

    Raises:
        pytest.UsageError: it names one, in a mode that asks a model.
    """
    mode = contexts.settings.mode
    if mode == FIXTURE:
        return
    folders = tuple(str(suite.controls_path) + os.sep for suite in contexts.suites.values())
    for path in selection.files:
        if path.startswith(folders):
            raise pytest.UsageError(
                f"--packbench-mode={mode}: {os.path.relpath(path)} is a control, which only fixture mode replays; "
                "leave out the path, or the mode"
            )


def _folders(contexts: SessionSuites) -> tuple[str, ...]:
    """Return the folders of cases and of controls, as the beginnings of paths."""
    suites = contexts.suites.values()
    return tuple(str(path) + os.sep for suite in suites for path in (suite.cases_path, suite.controls_path))


def check_cases_exist(contexts: SessionSuites, selection: Selection) -> None:
    """Check that the cases that the command line names exist.

    Raises:
        pytest.UsageError: one of them does not.
    """
    controls = tuple(str(suite.controls_path) + os.sep for suite in contexts.suites.values())
    for path, names in selection.files.items():
        if not path.startswith(_folders(contexts)):
            continue
        file = os.path.relpath(path)
        if not os.path.exists(path):  # noqa: PTH110 - it is text already
            raise pytest.UsageError(f"file not found: {file}")
        for name in sorted(names):
            if find_case(path, name) is None or (not path.endswith(LINES_SUFFIX) and name != file_stem(path)):
                kind = "control" if path.startswith(controls) else "case"
                raise pytest.UsageError(f"not found: {file}::{name}: no {kind} of the file has this id")
