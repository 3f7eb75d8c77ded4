"""The right answer to every case of a tariff suite, from which the controls are derived, and how controls are counted."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pytest_packbench import load_suite
from pytest_packbench.cases.load import parse_case
from pytest_packbench.engine.attempt import attempt
from pytest_packbench.engine.contexts import SuiteContext
from pytest_packbench.engine.targets import TargetCaller
from pytest_packbench.packs.tariff.judged import edition_of
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.notation import depth, digits, dotted
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.target import reference_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.packs.tariff.answer import TariffAnswer
    from pytest_packbench.packs.tariff.model import TariffExpected

Json = dict[str, Any]


@dataclass(frozen=True)
class RightAnswer:
    """A case and the answer of the reference target on its cassette; partners share the goods, not the deciding fact."""

    path: Path
    loaded: LoadedCase
    case: TariffCase
    # its types are those of any pack, these of the tariff pack
    context: Any
    cassette: Any
    outcome: Any
    score: Any
    payload: str
    partners: list[RightAnswer] = field(default_factory=list, repr=False)

    @property
    def edition(self) -> Any:
        """The schedule of the suite."""
        return edition_of(self.context.suite.config.schedule)

    @property
    def expected(self) -> TariffExpected:
        return self.case.expected

    @property
    def accepts(self) -> bool:
        return self.expected.expected_accept

    @property
    def document(self) -> TariffAnswer:
        """The answer as it is read."""
        document: TariffAnswer = self.outcome.document
        return document

    @property
    def baseline_rate_pct(self) -> float | None:
        baseline = self.document.dossier.baseline
        return baseline.total if baseline else None

    @property
    def optimized_rate_pct(self) -> float | None:
        optimized = self.document.dossier.optimized
        return optimized.total if optimized else None

    @property
    def optimized_code(self) -> str | None:
        """The optimised code with its dots."""
        optimized = self.document.dossier.optimized
        return dotted(optimized.hts_code) if optimized else None

    @property
    def pair(self) -> str | None:
        return next((tag for tag in self.case.notes.tags if tag.startswith("pair_")), None)

    @property
    def preferred_code(self) -> str:
        """The first preferred code, of several articles that of the first; empty if a refusal is expected."""
        return next(iter(self.expected.all_preferred), "")

    @property
    def forbidden(self) -> list[str]:
        """The forbidden codes with ten digits, the one most similar to the preferred code first."""
        own = (code for article in self.expected.articles or () for code in article.must_not_hts or ())
        nearest = sorted(
            (*(self.expected.must_not_hts or ()), *own), key=lambda code: -depth(code, self.preferred_code)
        )
        return [with_ten_digits(code) for code in nearest]

    def copy(self) -> Json:
        """A copy of the result, to be changed."""
        result: Json = json.loads(self.payload)
        return result


def right_answer(path: Path, context: SuiteContext) -> RightAnswer:
    """Run the reference target on the cassette of a case."""
    loaded: Any = parse_case(path.read_bytes(), TariffCase, source=path.name, stem=path.stem, pack="tariff")
    run = attempt(context, loaded)
    assert run.failure is None, f"{path.stem}: {run.failure}"
    outcome: Any = run.outcome
    # with every key of the document, to be changed
    payload = json.dumps(outcome.document.model_dump(mode="json"))
    return RightAnswer(path, loaded, loaded.case, context, run.cassette, run.outcome, run.score, payload)


@contextmanager
def right_answers(folder: Path) -> Iterator[list[RightAnswer]]:
    """Run the reference target on the cassette of every case of a suite."""
    suite = load_suite(folder)
    config: Any = suite.config
    pack = TariffPack().for_suite(config)
    caller = TargetCaller(reference_target(edition_of(config.schedule)))
    context = SuiteContext(suite=suite, pack=pack, caller=caller, target_name="reference")
    try:
        answers = [right_answer(path, context) for path in sorted(suite.cases_path.glob("*/*.json"))]
        for right in answers:
            right.partners.extend(
                other for other in answers if right.pair and other.pair == right.pair and other.accepts != right.accepts
            )
        yield answers
    finally:
        caller.close()


def with_ten_digits(code: str) -> str:
    return dotted(digits(code).ljust(10, "0"))


class Control(Protocol):
    """A kind of control."""

    @property
    def name(self) -> str: ...
    @property
    def requirement(self) -> str: ...
    def misses(self, right: RightAnswer, following: RightAnswer) -> Iterable[str]:
        """Run the controls from a right answer, or from the one after it: for each why it was missed, empty if caught."""


class ControlSummary(NamedTuple):
    """How many controls were run and caught, from how many cases, and which were missed."""

    name: str
    requirement: str
    cases: int
    total: int
    caught: int
    missed: list[str]


def run_controls(control: Control, answers: list[RightAnswer]) -> ControlSummary:
    """Run every control of a kind."""
    pairs = zip(answers, (*answers[1:], *answers[:1]), strict=True)
    rows = [(right.case.id, miss) for right, following in pairs for miss in control.misses(right, following)]
    missed = [f"{case_id}: {miss}" for case_id, miss in rows if miss]
    return ControlSummary(
        control.name, control.requirement, len(dict(rows)), len(rows), len(rows) - len(missed), missed
    )
