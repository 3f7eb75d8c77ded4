"""A part of a suite's cases: by the hash of the id, so that a case stays in its part when others are added."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_WRITTEN = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts of the same size, about.

    Attributes:
        number: which one, from 1.
        count: how many there are.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `I/N`.

        Raises:
            ValueError: it is none with I from 1 to N.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found[1]) > int(found[2]):
            raise ValueError(f"got {text!r}; expected I/N with I from 1 to N, such as 1/3")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        """Write it as `I/N`."""
        return f"{self.number}/{self.count}"

    def __contains__(self, name: str) -> bool:
        """Whether the case of this name is in it."""
        return shard_of(name, self.count) == self.number


def shard_of(name: str, count: int) -> int:
    """Tell which of `count` parts a case is in, from 1; the name is its id, or what stands in for it."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") % count + 1
