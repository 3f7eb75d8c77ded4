"""What figures and pages need of a run's entries: a large run is not held whole."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pytest_packbench.model.result import CaseResult


# a page of more rows is read by nobody
MOST_ROWS = 200


class KeptEntries:
    """Entries without what no figure is made of; whole are those that a page shows, the first of each of its tables.

    Args:
        shown: how many entries a page shows in a table at most.
        compared: whether they are compared with those of another run, by the hashes of their cases.

    Attributes:
        entries: in the order in which they were added.
    """

    def __init__(self, shown: int = MOST_ROWS, *, compared: bool = False) -> None:
        self.entries: list[CaseResult] = []
        self._shown = shown
        self._compared = compared
        self._cases: Counter[str] = Counter()
        self._last: dict[str, str] = {}
        self._numbers: dict[float | None, float | None] = {}
        self._tags: dict[Hashable, tuple[str, ...]] = {}
        self._facets: dict[Hashable, dict[str, str]] = {}

    def add(self, entry: CaseResult) -> None:
        """Keep an entry; its record and payload never."""
        is_shown = self._is_shown(entry)
        self.entries.append(
            replace(
                entry,
                record=None,
                payload=None,
                terms=entry.terms if is_shown else (),
                message=entry.message if is_shown else "",
                nodeid=entry.nodeid if is_shown else "",
                answer=entry.answer if is_shown else None,
                verdict=sys.intern(entry.verdict),
                kind=sys.intern(entry.kind),
                case_type=sys.intern(entry.case_type),
                difficulty=sys.intern(entry.difficulty),
                timestamp=entry.timestamp if is_shown else "",
                score=self._numbers.setdefault(entry.score, entry.score),
                threshold=self._numbers.setdefault(entry.threshold, entry.threshold),
                case_sha256=entry.case_sha256 if self._compared else None,
                cassette_sha256=None,
                decision=_interned(entry.decision),
                match_level=_interned(entry.match_level),
                llm_backend=_interned(entry.llm_backend),
                llm_model=_interned(entry.llm_model),
                tags=self._tags.setdefault(entry.tags, entry.tags),
                facets=self._facets.setdefault(tuple(entry.facets.items()), entry.facets),
            )
        )

    def _is_shown(self, entry: CaseResult) -> bool:
        shown = False
        for table in ("", "quarantined" if entry.quarantined else entry.verdict, "stale" if entry.stale else ""):
            # trials of a case are one row
            if self._last.get(table) != entry.case_id:
                self._last[table] = entry.case_id
                self._cases[table] += 1
            shown = shown or self._cases[table] <= self._shown
        return shown


def _interned(text: str | None) -> str | None:
    return None if text is None else sys.intern(text)
