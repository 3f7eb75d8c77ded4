"""Which suites were asked for, by name or by path. Looks at folders only; reads no suite."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pytest

# by the module for SUITES: tests put another folder there
from pytest_packbench import plugin
from pytest_packbench.cases.files import MANY, case_paths, count_cases, count_in, find_in, is_numbered, stem_of
from pytest_packbench.model.shard import shard_of
from pytest_packbench.plugin import ASKED, setting_of
from pytest_packbench.pytest_plugin.suites import known_packs, read_suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.model.shard import Shard
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.suites import SessionSuites


_CONFIG = "suite.yaml"
_CASE_FILES = (".json", ".jsonl")


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


def suite_names(value: str | Iterable[str]) -> list[str]:
    """Split names that came repeated or with commas, each once, in order."""
    parts = [value] if isinstance(value, str) else list(value)
    names = [name.strip() for part in parts for name in part.split(",")]
    return list(dict.fromkeys(name for name in names if name))


def own_root(config: pytest.Config, namespace: object) -> Path:
    """Give the folder of the project's own suites, absolute, whether it is there or not."""
    return Path(os.path.normpath(config.rootpath / setting_of("root", namespace, config.getini)[0]))


def suites_root(config: pytest.Config, namespace: object) -> tuple[Path, bool]:
    """Give the folder of suites, and whether it is the bundled one.

    The suites in the wheel are looked at only where the project's folder does not exist at all.
    """
    own = own_root(config, namespace)
    return (own, False) if own.is_dir() else (plugin.SUITES, True)


def suites_under(root: Path) -> dict[str, Path]:
    """Give the suites of a root, name to folder, sorted by name; a suite is a folder with a `suite.yaml`."""
    if not root.is_dir():
        return {}
    return {path.name: path for path in sorted(root.iterdir()) if (path / _CONFIG).is_file()}


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
    known = suites_under(root)
    for name in names:
        if name not in known:
            raise pytest.UsageError(f"--packbench-suite: {unknown(name, known, own_root(config, namespace))}")
    selected = {name for path, _ in under for name in _suites_at(Path(path), root, known)}
    folders = {name: path for name, path in known.items() if name in selected or name in names}
    files, single = _files(under)
    config.stash[ASKED] = Asked(
        root=root, bundled=bundled, named=tuple(names), folders=folders, files=files, single=single
    )
    args.extend(str(known[name]) for name in names if name not in selected)


def _under(root: Path, here: Path, arguments: list[str]) -> list[tuple[str, str]]:
    """Give the absolute paths among the arguments that lie under the root, each with what stands behind `::`."""
    parts = [argument.partition("::") for argument in arguments]
    given = [(os.path.normpath(here / path), name) for path, _, name in parts]
    return [(path, name) for path, name in given if (path + os.sep).startswith(str(root) + os.sep)]


def _files(under: list[tuple[str, str]]) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    cases: dict[str, set[str]] = {}
    for path, name in under:
        if path.endswith(_CASE_FILES):
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


def unknown(name: str, known: dict[str, Path], own: Path) -> str:
    """Say that no suite has a name, and which ones there are.

    Args:
        name: what was asked for.
        known: the suites that can be asked for, name to folder.
        own: the folder of the project's own suites, absolute; where it isn't there, `known` came with the package.
    """
    from pytest_packbench.cases.files import without_rules

    close = get_close_matches(name, known, n=1)
    guess = f' (did you mean "{close[0]}"?)' if close else ""
    listed = ", ".join(known) if known else "none"
    shown_root = os.path.relpath(own)
    wrong = f'no suite is called "{name}"{guess}'
    if not own.is_dir():
        where = f"the folder {shown_root} does not exist; set packbench_root, or start pytest where it lies"
        return f"{wrong}: {where}; with the package: {listed}"
    # a name is no path: `../x` is no suite, whatever lies there
    bare = without_rules(own / name) if name == Path(name).name else ""
    here = f"{bare or wrong}; known under {shown_root}: {listed}"
    if not (plugin.SUITES / name / _CONFIG).is_file():
        return here
    return f"{here}; the one that comes with the package is used only in a folder without {shown_root}"


def show_suites(config: pytest.Config) -> int:
    """Print the suites and give the exit code: 0, or 4 where a suite's rules can't be read."""
    root, bundled = suites_root(config, config.option)
    packs = known_packs(config)
    status = pytest.ExitCode.OK
    found = suites_under(root)
    lines = [f"suites under {os.path.relpath(root)}{' (bundled)' if bundled else ''}: {len(found) or 'none'}"]
    for name, path in found.items():
        try:
            suite = read_suite(config, name, path, packs, bundled=bundled)
            about = f"pack {suite.config.pack}: {suite.config.description}"
        except pytest.UsageError as error:
            about, status = f"can't be used: {error}", pytest.ExitCode.USAGE_ERROR
        lines.append(f"  {name}: {_counted(path / 'cases')}; {about}")
    _print("\n".join(lines))
    return int(status)


def _counted(folder: Path) -> str:
    counts: dict[str, int] = {}
    for path in case_paths(folder):
        cases = count_in(path)
        if cases:
            kind = os.path.relpath(os.path.dirname(path), folder)  # noqa: PTH120 - text, as it comes
            counts[kind] = counts.get(kind, 0) + cases
    total = sum(counts.values())
    listed = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return f"{total} case{'' if total == 1 else 's'}{f' ({listed})' if listed else ''}"


def _print(text: str) -> None:
    import sys

    sys.stdout.write(text + "\n")


def sizes(suite: Suite, shard: Shard | None) -> tuple[int, int]:
    """Count a suite's cases, all of them and those of the shard."""
    present = count_cases(suite.cases_path)
    return present, present if shard is None else count_cases(suite.cases_path, shard)


def check_asked(benches: SessionSuites, asked: Asked) -> None:
    """Check that the cases that the command line names are in the shard.

    Raises:
        pytest.UsageError: one of them is in another.
    """
    shard = benches.settings.shard
    if shard is None:
        return
    folders = tuple(str(suite.cases_path) + os.sep for suite in benches.suites.values())
    for path, given in asked.files.items():
        if not path.startswith(folders):
            continue
        for name in sorted(given or ([] if path.endswith(MANY) else [stem_of(path)])):
            own = shard_of(name, shard.count)
            if own != shard.number and not is_numbered(name):
                raise pytest.UsageError(
                    f"--packbench-shard: {name} is in shard {own}/{shard.count}, not in {shard}; "
                    "run a case by its path without a shard"
                )


def check_there(benches: SessionSuites, asked: Asked) -> None:
    """Check that the cases that the command line names are there.

    Raises:
        pytest.UsageError: one of them is not.
    """
    folders = tuple(str(suite.cases_path) + os.sep for suite in benches.suites.values())
    for path, names in asked.files.items():
        if not path.startswith(folders):
            continue
        shown = os.path.relpath(path)
        if not os.path.exists(path):  # noqa: PTH110 - as text it came
            raise pytest.UsageError(f"file not found: {shown}")
        for name in sorted(names):
            if find_in(path, name) is None or (not path.endswith(MANY) and name != stem_of(path)):
                raise pytest.UsageError(f"not found: {shown}::{name}: no case of the file has this id")
