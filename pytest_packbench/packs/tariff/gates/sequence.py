"""The order of the General Rules of Interpretation: violations S1 to S8 over a trace of steps.

Each level (heading, subheading, line, suffix) has its own round of the rules: rule 6 opens the rounds below
the heading as rule 1 opens the heading's. Rule 5 (packing) stands beside the others and is only held to S7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.codes import digits, dotted, stands_under
from pytest_packbench.packs.tariff.gates.base import WIDTHS, Violation, gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_packbench.packs.tariff.dossier import GriStep, Level, Rule
    from pytest_packbench.packs.tariff.gates.base import GateInput

_LEVELS = tuple(WIDTHS)
_OPENING: frozenset[Rule] = frozenset({"1", "6"})
_THIRD: frozenset[Rule] = frozenset({"3a", "3b", "3c"})
_BEFORE_FOURTH: frozenset[Rule] = frozenset({"1", "2a", "2b", *_THIRD, "6"})
_AFTER_OPENING: frozenset[Rule] = frozenset({"2a", "2b", *_THIRD, "4"})
_PACKING: frozenset[Rule] = frozenset({"5a", "5b"})
_UNITED_STATES: frozenset[Rule] = frozenset({"us_1a", "us_1b", "us_1c", "us_1d"})
_FORMER: dict[Rule, Rule] = {"3b": "3a", "3c": "3b"}
_TWO = 2
# section XI note 14: "textile garments" are those of these headings
_GARMENTS = frozenset({*map(str, range(6101, 6115)), *map(str, range(6201, 6212))})


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the trace with its codes as digits; `chosen` is empty where it names none."""

    position: int
    rule: Rule
    level: Level
    candidates: tuple[str, ...]
    outcome: str
    chosen: str
    as_set: bool

    @property
    def compared(self) -> set[str]:
        """The different codes compared, no deeper than the step's level."""
        return {code[: WIDTHS[self.level]] for code in self.candidates}

    def breaks(self, code: str, text: str) -> Violation:
        """Give a violation in this step."""
        return Violation(text, code, self.position)


@gate(3)
def gri_sequence(given: GateInput) -> list[Violation] | None:
    """Whether the rules were used in their legal order (GRI 1 to 6; reference 3, S1 to S8).

    The normal path, rule 1 for the heading and rule 6 below it, breaks nothing; nor do rule 5 and the Additional
    US Rules beside any other. Nothing is judged without a trace.
    """
    trace = given.proposal.gri_trace.steps
    if not trace:
        return None
    steps = [_read(at, step) for at, step in enumerate(trace, 1)]
    ordered = [step for step in steps if step.rule not in _PACKING]
    found = [
        violation
        for index, step in enumerate(ordered)
        for check in _CHECKS
        for violation in check(step, ordered[:index])
    ]
    found += _needless_fourth_rule(ordered)
    baseline = given.proposal.baseline
    if baseline is not None:
        found += _final_code(digits(baseline.hts_code), steps)
    return found


def _read(at: int, step: GriStep) -> _Step:
    chosen = digits(step.chosen) if step.outcome == "decided" and step.chosen else ""
    candidates = tuple(digits(code) for code in step.candidates)
    return _Step(at, step.rule, step.level, candidates, step.outcome, chosen, step.as_set)


def _unopened(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    """S1: rules 2 to 4 wait until rule 1 (below the heading: rule 6) has failed or left two codes or more."""
    if step.rule not in _AFTER_OPENING:
        return
    opening = _latest(earlier, step.level, _OPENING)
    rule = "1" if step.level == "heading" else "6"
    if opening is None:
        yield step.breaks(
            "S1", f"rule {step.rule} comes before rule {rule} was tried on the {step.level}; try it first"
        )
    elif opening.outcome == "decided":
        yield step.breaks(
            "S1",
            f"rule {step.rule} is used although rule {opening.rule} decided the {step.level} in step "
            f"{opening.position}; drop this step, or show that step {opening.position} left a tie",
        )
    elif opening.outcome == "tied" and len(opening.compared) < _TWO:
        yield step.breaks(
            "S1",
            f"rule {step.rule} rests on step {opening.position}, which ties fewer than two codes; "
            "name each that remains, or let it decide",
        )


def _third_rule_out_of_order(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    """S2: 3(b) after a 3(a) that failed or tied, 3(c) after such a 3(b); 3(c) takes the last code in order."""
    former = _FORMER.get(step.rule)
    if former is not None:
        last = _latest(earlier, step.level, {former})
        if last is None:
            yield step.breaks(
                "S2", f"rule {step.rule} comes before rule {former}; say first why {former} does not decide"
            )
        elif last.outcome == "decided":
            yield step.breaks(
                "S2", f"rule {step.rule} is used although rule {former} decided in step {last.position}; drop it"
            )
    if step.rule == "3c" and step.chosen and step.candidates:
        final = max(step.candidates, key=_numerically)
        if _numerically(step.chosen) != _numerically(final):
            yield step.breaks("S2", f"rule 3c takes the last candidate in number order; choose {dotted(final)}")


def _needless_fourth_rule(steps: Sequence[_Step]) -> Iterator[Violation]:
    """S3: rule 4 is for goods that no rule 1 to 3 places; a tie is no such case, for 3(c) ends every tie."""
    for index, step in enumerate(steps):
        if step.rule != "4":
            continue
        others = [other for other in steps if other.level == step.level and other.rule in _BEFORE_FOURTH]
        decided = next((other for other in others if other.outcome == "decided"), None)
        last = _latest(steps[:index], step.level, _BEFORE_FOURTH)
        if decided is not None:
            yield step.breaks(
                "S3",
                f"rule 4 is used although rule {decided.rule} found the {step.level} in step {decided.position}; "
                "drop one of them",
            )
        elif last is not None and last.outcome == "tied":
            yield step.breaks(
                "S3", f"rule 4 follows the tie of step {last.position}; break the tie by rule 3, to 3c if need be"
            )


def _level_out_of_order(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    """S4: the heading first, then codes of one level under the code already chosen."""
    if step.level == "heading":
        yield from _heading_too_late(step, earlier)
        return
    if _latest(earlier, "heading", decided=True) is None:
        yield step.breaks("S4", f"a {step.level} is argued before a heading is decided; decide the heading first")
        return
    above = _LEVELS[1 : _LEVELS.index(step.level)]
    if "subheading" in above and _latest(earlier, "subheading") and not _latest(earlier, "subheading", decided=True):
        yield step.breaks("S4", f"a {step.level} is argued while the subheading is open; decide the subheading first")
    if step.level == "subheading" and any(other.level in {"line", "suffix"} for other in earlier):
        yield step.breaks("S4", "the subheading is argued after a level below it; put this step before")
    if len({len(code) for code in step.candidates}) > 1:
        yield step.breaks("S4", f"codes of different levels are compared; compare every {step.level} with its like")
    parents = (_latest(earlier, level, decided=True) for level in (*reversed(above), "heading"))
    parent = next((found for found in parents if found and found.chosen), None)
    strangers = [code for code in step.candidates if parent and not stands_under(code, parent.chosen)]
    if parent and strangers:
        yield step.breaks(
            "S4",
            f"{_named(strangers)} is not under {dotted(parent.chosen)}, chosen in step {parent.position}; "
            "compare only what is",
        )


def _heading_too_late(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    if step.rule == "6":
        yield step.breaks("S4", "rule 6 compares headings; headings are for rules 1 to 4, rule 6 for what is below")
    elif step.rule not in _UNITED_STATES and any(other.level != "heading" for other in earlier):
        yield step.breaks("S4", "the heading is argued after a level below it; settle the heading first")


def _third_rule_alone(step: _Step, _: Sequence[_Step]) -> Iterator[Violation]:
    """S5: rule 3 chooses between two codes or more."""
    if step.rule in _THIRD and len(step.compared) < _TWO:
        yield step.breaks("S5", f"rule {step.rule} needs two codes to choose from; name the rival, or use rule 1 alone")


def _barred_set(step: _Step, _: Sequence[_Step]) -> Iterator[Violation]:
    """S6: section XI note 14 leaves textile garments of different headings in their own, set or not."""
    garments = sorted({code[:4] for code in step.candidates} & _GARMENTS)
    if step.as_set and len(garments) >= _TWO:
        yield step.breaks(
            "S6",
            f"garments of {_named(garments)} are taken as a set, which section XI note 14 forbids; "
            "classify each in its own heading",
        )


def _final_code(code: str, steps: Sequence[_Step]) -> Iterator[Violation]:
    """S7: the baseline lies under every code that the trace chose, and the trace chose a heading."""
    if not any(step.level == "heading" and step.outcome == "decided" and step.rule not in _PACKING for step in steps):
        yield Violation(f"no step decides the heading of {dotted(code)}; add the step that does", "S7")
    # the deeper steps follow the first that strays: one violation says it all
    stray = next((step for step in steps if step.chosen and not stands_under(code, step.chosen)), None)
    if stray is not None:
        yield stray.breaks(
            "S7", f"the baseline {dotted(code)} is not under the chosen {dotted(stray.chosen)}; mend one of them"
        )


def _suffix_too_early(step: _Step, earlier: Sequence[_Step]) -> Iterator[Violation]:
    """S8: the statistical suffix comes after the 8-digit line is decided."""
    if step.level == "suffix" and _latest(earlier, "line", decided=True) is None:
        yield step.breaks("S8", "the suffix is argued before the 8-digit line is decided; add the step for the line")


_CHECKS: tuple[Callable[[_Step, Sequence[_Step]], Iterator[Violation]], ...] = (
    _unopened,
    _third_rule_out_of_order,
    _level_out_of_order,
    _third_rule_alone,
    _barred_set,
    _suffix_too_early,
)


def _latest(
    steps: Sequence[_Step], level: Level, rules: Iterable[Rule] | None = None, *, decided: bool = False
) -> _Step | None:
    """Give the last step at a level, of certain rules, with a decision where that is asked for."""
    for step in reversed(steps):
        if step.level != level or (rules is not None and step.rule not in rules):
            continue
        if step.outcome == "decided" or not decided:
            return step
    return None


def _numerically(code: str) -> str:
    return code.ljust(WIDTHS["suffix"], "0")


def _named(codes: Sequence[str]) -> str:
    return ", ".join(dotted(code) or "(no digits)" for code in dict.fromkeys(codes))
