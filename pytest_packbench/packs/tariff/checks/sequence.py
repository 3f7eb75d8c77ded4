"""The gate on the order of the General Rules of Interpretation: violations S1 to S8 in a trace of steps.

The rules are applied to each level in turn (heading, subheading, line, suffix), beginning with rule 1 for the heading
and rule 6 below it. Rule 5 (packing) may appear anywhere and is subject to S7 only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pytest_packbench.packs.tariff.checks.base import WIDTHS, Violation, check
from pytest_packbench.packs.tariff.notation import digits, dotted, is_under

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_packbench.packs.tariff.checks.base import CheckInput
    from pytest_packbench.packs.tariff.notation import Level, Rule

_LEVELS = tuple(WIDTHS)
_OPENING: frozenset[Rule] = frozenset({"1", "6"})
_THIRD: frozenset[Rule] = frozenset({"3a", "3b", "3c"})
_BEFORE_FOURTH: frozenset[Rule] = frozenset({"1", "2a", "2b", *_THIRD, "6"})
_AFTER_OPENING: frozenset[Rule] = frozenset({"2a", "2b", *_THIRD, "4"})
_PACKING: frozenset[Rule] = frozenset({"5a", "5b"})
_UNITED_STATES: frozenset[Rule] = frozenset({"us_1a", "us_1b", "us_1c", "us_1d"})
_PREVIOUS_RULE: dict[Rule, Rule] = {"3b": "3a", "3c": "3b"}
_MIN_CHOICES = 2
# the headings of "textile garments" in section XI note 14
_GARMENTS = frozenset({*map(str, range(6101, 6115)), *map(str, range(6201, 6212))})


class TraceStep(Protocol):
    """A step of a trace as it was given; see `dossier.GriStep`."""

    @property
    def rule(self) -> Rule:
        """The rule applied."""

    @property
    def level(self) -> Level:
        """The level at which codes are compared."""

    @property
    def candidates(self) -> Sequence[str]:
        """The codes compared."""

    @property
    def outcome(self) -> str:
        """`decided`, `tied` or `failed`."""

    @property
    def chosen(self) -> str | None:
        """The code chosen, when decided."""

    @property
    def as_set(self) -> bool:
        """Whether the goods are treated as a retail set."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the trace with its codes as digits; `chosen` is empty if no code is chosen."""

    number: int
    rule: Rule
    level: Level
    candidates: tuple[str, ...]
    outcome: str
    chosen: str
    as_set: bool

    @property
    def compared_codes(self) -> set[str]:
        """The distinct candidates, cut to the digits of the step's level."""
        return {code[: WIDTHS[self.level]] for code in self.candidates}

    def violation(self, code: str, objection: str, text: str) -> Violation:
        """Return a violation in this step."""
        return Violation(objection, text, code, self.number)


@check(
    3,
    *("opening_rule_missing", "opening_rule_decided", "opening_tie_of_one", "third_rule_skipped"),
    *("third_rule_decided", "not_the_last_code", "fourth_rule_undue", "fourth_rule_after_tie"),
    *("heading_not_decided", "subheading_not_decided", "subheading_too_late", "levels_mixed"),
    *("not_under_the_choice", "sixth_rule_on_headings", "heading_too_late", "third_rule_alone"),
    *("garments_as_a_set", "no_step_for_the_heading", "code_not_under_the_choice", "suffix_before_line"),
)
def gri_sequence(inputs: CheckInput) -> list[Violation] | None:
    """Check that the rules were used in their legal order (GRI 1 to 6).

    Rule 5 and the Additional US Rules may be combined with any other. Without a trace the gate does not apply.
    """
    trace, baseline = inputs.proposal.gri_trace.steps, inputs.proposal.baseline
    return order_violations(trace, None if baseline is None else baseline.hts_code) if trace else None


def order_violations(trace: Sequence[TraceStep], code: str | None) -> list[Violation]:
    """Return the violations of the legal order in a trace.

    Args:
        trace: the steps in the order taken.
        code: the code of the goods, which the trace has to lead to; None if there is none.
    """
    steps = [_normalized(number, step) for number, step in enumerate(trace, 1)]
    ordered = [step for step in steps if step.rule not in _PACKING]
    violations = [
        violation
        for index, step in enumerate(ordered)
        for rule in _ORDER_RULES
        for violation in rule(step, ordered[:index])
    ]
    violations += _needless_fourth_rule(ordered)
    if code is not None:
        violations += _final_code(digits(code), steps)
    return violations


def _normalized(number: int, step: TraceStep) -> _Step:
    chosen = digits(step.chosen) if step.outcome == "decided" and step.chosen else ""
    candidates = tuple(digits(code) for code in step.candidates)
    return _Step(number, step.rule, step.level, candidates, step.outcome, chosen, step.as_set)


def _opening_rule_missing(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    """S1: rules 2 to 4 may be used only after rule 1 (below the heading: rule 6) failed or left at least two codes."""
    if step.rule not in _AFTER_OPENING:
        return
    opening = _latest(earlier, step.level, _OPENING)
    rule = "1" if step.level == "heading" else "6"
    if opening is None:
        yield step.violation(
            "S1",
            "opening_rule_missing",
            f"rule {step.rule} is used before rule {rule} was tried on the {step.level}; add rule {rule} first",
        )
    elif opening.outcome == "decided":
        yield step.violation(
            "S1",
            "opening_rule_decided",
            f"rule {step.rule} is used although rule {opening.rule} decided the {step.level} in step "
            f"{opening.number}; remove this step, or show that step {opening.number} left a tie",
        )
    elif opening.outcome == "tied" and len(opening.compared_codes) < _MIN_CHOICES:
        yield step.violation(
            "S1",
            "opening_tie_of_one",
            f"rule {step.rule} follows step {opening.number}, which ties fewer than two codes; "
            f"name each code that remains, or let step {opening.number} decide",
        )


def _third_rule_out_of_order(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    """S2: 3(b) follows a 3(a) that failed or tied, 3(c) such a 3(b), and 3(c) chooses the last code in number order."""
    previous = _PREVIOUS_RULE.get(step.rule)
    if previous is not None:
        last = _latest(earlier, step.level, {previous})
        if last is None:
            yield step.violation(
                "S2",
                "third_rule_skipped",
                f"rule {step.rule} is used before rule {previous}; first show that rule {previous} does not decide",
            )
        elif last.outcome == "decided":
            yield step.violation(
                "S2",
                "third_rule_decided",
                f"rule {step.rule} is used although rule {previous} decided in step {last.number}; remove this step",
            )
    if step.rule == "3c" and step.chosen and step.candidates:
        last_code = max(step.candidates, key=_padded)
        if _padded(step.chosen) != _padded(last_code):
            yield step.violation(
                "S2",
                "not_the_last_code",
                f"rule 3c takes the last candidate in number order; choose {dotted(last_code)}",
            )


def _needless_fourth_rule(steps: Sequence[_Step]) -> Iterator[Violation]:
    """S3: rule 4 is for goods that rules 1 to 3 cannot classify; a tie is not such a case, as 3(c) breaks it."""
    for index, step in enumerate(steps):
        if step.rule != "4":
            continue
        others = [other for other in steps if other.level == step.level and other.rule in _BEFORE_FOURTH]
        decided = next((other for other in others if other.outcome == "decided"), None)
        last = _latest(steps[:index], step.level, _BEFORE_FOURTH)
        if decided is not None:
            yield step.violation(
                "S3",
                "fourth_rule_undue",
                f"rule 4 is used although rule {decided.rule} decided the {step.level} in step {decided.number}; "
                "remove one of them",
            )
        elif last is not None and last.outcome == "tied":
            yield step.violation(
                "S3",
                "fourth_rule_after_tie",
                f"rule 4 follows the tie of step {last.number}; break the tie by rule 3, if necessary by 3c",
            )


def _level_out_of_order(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    """S4: the heading comes first, then codes of one level under the code already chosen."""
    if step.level == "heading":
        yield from _heading_out_of_order(step, earlier)
        return
    if _latest(earlier, "heading", decided=True) is None:
        yield step.violation(
            "S4",
            "heading_not_decided",
            f"a {step.level} is compared before a heading is decided; decide the heading first",
        )
        return
    above = _LEVELS[1 : _LEVELS.index(step.level)]
    if "subheading" in above and _latest(earlier, "subheading") and not _latest(earlier, "subheading", decided=True):
        yield step.violation(
            "S4",
            "subheading_not_decided",
            f"a {step.level} is compared before the subheading is decided; decide the subheading first",
        )
    if step.level == "subheading" and any(other.level in {"line", "suffix"} for other in earlier):
        yield step.violation(
            "S4", "subheading_too_late", "the subheading is compared after a level below it; move this step before them"
        )
    if len({len(code) for code in step.candidates}) > 1:
        yield step.violation(
            "S4",
            "levels_mixed",
            f"codes of different levels are compared; compare each {step.level} with others of that level",
        )
    parents = (_latest(earlier, level, decided=True) for level in (*reversed(above), "heading"))
    parent = next((decided for decided in parents if decided and decided.chosen), None)
    outside = [code for code in step.candidates if parent and not is_under(code, parent.chosen)]
    if parent and outside:
        yield step.violation(
            "S4",
            "not_under_the_choice",
            f"{_listed_codes(outside)} is not under {dotted(parent.chosen)}, chosen in step {parent.number}; "
            "compare only codes under it",
        )


def _heading_out_of_order(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    if step.rule == "6":
        yield step.violation(
            "S4",
            "sixth_rule_on_headings",
            "rule 6 compares headings; use rules 1 to 4 for headings and rule 6 for the levels below",
        )
    elif step.rule not in _UNITED_STATES and any(other.level != "heading" for other in earlier):
        yield step.violation(
            "S4", "heading_too_late", "the heading is compared after a level below it; decide the heading first"
        )


def _third_rule_alone(step: _Step, _: Sequence[_Step]) -> Iterator[Violation]:
    """S5: rule 3 needs at least two codes to choose from."""
    if step.rule in _THIRD and len(step.compared_codes) < _MIN_CHOICES:
        yield step.violation(
            "S5",
            "third_rule_alone",
            f"rule {step.rule} needs at least two codes to choose from; name the other codes, or use rule 1 alone",
        )


def _forbidden_set(step: _Step, _: Sequence[_Step]) -> Iterator[Violation]:
    """S6: section XI note 14 forbids treating textile garments of different headings as a set."""
    garments = sorted({code[:4] for code in step.candidates} & _GARMENTS)
    if step.as_set and len(garments) >= _MIN_CHOICES:
        yield step.violation(
            "S6",
            "garments_as_a_set",
            f"garments of {_listed_codes(garments)} are classified as a set, which section XI note 14 forbids; "
            "classify each in its own heading",
        )


def _final_code(code: str, steps: Sequence[_Step]) -> Iterator[Violation]:
    """S7: the trace decides a heading, and the baseline is under every code that the trace chooses."""
    if not any(step.level == "heading" and step.outcome == "decided" and step.rule not in _PACKING for step in steps):
        yield Violation(
            "no_step_for_the_heading",
            f"no step decides the heading of {dotted(code)}; add the step that decides it",
            "S7",
        )
    # deeper steps follow from the first mismatch, so report that one only
    mismatch = next((step for step in steps if step.chosen and not is_under(code, step.chosen)), None)
    if mismatch is not None:
        yield mismatch.violation(
            "S7",
            "code_not_under_the_choice",
            f"the baseline {dotted(code)} is not under {dotted(mismatch.chosen)}, chosen here; correct one of them",
        )


def _suffix_out_of_order(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    """S8: the statistical suffix is compared only after the 8-digit line is decided."""
    if step.level == "suffix" and _latest(earlier, "line", decided=True) is None:
        yield step.violation(
            "S8",
            "suffix_before_line",
            "the suffix is compared before the 8-digit line is decided; add the step for the line",
        )


_ORDER_RULES: tuple[Callable[[_Step, Sequence[_Step]], Iterator[Violation]], ...] = (
    _opening_rule_missing,
    _third_rule_out_of_order,
    _level_out_of_order,
    _third_rule_alone,
    _forbidden_set,
    _suffix_out_of_order,
)


def _latest(
    steps: Sequence[_Step], level: Level, rules: Iterable[Rule] | None = None, *, decided: bool = False
) -> _Step | None:
    """Return the last step at a level, limited to some rules and to decided steps if requested."""
    for step in reversed(steps):
        if step.level != level or (rules is not None and step.rule not in rules):
            continue
        if step.outcome == "decided" or not decided:
            return step
    return None


def _padded(code: str) -> str:
    return code.ljust(WIDTHS["suffix"], "0")


def _listed_codes(codes: Sequence[str]) -> str:
    return ", ".join(dotted(code) or "(no digits)" for code in dict.fromkeys(codes))
