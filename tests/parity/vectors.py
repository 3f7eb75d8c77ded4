"""Vectors of the original harness: inputs with its outputs, from the folder named by `PACKBENCH_PARITY`."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("PACKBENCH_PARITY", Path(__file__).parents[2].parent / "shared" / "parity"))


def vectors(name: str) -> list[Any]:
    """Return a parameter for each line of a file, compressed or not; a skipped one if there is no such file."""
    path = FOLDER / name
    if not path.is_file():
        reason = f"no {name} in {FOLDER} (PACKBENCH_PARITY)"
        return [pytest.param({}, id="absent", marks=pytest.mark.skip(reason=reason))]
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    rows = map(json.loads, filter(None, text.split("\n")))
    return [pytest.param(row, id=row["id"] if "id" in row else f"vector {row['n']}") for row in rows]
