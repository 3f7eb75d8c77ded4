"""A starter: the small suite that `packbench init` writes, brought by its pack as real files."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

SUITE_NAME = "SUITE_NAME"
TARGET_MODULE = "TARGET_MODULE"
_FOLDER = "starter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """A suite to begin with.

    In names and texts `SUITE_NAME` stands for the name of the suite, `TARGET_MODULE` for the module of its target.

    Attributes:
        suite: the files of the suite, by name from its folder: `suite.yaml`, `README.md`, two cases.
        project: the files beside it, by name from the project's root: the target.
        needs: what it can't run without: a library's name in Python, and the extra of this package that installs it.
        takes: likewise, for what its pack offers beyond the starter.
    """

    suite: Mapping[str, str]
    project: Mapping[str, str]
    needs: Mapping[str, str] = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)


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
