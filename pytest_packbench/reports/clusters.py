"""Cases that share a part by design, such as one attack that is paired with many tasks: they are not independent.

What a run's pack calls that part stands in the run's settings; each case's own value is one of its facets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.records.run import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.run import Run


def facet_of(run: Run) -> str:
    """Give the facet that a run's cases share by design; empty where none is named."""
    named = run.settings.get(CLUSTER)
    return named if isinstance(named, str) else ""


def cluster_of(entry: Entry, facet: str) -> str:
    """Give what an entry's case shares with others; the case itself where it shares nothing."""
    shared = entry.facets.get(facet) if facet else None
    # no case's name holds a line end
    return f"\n{entry.test_id}" if shared is None else shared


def count_clusters(entries: Iterable[Entry], facet: str) -> tuple[int, int]:
    """Count judged cases, and how many would be independent.

    Args:
        entries: one a case.
        facet: what cases share; empty for nothing.

    Returns:
        Judged cases and their clusters, at most as many; the same number twice where no two cases share anything.
    """
    found = [cluster_of(entry, facet) for entry in entries if entry.counted]
    return len(found), len(set(found)) if facet else len(found)


def name_of(facet: str, *, many: bool = True) -> str:
    """Write a facet as words: `injection tasks`."""
    return facet.replace("_", " ") + ("s" if many else "")


def remark(cases: int, clusters: int, facet: str) -> str:
    """Say that cases are not independent; empty where they are.

    Args:
        cases: judged cases, 0 or more.
        clusters: how many of them would be independent, 0 to `cases`.
        facet: what they share.
    """
    if clusters >= cases:
        return ""
    shared = name_of(facet, many=clusters != 1)
    return f"{cases} cases share {clusters} {shared}: not independent, so less is certain than it seems"
