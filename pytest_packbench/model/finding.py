"""The input and output of lint rules: cases with their files, and findings about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.cassette import Cassette


Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem that a lint rule found.

    Attributes:
        file: the path of the file, relative to the suite's folder.
        pointer: JSON pointer of the location; empty for the whole document.
        rule: the name of the rule.
        message: what is wrong and what to do, in one line.
        severity: an `error` makes `packbench lint` fail, a `warning` does not.
    """

    file: str
    pointer: str
    rule: str
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        """Return the finding in one line."""
        return " ".join(f"{self.file}: {self.pointer or '/'}: {self.rule}: {self.message}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledCase:
    """A case with its file and its recording.

    Attributes:
        file: the path of the case file, relative to the suite's folder.
        folder: the name of the folder that contains the file.
        loaded: the case.
        cassette: its cassette; None without a readable one.
        cassette_file: the path of its cassette, which may not exist, relative to the suite's folder.
    """

    file: str
    folder: str
    loaded: LoadedCase
    cassette: Cassette | None
    cassette_file: str
