"""Packs: the knowledge of one domain each. The words of a domain stay in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

    from pytest_packbench.model.authoring import Starter


TARGET_FILES = {
    "hts": "The file of the tariff schedule, relative to rootdir, for targets that look up goods in it.",
    "harmbench": (
        "HarmBench's CSV file, or a folder of such files, relative to rootdir: the texts that cases name by hash."
    ),
    "injecagent_responses": (
        "InjecAgent's attacker_simulated_responses.json, relative to rootdir, for the second step of its cases."
    ),
}
"""Files that targets of the built-in packs may need; `x` is set by ini `packbench_x` or environment `PACKBENCH_X`.

They are listed here and not in their packs because every pytest run registers their ini keys, and imports no pack.
"""


def read_starter(package: str, *, takes: Mapping[str, str] | None = None) -> Starter:
    """Read a pack's starter from the folders `starter/suite` and `starter/project` in its package.

    A file `x.py.txt` becomes `x.py`: it is written for users, and is no module of this package.
    """
    from importlib.resources import files

    from pytest_packbench.model.authoring import Starter

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
