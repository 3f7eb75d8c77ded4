"""The generic case and its suite's rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, model_validator
from pydantic_core import InitErrorDetails

from pytest_packbench.model.case import Case, Fraction, ListOf, Notes, StrictModel
from pytest_packbench.model.errors import format_value
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.generic.criteria import AnyCriterion, AnyForbidden, Criterion, Exact
from pytest_packbench.packs.generic.refused import refused, refused_all, refused_at
from pytest_packbench.packs.generic.rules import Schemas
from pytest_packbench.packs.generic.values import MISSING, PathText, Place, compile_path, plain_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.generic.rules import Rule

_PATTERN_SECONDS = 1.0


def _some(value: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    if not value:
        raise refused("got none", "one criterion or more")
    return value


def _schema(value: dict[str, Any]) -> dict[str, Any]:
    wrong = _schemas().mistake(plain_json(value))
    if wrong:
        raise refused(wrong, "a JSON Schema (draft 2020-12)")
    return value


def _schemas() -> Schemas:
    return Schemas(_PATTERN_SECONDS, "a JSON Schema of the cases")


SchemaOfCases = Annotated[dict[str, Any], AfterValidator(_schema)]


class Refusal(StrictModel):
    """Where a result says that it refused, and a case that it should.

    Attributes:
        path: where in the result; refused where something stands there that is neither null, false, 0 nor empty.
        value: what stands at `path` in a refusal, one value or a list, instead of anything.
        category: where in the result the kind of refusal stands.
        expected: where under the case's `expected` true means that a refusal is due.
        expected_category: where under the case's `expected` its kind stands; without one any will do.
        wrong_category: points of a due refusal of another kind.
    """

    path: PathText = "/refusal"
    value: Any = None
    category: PathText = "/refusal/category"
    expected: PathText = "/refuse"
    expected_category: PathText = "/category"
    wrong_category: Fraction = 0.5

    @model_validator(mode="after")
    def _value_is_json(self) -> Self:
        plain_json(self.value)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A criterion, ready to be applied.

    Attributes:
        name: how its term is called.
        rule: what compares.
        place: where the value stands in the result.
        expected: where the expected value stands in the case.
        fixed: the expected value of all cases; `MISSING` where it comes from the case.
        share: what full points add to the score, 0 to 1.
        floor: the points under which the case fails hard; 0: never.
    """

    name: str
    rule: Rule
    place: Place
    expected: Place
    fixed: Any
    share: float
    floor: float

    def expected_in(self, expected: Any) -> Any:
        """Give the expected value of a case; `MISSING` where it names none."""
        return self.expected.find(expected) if self.fixed is MISSING else self.fixed

    def found_in(self, result: Any, wanted: Any) -> Any:
        """Give the value in a result; `MISSING` without one. A path of many finds the empty list where one is due."""
        found = self.place.find(result)
        return [] if found is MISSING and self.place.many and wanted == [] else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A suite's rules, ready to be applied; made once.

    Attributes:
        criteria: what an answer is held to.
        forbidden: what must not stand in any result.
        refused: where a result says that it refused.
        refused_by: the values that say so; None for anything.
        category: where it says the kind.
        due: where a case says that a refusal is due.
        due_category: where it says the kind.
    """

    criteria: tuple[Check, ...]
    forbidden: tuple[Check, ...]
    refused: Place
    refused_by: list[Any] | None
    category: Place
    due: Place
    due_category: Place

    def refusal_due(self, expected: Any) -> bool:
        """Whether a case expects a refusal."""
        return self.due.find(expected) is True


class GenericSuiteConfig(SuiteConfig):
    """The `suite.yaml` of a generic suite.

    Attributes:
        criteria: what an answer is held to; the score is the weighted mean of their points. Without any, the whole
            result has to be the case's `expected`.
        refusal: how a result and a case speak of refusals.
        forbidden: what fails a case hard, in a refusal too.
        input_schema: what every case's `input` has to be.
        expected_schema: what every case's `expected` has to be.
    """

    criteria: Annotated[ListOf[AnyCriterion], AfterValidator(_some)] = (Exact(rule="exact"),)
    refusal: Refusal = Refusal()
    forbidden: ListOf[AnyForbidden] = ()
    input_schema: SchemaOfCases | None = None
    expected_schema: SchemaOfCases | None = None

    @model_validator(mode="after")
    def _decides(self) -> Self:
        seen: set[str] = set()
        for index, criterion in enumerate(self.criteria):
            if criterion.title in seen:
                problem = refused(f'two criteria are called "{criterion.title}"', "a name of its own for one of them")
                raise refused_at(("criteria", index), problem, criterion.title)
            seen.add(criterion.title)
        if not self._total:
            raise refused_at(("criteria",), refused("no criterion has a weight", "one at least"), self._total)
        if self._total == math.inf:
            problem = refused("the weights add up to more than a number can hold", "smaller weights")
            raise refused_at(("criteria",), problem, self._total)
        return self

    @property
    def _total(self) -> float:
        return sum(criterion.weight for criterion in self.criteria)

    @cached_property
    def plan(self) -> Plan:
        """The rules, ready to be applied; made once."""
        said = self.refusal.value if isinstance(self.refusal.value, list) else [self.refusal.value]
        return Plan(
            criteria=tuple(_check(criterion, self._total) for criterion in self.criteria),
            forbidden=tuple(_check(criterion, self._total) for criterion in self.forbidden),
            refused=compile_path(self.refusal.path),
            refused_by=said if "value" in self.refusal.model_fields_set else None,
            category=compile_path(self.refusal.category),
            due=compile_path(self.refusal.expected),
            due_category=compile_path(self.refusal.expected_category),
        )

    @cached_property
    def case_model(self) -> type[GenericCase]:
        """The model of this suite's cases, made once: each has to bring what the criteria compare with."""
        schemas = tuple(_schemas_of(self))
        plan = self.plan

        class CaseOfSuite(GenericCase):
            @model_validator(mode="after")
            def _fits(self) -> Self:
                problems = [*_against_schemas(self, schemas), *_against_plan(self, plan)]
                if problems:
                    raise refused_all(problems)
                return self

        return CaseOfSuite


def _check(criterion: Criterion, total: float) -> Check:
    path = criterion.path if criterion.expected is None else criterion.expected
    return Check(
        name=criterion.title,
        rule=criterion.made,
        place=compile_path(criterion.path),
        expected=compile_path(path),
        fixed=criterion.value if criterion.is_fixed else MISSING,
        share=criterion.weight / total,
        floor=float(criterion.hard_fail),
    )


class GenericNotes(Notes):
    """What is known of a generic case beside its test.

    Attributes:
        threshold: the score from which this case passes, before the suite's.
    """

    threshold: Fraction | None = None


class GenericCase(Case):
    """One generic case: `input` and `expected` are any JSON."""

    notes: GenericNotes = GenericNotes()


def _schemas_of(rules: GenericSuiteConfig) -> Iterator[tuple[str, Schemas, Any]]:
    for field, schema in (("input", rules.input_schema), ("expected", rules.expected_schema)):
        if schema is not None:
            schemas = _schemas()
            yield field, schemas, schemas.validator(schema)


def _against_schemas(case: GenericCase, schemas: tuple[tuple[str, Schemas, Any], ...]) -> Iterator[InitErrorDetails]:
    for field, library, validator in schemas:
        wrong = library.best(validator, getattr(case, field))
        if wrong is not None:
            problem = refused(wrong[1], f"what {field}_schema of suite.yaml asks for")
            yield InitErrorDetails(type=problem, loc=(field, *wrong[0]), input=None)


def _against_plan(case: GenericCase, plan: Plan) -> Iterator[InitErrorDetails]:
    due = plan.due.find(case.expected)
    if due is not MISSING and not isinstance(due, bool):
        yield _at(plan.due, due, refused(f"got {format_value(due)}", "true where a refusal is due, else false"))
    elif due is True:
        category = plan.due_category.find(case.expected)
        if category is not MISSING and not isinstance(category, str | None):
            yield _at(
                plan.due_category, category, refused(f"got {format_value(category)}", "the kind of refusal, a text")
            )
    else:
        for check in plan.criteria:
            yield from _comparable(check, case.expected, required=True)
    for check in plan.forbidden:
        yield from _comparable(check, case.expected, required=False)


def _comparable(check: Check, expected: Any, *, required: bool) -> Iterator[InitErrorDetails]:
    if check.fixed is not MISSING:
        # looked at when the suite was read
        return
    wanted = check.expected.find(expected)
    if wanted is MISSING:
        if required:
            wrong = f'nothing stands at {check.expected}, which "{check.name}" compares with'
            yield _at(check.expected, None, refused(wrong, check.rule.wants))
    elif not check.rule.usable(wanted):
        wrong = f'{check.rule.wrong(wanted)}, which "{check.name}" compares with'
        yield _at(check.expected, wanted, refused(wrong, check.rule.wants))


def _at(place: Place, value: Any, problem: Any) -> InitErrorDetails:
    return InitErrorDetails(type=problem, loc=("expected", *place.location), input=value)
