"""A pack: the knowledge of one domain, and what it gives. Subclass it, give it to `pytest_packbench_packs`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_packbench.model.case import Case
from pytest_packbench.model.record import EvalDecision
from pytest_packbench.model.request import VerifyRequest
from pytest_packbench.model.suite import SuiteConfig

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.finding import FiledCase, Finding
    from pytest_packbench.model.outcome import Outcome
    from pytest_packbench.model.request import Target
    from pytest_packbench.model.score import Score


Decision = EvalDecision
"""What a target did, or should have done, in the words of the wire record."""
SUITE_NAME = "SUITE_NAME"
TARGET_MODULE = "TARGET_MODULE"
"""What stands in the files of a `Starter` for the name of the suite and for the module of its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """What the wire record says of a case in its own words (spec, `eval_record.rs`).

    Attributes:
        attack_category: the bucket of the report.
        expected: the decision that the case asks for.
        agent_decision: the decision that the target took.
        utility: whether the user's own task was done beside it; None where that is no question.
        valid: whether the answer could be read as the benchmark wants it; None where that is no question.
        judge: who ruled, where a model or a rule of words did; rates of different judges are never mixed.
        test_suite: the record's `test_suite`, where a benchmark has a name of its own; None for the suite's.
        extra: what else the record says, plain JSON, beside our own keys under `packbench`.
    """

    attack_category: str
    expected: Decision
    agent_decision: Decision
    utility: bool | None = None
    valid: bool | None = None
    judge: str | None = None
    test_suite: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row of a failing case's explanation: what was expected beside what came."""

    what: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOption:
    """A file that a pack's lint can make use of.

    Attributes:
        name: `data` stands for `packbench lint --data FILE`.
        help: one sentence for `packbench lint --help`.
    """

    name: str
    help: str


class Pack(ABC):
    """The knowledge of one domain: schema, reading, scoring, reference target.

    Attributes:
        name: the word in `suite.yaml` and in a case's `pack_id`.
        version: changes whenever the same result could score otherwise.
        case_model: the strict model of its cases.
        suite_model: the strict model of its `suite.yaml`.
        depths: the depths of agreement that reports count, ascending; empty: those that occur.
        dated: whether expected answers can go stale, so that lint asks each case for the day on which it was true.
        lint_options: the files that its lint can make use of.
        scripted: the scripted models that its target plays itself, for `--packbench-backend=stub`.
        cluster: the facet whose values cases share by design, such as a task that is paired with many others: those
            cases are not independent, and statistics say so. Empty where cases are.
        test_suites: suites of the wire format whose records, where they name no pack, are measured as this pack's.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    case_model: type[Case] = Case
    suite_model: ClassVar[type[SuiteConfig]] = SuiteConfig
    dated: ClassVar[bool] = True
    lint_options: ClassVar[tuple[LintOption, ...]] = ()
    depths: ClassVar[tuple[int, ...]] = ()
    scripted: ClassVar[tuple[str, ...]] = ()
    cluster: ClassVar[str] = ""
    test_suites: ClassVar[tuple[str, ...]] = ()

    def for_suite(self, rules: Any) -> Pack:  # noqa: ARG002 - a default that a pack whose rules say how to read overrides
        """Give the pack as one suite uses it; itself where suites differ in nothing but what `score` is given.

        Everything is asked of the pack that this gives: cases and results may be read as the suite's rules say.
        """
        return self

    @abstractmethod
    def read(self, result: object) -> Outcome:
        """Read a target's result.

        Raises:
            ResultError: the result is not of a shape that the pack knows.
        """

    @abstractmethod
    def score(self, case: Any, outcome: Any, rules: Any) -> Score:
        """Score an outcome by the suite's rules: no clock, no randomness, no file."""

    @abstractmethod
    def facts(self, case: Any, outcome: Any, score: Score) -> RecordFacts:
        """Put case and outcome into the wire record's words; `score` has a number."""

    def target(self, rules: Any) -> Target | None:  # noqa: ARG002 - a default that a pack with a reference target overrides
        """Give the reference target, None where the pack has none."""
        return None

    def guards(self) -> Mapping[str, Callable[[], Any]]:
        """Give the guards that come with the pack, name to what makes one."""
        return {}

    def unusable(self, rules: Any) -> str:  # noqa: ARG002 - a default that a pack with optional needs overrides
        """Say in one line why no case of the pack can run here, such as a missing extra; empty where all is well.

        Asked once, before the first case.
        """
        return ""

    def roles(self, rules: Any) -> Mapping[str, tuple[str, str]]:  # noqa: ARG002 - a default that a pack with judges overrides
        """Give the models that the pack itself asks beside the one under test: role to backend and model.

        A request of such a role goes to that model; its tokens are no part of the record's.
        """
        return {}

    def summary(self, records: Iterable[Mapping[str, Any]]) -> list[str]:  # noqa: ARG002 - a default that a pack with figures of its own overrides
        """Give lines that only the pack can say of a run.

        Args:
            records: its wire records as plain JSON, one by one: they can be gone through once.
        """
        return []

    def request(self, case: Any) -> VerifyRequest:
        """Give what the target is asked."""
        return VerifyRequest(input=case.model_dump(mode="json", by_alias=True, include={"input"})["input"])

    def test_id(self, suite: str, case: Case) -> str:
        """Give the record's `test_id` (design 5)."""
        return f"{suite}:{case.case_type}:{case.id}"

    def facets(self, case: Any) -> dict[str, str]:  # noqa: ARG002 - a default that a pack with facets overrides
        """Give what reports group by beside case type and difficulty, as name to value."""
        return {}

    def explain(self, case: Any, outcome: Any) -> list[Comparison]:
        """Give the rows expected against actual for a failing case."""
        return [Comparison(what="answer", expected=str(case.expected), actual=str(outcome.answer))]

    def lint(
        self,
        cases: Sequence[FiledCase],  # noqa: ARG002 - a default that a pack with rules of case quality overrides
        rules: Any,  # noqa: ARG002 - see above
        options: Mapping[str, Path],  # noqa: ARG002 - see above
    ) -> Iterable[Finding]:
        """Give what the domain's own rules of case quality find.

        Args:
            cases: the cases that can be read, each with its file and cassette.
            rules: what `suite.yaml` says, in the pack's own model.
            options: files by the name of their `LintOption`; only those that were given.

        Raises:
            ValueError: a file among the options can't be used.
        """
        return ()

    def starter(self) -> Starter | None:
        """Give the suite that `packbench init` writes; None where the pack has none."""
        return None

    def importers(self) -> tuple[Importer, ...]:
        """Give the kinds of `packbench import` that make cases of this pack."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDraft:
    """A case that may be written, not yet checked.

    Attributes:
        place: where it was read, such as `questions.csv:12`.
        case: the whole case as plain JSON.
    """

    place: str
    case: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFlaw:
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
    def read(self, arguments: argparse.Namespace) -> Iterable[CaseDraft | SourceFlaw]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """A suite to begin with.

    In names and texts `SUITE_NAME` stands for the name of the suite, `TARGET_MODULE` for the module of its target.

    Attributes:
        suite: the files of the suite, by name from its folder: `suite.yaml`, `README.md`, two cases.
        project: the files beside it, by name from the project's root: the target.
        needs: what it can't run without: a library's name in Python, and the extra of this package that installs it.
        takes: likewise, for what its pack offers beyond the starter.
    """

    suite: Mapping[str, str]
    project: Mapping[str, str]
    needs: Mapping[str, str] = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)
