"""Why a folder that was asked for is no suite. Looks at names of files only."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pytest_packbench.cases.suite import CONFIG_NAME

if TYPE_CHECKING:
    from pathlib import Path


def without_rules(folder: Path) -> str:
    """Say that a folder has no `suite.yaml`, and what to do.

    Args:
        folder: the folder of which a suite was expected, absolute or from the current one.

    Returns:
        One line; empty where there is no such folder.
    """
    if not folder.is_dir():
        return ""
    names = [path.name for path in folder.iterdir() if path.is_file() and path.name.isprintable()]
    near = get_close_matches(CONFIG_NAME, names, n=1, cutoff=0.8)
    advice = f"rename {near[0]} in it" if near else "a suite's rules stand in that file"
    return f"{os.path.relpath(folder)} has no {CONFIG_NAME}; {advice}"
