"""Packs: the knowledge of one domain each. The words of a domain stay in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

    from pytest_packbench.model.pack import Starter


def target_files() -> dict[str, str]:
    """Return the files that targets of the built-in packs may need, with a description each.

    Each pack declares its own as `FILES` in the `__init__` of its folder, which imports nothing else of the pack: every
    pytest run calls this, to register their ini keys. The file `x` is set by ini `packbench_x` or by the environment
    variable `PACKBENCH_X`.
    """
    from pytest_packbench.packs import agent_safety, tariff

    return {**tariff.FILES, **agent_safety.FILES}


def read_starter(package: str, *, takes: Mapping[str, str] | None = None) -> Starter:
    """Read a pack's starter from the folders `starter/suite` and `starter/project` in its package.

    A file `x.py.txt` becomes `x.py`: it is written for users, and is no module of this package.
    """
    from importlib.resources import files

    from pytest_packbench.model.pack import Starter

    folder = files(package) / "starter"
    suite, project = (dict(_texts(folder / name, "")) for name in ("suite", "project"))
    return Starter(suite=suite, project=project, takes=takes or {})


def _texts(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            yield from _texts(path, f"{prefix}{path.name}/")
        else:
            name = path.name.removesuffix(".txt") if path.name.endswith(".py.txt") else path.name
            yield prefix + name, path.read_text("utf-8")
