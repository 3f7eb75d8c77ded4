"""What lint looks at and what it finds: one thing about a suite's files that a machine can see is not good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.cassette import Cassette


Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to mend.

    Attributes:
        file: the file, from the suite's folder.
        pointer: JSON pointer of the place; empty for the whole document.
        rule: the rule's name.
        message: what stands there and what to do, in one line.
        severity: an `error` fails the lint, a `warning` doesn't.
    """

    file: str
    pointer: str
    rule: str
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        """Say it in one line."""
        return " ".join(f"{self.file}: {self.pointer or '/'}: {self.rule}: {self.message}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledCase:
    """A case with where it stands and what was recorded for it.

    Attributes:
        file: the case file, from the suite's folder.
        folder: the name of the folder that holds the file.
        loaded: the case.
        cassette: its cassette; None without one that can be read.
        cassette_file: where its cassette stands or would stand, from the suite's folder.
    """

    file: str
    folder: str
    loaded: LoadedCase
    cassette: Cassette | None
    cassette_file: str
