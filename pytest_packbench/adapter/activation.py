"""Which suites were asked for, by name or by path. Looks at folders only; reads no suite."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

import pytest

from pytest_packbench.plugin import Asked, bundled_root

_CONFIG = "suite.yaml"
_CASE_FILES = (".json", ".jsonl")


def suites_under(root: Path) -> dict[str, Path]:
    """Give the suites of a root, name to folder, sorted by name; a suite is a folder with a `suite.yaml`."""
    if not root.is_dir():
        return {}
    return {path.name: path for path in sorted(root.iterdir()) if (path / _CONFIG).is_file()}


def activate(*, root: Path, bundled: bool, names: list[str], under: list[tuple[str, str]]) -> tuple[Asked, list[str]]:
    """Find the suites that are asked for.

    Args:
        root: the folder of suites.
        bundled: whether it is the one in the wheel.
        names: suites asked for by name.
        under: absolute paths among the arguments that lie under the root, each with what stands behind `::`.

    Returns:
        What was asked for, and the folders to add to pytest's arguments: a suite that some argument
        already selects from is not added whole.

    Raises:
        pytest.UsageError: no suite has such a name.
    """
    known = suites_under(root)
    for name in names:
        if name not in known:
            raise pytest.UsageError(f"--packbench-suite: {unknown(name, known, root)}")
    selected = {name for path, _ in under for name in _suites_at(Path(path), root, known)}
    folders = {name: path for name, path in known.items() if name in selected or name in names}
    more = [str(known[name]) for name in names if name not in selected]
    files, single = _files(under)
    return Asked(root=root, bundled=bundled, named=tuple(names), folders=folders, files=files, single=single), more


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


def unknown(name: str, known: dict[str, Path], root: Path) -> str:
    """Say that no suite has a name, and which ones there are."""
    close = get_close_matches(name, known, n=1)
    guess = f' (did you mean "{close[0]}"?)' if close else ""
    listed = ", ".join(known) if known else "none"
    shown_root = os.path.relpath(root)
    here = f'no suite is called "{name}"{guess}; known under {shown_root}: {listed}'
    if not (bundled_root() / name / _CONFIG).is_file():
        return here
    return f"{here}; the one that comes with the package is used only in a folder without {shown_root}"
