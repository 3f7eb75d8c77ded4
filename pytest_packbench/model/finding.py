"""A finding of lint: one thing about a suite's files that a machine can see is not good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.case import LoadedCase


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


class RecordedExchange(Protocol):
    """What lint needs of one exchange of a cassette."""

    @property
    def role(self) -> str:
        """The step of the pipeline that asked."""

    @property
    def answer(self) -> Any:
        """The JSON value or text answered."""


class Recorded(Protocol):
    """What lint needs of a cassette; the engine has the model."""

    @property
    def case_id(self) -> str:
        """The case that it belongs to."""

    @property
    def input_sha256(self) -> str:
        """Hash of the input that was answered."""

    @property
    def exchanges(self) -> Sequence[RecordedExchange]:
        """The calls in order."""


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
    cassette: Recorded | None
    cassette_file: str
