"""The pytest plugin of this package: registers the pack with a hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_packbench import Pack


# optional: pytest does not know the hook if pytest-packbench is disabled
@pytest.hookimpl(optionalhook=True)
def pytest_packbench_packs() -> list[Pack]:
    """Return the pack; imported only if a suite was requested."""
    from packbench_units.pack import UnitsPack

    return [UnitsPack()]
