"""Packs: the knowledge of one domain each. A domain's words stay in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_packbench.engine.protocols.pack import Pack


def builtin() -> dict[str, Pack]:
    """Give the packs that come with the package, by name; imported only when asked for."""
    from pytest_packbench.packs.tariff.pack import TariffPack

    packs: tuple[Pack, ...] = (TariffPack(),)
    return {pack.name: pack for pack in packs}
