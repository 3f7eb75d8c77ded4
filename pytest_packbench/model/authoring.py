"""What a pack returns to commands about a suite's files: findings of lint rules, drafts of cases, starters.

Runs do without it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pytest_packbench.model.case import CASE_ID, LoadedCase

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.pack import LintOption
    from pytest_packbench.model.recording import Cassette


Severity = Literal["error", "warning"]


SUITE_NAME = "SUITE_NAME"
"""Placeholder in the files of a `Starter` for the name of the suite."""


TARGET_MODULE = "TARGET_MODULE"
"""Placeholder in the files of a `Starter` for the module of the target."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDraft:
    """A case that an importer read; the command validates it before it is written.

    Attributes:
        place: its location in the source, such as `questions.csv:12`.
        case: the whole case as plain JSON.
        content: the end of its id where the source gives none and the id is made of position and content; an existing
            case whose id ends with it is the same case. Empty for an id of the source.
        recording: the case's cassette as plain JSON, without the keys `cassette_version`, `case_id` and `input_sha256`,
            which the command adds; so it does for `request_sha256` of a recorded whole result. None without one.
    """

    place: str
    case: dict[str, Any]
    content: str = ""
    recording: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRemark:
    """A part of the source that is left out although nothing is wrong with it.

    Attributes:
        place: its location in the source.
        message: why it is left out, in one line.
    """

    place: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFlaw(SourceRemark):
    """A part of the source that cannot be converted to a case; the message states what is wrong and was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDoubt(SourceRemark):
    """A part of the source that is imported, although it may not be what its author wrote; the message states why."""


class Importer(ABC):
    """Converts existing data to drafts of cases; the command validates, previews and writes them.

    Attributes:
        name: the word after `packbench import`.
        help: one sentence for `packbench import --help`.
        suite: the suite to write to if `--suite` is omitted; None makes `--suite` required.
        names_suites: whether the source names its suites, so that `--suite` may be omitted.
        unique_inputs: whether two cases with the same input are an error of the source.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    suite: ClassVar[str | None] = None
    names_suites: ClassVar[bool] = False
    unique_inputs: ClassVar[bool] = True

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command: where the data is, and how to read it.

        The names `suite`, `root`, `write`, `force`, `skip_bad`, `kind`, `importer` and `command` are reserved.

        Args:
            parser: the parser of this importer's command.
        """

    @abstractmethod
    def read(self, arguments: argparse.Namespace) -> Iterable[CaseDraft | SourceRemark]:
        """Yield the cases of the source one by one, and its flaws and remarks where they occur.

        Called twice if cases are written; it must yield the same both times.

        Args:
            arguments: the parsed arguments.

        Raises:
            ValueError: the source cannot be read at all; one line.
            OSError: likewise.
        """

    def parts(self, arguments: argparse.Namespace, root: Path) -> Iterable[argparse.Namespace]:  # noqa: ARG002 - for sources of several suites
        """Return the arguments for each suite of the source, with its name as `suite`; the default is one suite.

        Args:
            arguments: the parsed arguments.
            root: the folder of suites that is written to.

        Raises:
            ValueError: the source can't be imported at all; one line.
            OSError: likewise.
        """
        return (arguments,)

    def many(self, arguments: argparse.Namespace) -> str | None:  # noqa: ARG002 - for importers of many cases
        """Return the name of one JSON Lines file for all cases, such as `all.jsonl`; None for one file per case.

        Args:
            arguments: the parsed arguments.
        """
        return None

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:  # noqa: ARG002 - for importers that write more than cases
        """Return other files of the suite, such as `suite.yaml`: path from the suite's folder to content.

        Files that exist already are not overwritten.

        Args:
            arguments: the parsed arguments.
        """
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """The files that `packbench init` writes for a new suite.

    In paths and contents, `SUITE_NAME` is replaced by the name of the suite, `TARGET_MODULE` by the target's module.

    Attributes:
        suite: the files of the suite, path from its folder to content: `suite.yaml`, `README.md` and two cases.
        project: files next to it, path from the root of the project to content: the target.
        needs: what the suite needs to run: import name of a library to the extra of pytest-packbench that installs it.
        takes: likewise, for features of the pack that the starter does not use.
        installs: what else it needs: import name of a library to what `pip install` calls it.
        pipelines: starters whose target calls a model with a client of its own, by the name of the client; they have
            to be recorded before they run offline.
    """

    suite: Mapping[str, str]
    project: Mapping[str, str]
    needs: Mapping[str, str] = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)
    installs: Mapping[str, str] = field(default_factory=dict)
    pipelines: Mapping[str, Starter] = field(default_factory=dict)


class Tools:
    """What commands need of a pack, and no run (`Pack.tools`): the quality of cases, importers, a starter, an audit.

    Attributes:
        dated: whether expected answers can become outdated; lint then requires `notes.date` in each case.
        lint_options: the options of `packbench lint` that the pack reads.
        own_lint_rules: the rules of `lint` for suites that are written for this pack, which
            `packbench lint --profile imported` leaves out.
    """

    dated: bool = True
    lint_options: tuple[LintOption, ...] = ()
    own_lint_rules: frozenset[str] = frozenset()

    def lint(
        self,
        cases: Sequence[FiledCase],  # noqa: ARG002 - for packs with rules of case quality
        rules: Any,  # noqa: ARG002 - likewise
        options: Mapping[str, Path],  # noqa: ARG002 - likewise
    ) -> Iterable[Finding]:
        """Check the quality of the cases by the rules of the domain; the general rules are always checked.

        Args:
            cases: the cases that can be read, each with its file and cassette.
            rules: the content of `suite.yaml`, an instance of `suite_model`.
            options: the files that were passed, by the name of their `LintOption`.

        Returns:
            The findings, in any order.

        Raises:
            ValueError: a file among the options cannot be used; one line.
        """
        return ()

    def importers(self) -> tuple[Importer, ...]:
        """Return the importers that create cases of this pack, each a word after `packbench import`."""
        return ()

    def starter(self) -> Starter | None:
        """Return the suite that `packbench init` writes; None without one."""
        return None

    def also_acceptable(
        self,
        case: Any,  # noqa: ARG002 - for packs whose cases list the accepted answers
        answer: Any,  # noqa: ARG002 - likewise
        rules: Any,  # noqa: ARG002 - likewise
    ) -> Sequence[tuple[tuple[str | int, ...], Any]]:
        """Return what to add to a case's `expected`, so that an answer that a reviewer found right passes, too.

        For `packbench review`, which scores the answer again and refuses a change with which it still fails.

        Args:
            case: the case, an instance of `case_model`.
            answer: the answer, an instance of `answer_model`.
            rules: the content of `suite.yaml`, an instance of `suite_model`.

        Returns:
            The location of each list, as keys from the top of `expected`, and the value to append to it. A missing list
            is created.

        Raises:
            ValueError: it can't be added; in one line why, and what to change by hand.
        """
        raise ValueError("the pack does not add answers to cases; change expected by hand")

    def criteria(self, rules: Any) -> Mapping[str, tuple[str | int, ...]]:  # noqa: ARG002 - for packs whose rules are in suite.yaml
        """Return the criteria by which every answer of the suite is scored, for `packbench audit`.

        Terms that are not among them are known to the audit once they occur.

        Args:
            rules: the content of `suite.yaml`, an instance of `suite_model`.

        Returns:
            The name of the term of each, and the location of the part of a result that it reads, as keys from the
            top; an empty location for the whole result.
        """
        return {}

    def wrong_results(
        self,
        case: Any,  # noqa: ARG002 - for packs with rules about what no result may contain
        result: Any,  # noqa: ARG002 - likewise
        rules: Any,  # noqa: ARG002 - likewise
    ) -> Iterable[tuple[str, Any]]:
        """Return results that a rule of the suite forbids, for `packbench audit`, which breaks results at random too.

        Args:
            case: the case, an instance of `case_model`.
            result: a result with which it passes, as plain JSON; must not be changed.
            rules: the content of `suite.yaml`, an instance of `suite_model`.

        Returns:
            The name of each such rule, and a result that it forbids; None where none is known.
        """
        return ()


MAX_ID = 120
"""The most characters of a converted id."""


_HASH = 8


def case_id(text: str) -> str:
    """Convert a text that isn't empty to a case id, which is also the name of its file.

    Returns:
        The text itself if it is a valid id. Otherwise its ASCII letters and digits, with `_` for the rest; and part of
        its hash if letters were lost or it was too long, so that different texts get different ids.
    """
    if len(text) <= MAX_ID and re.fullmatch(CASE_ID, text):
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    word = re.sub(r"[^A-Za-z0-9_-]+", "_", letters).strip("_-")
    is_lossy = any(char.isalnum() and not char.isascii() for char in letters)
    if word and not is_lossy and len(word) <= MAX_ID:
        return word
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{word[: MAX_ID - _HASH - 1]}_{digest}" if word else f"case_{digest}"
