"""Packs: the knowledge of one domain each. The words of a domain stay in its folder."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

    from pytest_packbench.model.authoring import Starter


TARGET_FILES = {
    "hts": "The file of the tariff schedule, relative to rootdir, for targets that look up goods in it.",
    "harmbench": (
        "HarmBench's CSV file, a folder of such files, or a copy of its repository, relative to rootdir: the texts "
        "that cases name by hash."
    ),
    "injecagent_responses": (
        "InjecAgent's attacker_simulated_responses.json, relative to rootdir, for the second step of its cases."
    ),
}
"""Files that targets of the built-in packs may need; `x` is set by ini `packbench_x` or environment `PACKBENCH_X`.

They are listed here and not in their packs because every pytest run registers their ini keys, and imports no pack.
"""

NOT_IMPORTED: ContextVar[list[str] | None] = ContextVar("NOT_IMPORTED", default=None)
"""Takes the functions that rules name, where rules are read without importing them; None where they are imported."""

_CLIENTS = {"openai": "openai", "langchain_openai": "langchain-openai"}
"""The libraries of starters whose target has a model client, and what `pip install` calls them."""


@contextmanager
def functions_into(names: list[str] | None) -> Iterator[None]:
    """Read rules: the functions that they name are not imported, but added to `names`; None imports them."""
    token = NOT_IMPORTED.set(names)
    try:
        yield
    finally:
        NOT_IMPORTED.reset(token)


def read_starter(package: str, *, takes: Mapping[str, str] | None = None) -> Starter:
    """Read a pack's starter from the folders `starter/suite` and `starter/project` in its package.

    A file `x.py.txt` becomes `x.py`: it is written for users, and is no module of this package.

    Each folder in `starter/pipelines` contains a target with a model client of its own; the files in
    `starter/pipelines/suite` replace those of the suite for all of them.
    """
    from importlib.resources import as_file, files

    from pytest_packbench.model.authoring import Starter

    folder = files(package) / "starter"
    if not folder.is_dir():
        # a wheel has the starters of all packs in one file
        from zipfile import Path as ArchivePath

        with as_file(files(__package__) / "_starters.zip") as archive:
            folder = ArchivePath(archive, f"{package.rpartition('.')[2]}/starter/")
    suite, project = (dict(_texts(folder / name, "")) for name in ("suite", "project"))
    pipelines = {}
    if (folder / "pipelines").is_dir():
        changed = suite | dict(_texts(folder / "pipelines" / "suite", ""))
        for client in _names(folder / "pipelines"):
            target = dict(_texts(folder / "pipelines" / client, ""))
            pipelines[client] = _with_target(changed, target, takes or {})
    return Starter(suite=suite, project=project, takes=takes or {}, pipelines=pipelines)


def _names(folder: Traversable) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name != "suite")


def _with_target(suite: Mapping[str, str], target: Mapping[str, str], takes: Mapping[str, str]) -> Starter:
    """Return the starter of a suite with another target: a module, or a program that its extension names."""
    from pytest_packbench.model.authoring import TARGET_MODULE, Starter

    (file,) = target
    rules = suite["suite.yaml"]
    if not file.endswith(".py"):
        rules = rules.replace(f"target: {TARGET_MODULE}:answer", f"target: cmd:node {file}")
    installs = {library: name for library, name in _CLIENTS.items() if f"from {library} import" in target[file]}
    return Starter(suite={**suite, "suite.yaml": rules}, project=target, takes=takes, installs=installs)


def _texts(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            yield from _texts(path, f"{prefix}{path.name}/")
        else:
            name = path.name.removesuffix(".txt") if path.name.endswith(".py.txt") else path.name
            yield prefix + name, path.read_text("utf-8")
