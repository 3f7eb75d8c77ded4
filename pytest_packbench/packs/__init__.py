"""Packs: the knowledge of one domain each. A domain's words stay in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_packbench.engine.protocols.pack import Pack


FILES = {
    "hts": "The tariff schedule's file, from rootdir, for targets that look goods up in it.",
}
"""Files that a pack's target may need: `hts` is given by ini `packbench_hts` or environment `PACKBENCH_HTS`."""


def builtin() -> dict[str, Pack]:
    """Give the packs that come with the package, by name; imported only when asked for."""
    from pytest_packbench.packs.generic.pack import GenericPack
    from pytest_packbench.packs.tariff.pack import TariffPack

    packs: tuple[Pack, ...] = (TariffPack(), GenericPack())
    return {pack.name: pack for pack in packs}
