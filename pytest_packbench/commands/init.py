"""`packbench init`: a suite of one's own that runs at once."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import ROOT, add_root

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.model.pack import Starter
    from pytest_packbench.packs.registry import Packs

_PYTEST_GOES_BY = ("pytest.toml", "pytest.ini", "pyproject.toml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from pytest_packbench.packs.registry import DEFAULT_PACK

    parser.add_argument("name", metavar="NAME", help="the new suite: lower-case letters, digits, _ and -")
    about = f"the pack of its cases, or one that is not installed, as MODULE:ATTR (default {DEFAULT_PACK})"
    parser.add_argument("--pack", default=DEFAULT_PACK, metavar="PACK", help=about)
    add_root(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the starter of a pack, and say what was written and what to do next."""
    name, root = suite_name(arguments.name), arguments.root
    starter = _starter(arguments.pack)
    made = _files(starter, name, root / name)
    _refuse_existing(root / name, made)
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # never over a file that came into being in between
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    sys.stdout.write(
        "\n".join([*(f"wrote {path.as_posix()}" for path in made), "", *_next(starter, name, root)]) + "\n"
    )
    return FINE


def suite_name(name: str) -> str:
    """Give the name of a suite back.

    Raises:
        UsageError: it can't name a suite.
    """
    from pydantic import TypeAdapter, ValidationError

    from pytest_packbench.model.case import Name
    from pytest_packbench.model.errors import format_value

    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        better = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:80]
        guess = f", such as {better}" if better else ""
        wanted = "expected at most 80 lower-case letters, digits, _ and -, the first a letter or a digit"
        raise UsageError(f"{format_value(name)} can't name a suite: {wanted}{guess}") from None
    return name


def _starter(name: str) -> Starter:
    from pytest_packbench.packs.registry import Packs, import_pack

    packs = Packs()
    if ":" not in name and name not in packs:
        raise UsageError(f'no pack is called "{name}"; packs that bring a suite to begin with: {_beginners(packs)}')
    starter = (import_pack(name) if ":" in name else packs[name]).starter()
    if starter is None:
        raise UsageError(f'the pack "{name}" brings no suite to begin with; these do: {_beginners(packs)}')
    return starter


def _beginners(packs: Packs) -> str:
    from pytest_packbench.packs.registry import PackError

    found = []
    for name in packs:
        # a pack that can't be loaded is said where it is asked for
        with suppress(PackError):
            found += [name] if packs[name].starter() is not None else []
    return ", ".join(sorted(found)) or "none"


def _files(starter: Starter, name: str, folder: Path) -> dict[Path, str]:
    from pytest_packbench.model.pack import SUITE_NAME, TARGET_MODULE

    # a module's name has no hyphen and begins with no digit
    words = {SUITE_NAME: name, TARGET_MODULE: f"target_{name.replace('-', '_')}"}
    suite = {folder / _filled(key, words): _filled(text, words) for key, text in starter.suite.items()}
    return suite | {Path(_filled(key, words)): _filled(text, words) for key, text in starter.project.items()}


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, meant in words.items():
        text = text.replace(word, meant)
    return text


def _refuse_existing(folder: Path, made: Iterable[Path]) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder.as_posix()} exists already; nothing was written; choose another name, or remove it")
    there = [path.as_posix() for path in made if path.exists() or path.is_symlink()]
    if there:
        raise UsageError(f"{', '.join(there)} exists already; nothing was written; choose another name, or remove it")


def _next(starter: Starter, name: str, root: Path) -> Iterator[str]:
    elsewhere = root != ROOT
    yield from (f'first:  pip install "pytest-packbench[{extra}]"' for extra in _missing(starter.needs))
    yield f"run it: pytest {f'-o packbench_root={root.as_posix()} ' if elsewhere else ''}--packbench-suite={name}"
    yield f"check:  packbench lint {name}{f' --root {root.as_posix()}' if elsewhere else ''}"
    yield f"One case passes, one fails, and the output says why. What then: {(root / name / 'README.md').as_posix()}"
    above = _root_above(Path.cwd())
    if above is not None:
        yield f"Note: {above} may make pytest take its folder for the project's root; if it does, begin there instead."
    for extra in _missing(starter.takes):
        yield f'Some rules of this pack need more: pip install "pytest-packbench[{extra}]"'


def _root_above(folder: Path) -> Path | None:
    """Give the nearest file above that pytest may go by, None where the folder has one itself or there is none."""
    for place in (folder, *folder.parents):
        found = next((place / name for name in _PYTEST_GOES_BY if (place / name).is_file()), None)
        if found is not None:
            return None if place == folder else found
    return None


def _missing(libraries: Mapping[str, str]) -> list[str]:
    """Give the extras of the libraries that aren't installed, each once."""
    absent = (extra for library, extra in libraries.items() if find_spec(library.partition(".")[0]) is None)
    return list(dict.fromkeys(absent))
