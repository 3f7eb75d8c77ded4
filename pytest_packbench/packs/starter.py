"""A starter: the small suite that `packbench init` writes, brought by its pack as real files."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from pytest_packbench.model.pack import Starter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable


_FOLDER = "starter"


def read_starter(
    package: str, *, needs: Mapping[str, str] | None = None, takes: Mapping[str, str] | None = None
) -> Starter:
    """Read a pack's starter from the folders `starter/suite` and `starter/project` of its package.

    Args:
        package: the pack's package, dotted.
        needs: see `Starter`.
        takes: see `Starter`.

    Returns:
        The starter. A file `x.py.txt` is given as `x.py`: what is written for the user is no module of ours.
    """
    folder = files(package) / _FOLDER
    return Starter(
        suite=dict(_texts(folder / "suite", "")),
        project=dict(_texts(folder / "project", "")),
        needs=needs or {},
        takes=takes or {},
    )


def _texts(folder: Traversable, before: str) -> Iterator[tuple[str, str]]:
    for place in sorted(folder.iterdir(), key=lambda one: one.name):
        if place.is_dir():
            yield from _texts(place, f"{before}{place.name}/")
        else:
            name = place.name.removesuffix(".txt") if place.name.endswith(".py.txt") else place.name
            yield before + name, place.read_text("utf-8")
