"""What pytest loads when the package is installed: the pack, by the hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_packbench import Pack


# optional: pytest knows the hook only where pytest-packbench is switched on
@pytest.hookimpl(optionalhook=True)
def pytest_packbench_packs() -> list[Pack]:
    """Give the pack; imported only where a suite was asked for."""
    from packbench_units.pack import UnitsPack

    return [UnitsPack()]
