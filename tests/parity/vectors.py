"""Vectors of the original harness: inputs with its outputs, from the folder named by `PACKBENCH_PARITY`."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("PACKBENCH_PARITY", Path(__file__).parents[2].parent / "shared" / "parity"))


def vectors(name: str) -> list[dict[str, Any]]:
    """Return the lines of a file, compressed or not; skip the test if there is no such file."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"no {name} in {FOLDER} (PACKBENCH_PARITY)")
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.split("\n") if line]
