"""Packs: the knowledge of one domain each. A domain's words stay in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

    from pytest_packbench.model.pack import Starter

FILES = {
    "hts": "The tariff schedule's file, from rootdir, for targets that look goods up in it.",
    "harmbench": "HarmBench's CSV file, or a folder of such files, from rootdir: the texts that cases name by hash.",
    "injecagent_responses": "InjecAgent's attacker_simulated_responses.json, from rootdir, for its second step.",
}
"""Files that a pack's target may need: `hts` is given by ini `packbench_hts` or environment `PACKBENCH_HTS`."""


def read_starter(package: str, *, takes: Mapping[str, str] | None = None) -> Starter:
    """Read a pack's starter from the folders `starter/suite` and `starter/project` of its package.

    Args:
        package: the pack's package, dotted.
        takes: see `Starter`.

    Returns:
        The starter. A file `x.py.txt` is given as `x.py`: what is written for the user is no module of ours.
    """
    from importlib.resources import files

    from pytest_packbench.model.pack import Starter

    folder = files(package) / "starter"
    suite, project = (dict(_texts(folder / name, "")) for name in ("suite", "project"))
    return Starter(suite=suite, project=project, takes=takes or {})


def _texts(folder: Traversable, before: str) -> Iterator[tuple[str, str]]:
    for place in sorted(folder.iterdir(), key=lambda one: one.name):
        if place.is_dir():
            yield from _texts(place, f"{before}{place.name}/")
        else:
            name = place.name.removesuffix(".txt") if place.name.endswith(".py.txt") else place.name
            yield before + name, place.read_text("utf-8")
