"""Keys of results that the answer model of the pack does not have: counted over a run, and told once."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pytest_packbench.model.errors import first_of, pluralize
from pytest_packbench.model.report import KeyCounts, UnknownKeys
from pytest_packbench.model.result import UNKNOWN_KEY, UNREAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.model.result import Result


_INDEX = r"/\d+(?=/)"
_KEPT = 50
_SHOWN = 5
_LONGEST = 80
# a key of one result is told with it
_SEVERAL = 2


class UnknownKeyCounter:
    """Counts the unknown keys of the results of a run, which are remarks beside their scores."""

    def __init__(self) -> None:
        self._results = {True: 0, False: 0}
        self._passed = {True: 0, False: 0}
        self._keys = {True: Counter[str](), False: Counter[str]()}

    def add(self, result: Result) -> None:
        """Count the keys of a result, each once."""
        terms = result.score.terms
        # the remark that counts the others begins with no slash
        found = {
            re.sub(_INDEX, "/*", term.detail)
            for term in terms
            if term.name == UNKNOWN_KEY and term.detail.startswith("/")
        }
        if found:
            is_unreadable = any(term.name in UNREAD for term in terms)
            self._results[is_unreadable] += 1
            self._passed[is_unreadable] += result.score.passed
            self._keys[is_unreadable].update(found)

    def counts(self) -> UnknownKeys | None:
        """Return the counts; None without an unknown key."""
        if not any(self._results.values()):
            return None
        unreadable, ignored = (
            KeyCounts(self._results[each], self._passed[each], _most_frequent(self._keys[each]))
            for each in (True, False)
        )
        return UnknownKeys(unreadable, ignored)


def _most_frequent(keys: Counter[str]) -> dict[str, int]:
    """Return the most frequent keys; those that are as frequent in the order of the alphabet."""
    return dict(sorted(keys.items(), key=lambda item: (-item[1], item[0]))[:_KEPT])


def unknown_key_sentences(found: UnknownKeys | None, pack: str) -> Iterator[str]:
    """Yield what a reader of a run has to know of unknown keys, and the line that mends it.

    Args:
        found: the keys; None without any.
        pack: the name of the pack.
    """
    if found is None:
        return
    shared = {key: number for key, number in found.unreadable.keys.items() if number >= _SEVERAL}
    if shared:
        yield (
            f"{pluralize(found.unreadable.results, 'result')} can't be read and have keys that the answer does not "
            f"have: {_named(shared)}. Put them into a key of the answer for whatever else a pipeline reports, such as "
            "notes, or set `unknown_keys: ignore` in the suite.yaml of a suite of your own; "
            f"packbench schema result --pack {pack} shows the answer."
        )
    if found.ignored.results:
        yield (
            f"The suite has `unknown_keys: ignore`: of {pluralize(found.ignored.results, 'result')}, "
            f"{found.ignored.passed} passed, keys were left unread, in which a claim may hide: "
            f"{_named(found.ignored.keys)}."
        )


def _named(keys: dict[str, int]) -> str:
    """Return keys with in how many results each is, the most frequent first."""
    shortened = [
        f"{key if len(key) <= _LONGEST else key[: _LONGEST - 1] + '…'} ({number:,})" for key, number in keys.items()
    ]
    return ", ".join(first_of(shortened, _SHOWN))
