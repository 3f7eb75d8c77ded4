"""Cassettes as JSON, for tests."""

from __future__ import annotations

from typing import Any

from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.recording import CASSETTE_VERSION


def authored_cassette(
    case_id: str, case_input: Any, exchanges: list[dict[str, Any]], /, *, pack: str = "echo", **changes: Any
) -> dict[str, Any]:
    """Return a cassette written by hand for a case with this input; `changes` replaces or adds keys."""
    return {
        "cassette_version": CASSETTE_VERSION,
        "case_id": case_id,
        "input_sha256": canonical_sha256(case_input),
        "origin": "authored",
        "llm_backend": "stub",
        "llm_model": "authored",
        "conditions": {"target": {"kind": "reference", "address": "pack"}, "pack": {"name": pack}},
        "exchanges": exchanges,
        **changes,
    }
