"""An importer: a kind of `packbench import`, brought by the pack whose cases it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A case that may be written, not yet checked.

    Attributes:
        place: where it was read, such as `questions.csv:12`.
        case: the whole case as plain JSON.
    """

    place: str
    case: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something in the source that makes no case.

    Attributes:
        place: where it stands, such as `questions.csv:12`.
        message: what is wrong and what was expected, in one line.
    """

    place: str
    message: str


class Importer(ABC):
    """Turns what people have into drafts of cases; the command checks, shows and writes them.

    Attributes:
        name: the word after `packbench import`.
        help: one sentence for `packbench import --help`.
        suite: the suite where `--suite` isn't given; None: it has to be.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    suite: ClassVar[str | None] = None

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare where the cases come from and how they are read.

        `suite`, `root`, `write`, `force`, `skip_bad`, `kind`, `importer` and `command` are the command's own words.
        """

    @abstractmethod
    def read(self, arguments: argparse.Namespace) -> Iterable[Draft | Flaw]:
        """Give the cases of the source one by one, and what is wrong with it.

        Asked twice where cases are written: it gives the same both times.

        Raises:
            ValueError: the source can't be read at all; one line.
            OSError: likewise.
        """

    def many(self, arguments: argparse.Namespace) -> str | None:  # noqa: ARG002 - a default that an importer of many cases overrides
        """Name the file of many cases to write, a case a line, such as `all.jsonl`; None for a file each."""
        return None

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:  # noqa: ARG002 - a default that an importer with files of its own overrides
        """Give other files of the suite by their name from its folder, such as `suite.yaml`.

        They are written where the suite has none of that name.
        """
        return {}
