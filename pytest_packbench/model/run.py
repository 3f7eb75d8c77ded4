"""The run: what is true of all its entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

RUN_DOCUMENT_VERSION = 1
Mode = Literal["fixture", "live", "record"]
"""How model calls are answered: from recordings, by a model, or by a model whose answers are recorded."""
MODES: tuple[Mode, ...] = get_args(Mode)
Origin = Literal["authored", "recorded"]
"""Who wrote a recording: a person, or the program from a model's answers."""
OWN_TEST = "test:"
"""How `target` begins for a test of the user's own; a run of several lists them, joined by commas."""
CLUSTER = "cluster"
"""The setting that names the facet whose values cases share by design, so that they are not independent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One suite's share of a pytest session.

    Attributes:
        run_id: the session's ULID, the same for all its suites.
        suite: the suite's name.
        description: the suite's own line about itself.
        pack: the pack's name.
        pack_version: the version of its rules.
        suite_sha256: hash of the suite's rules.
        bundled: whether the suite comes with the installed package.
        mode: `fixture`, `live` or `record`.
        target: how the target is called; `reference` for the pack's own.
        backend: who was asked in live mode; None in fixture mode.
        model: which model was asked in live mode; None in fixture mode.
        started_at: `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        finished_at: the same form.
        partial: why the run is not complete (`interrupted`, `stopped early`, ...); empty when it is.
        versions: name to version of what could change a result.
        settings: options that could change a result, and what the run used (`spent`), plain JSON.
        findings: what only the pack can say of the run, a line each.
    """

    run_id: str
    suite: str
    description: str
    pack: str
    pack_version: str
    suite_sha256: str
    bundled: bool
    mode: str
    target: str
    started_at: str
    finished_at: str
    backend: str | None = None
    model: str | None = None
    partial: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
