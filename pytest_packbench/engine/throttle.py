"""How many attempts may be under way: fewer when a server says it is asked too much, more again when it doesn't."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_S = 1.0


class Throttle:
    """Additive increase, multiplicative decrease (Chiu and Jain 1989), as TCP does it.

    Attributes:
        most: attempts under way at most, 1 or more.
        limit: attempts that may be under way now, 1 to `most`.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.limit = most
        self._clock = clock
        self._shrunk = float("-inf")
        self._well = 0

    def overloaded(self) -> None:
        """Halve the limit; replies of one burst count once a second."""
        now = self._clock()
        self._well = 0
        if now - self._shrunk >= _PAUSE_S:
            self._shrunk = now
            self.limit = max(1, self.limit // 2)

    def went_well(self) -> None:
        """Note an attempt without trouble: a whole window of them raises the limit by one."""
        if self.limit == self.most:
            return
        self._well += 1
        if self._well >= self.limit:
            self._well = 0
            self.limit += 1
