"""The legal order of the General Rules of Interpretation: a table of what may not be, S1 to S8.

The rules are applied to each level in turn (heading, subheading, line, suffix), beginning with rule 1 for the heading
and rule 6 below it. Rule 5 (packing) may stand anywhere and is subject to S7 only; the Additional US Rules may be
combined with any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.packs.tariff.notation import WIDTHS, dotted, is_under

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pytest_packbench.packs.tariff.answer import Step
    from pytest_packbench.packs.tariff.notation import Level, Rule

THIRD = frozenset({"3a", "3b", "3c"})
BEFORE_FOURTH = frozenset({"1", "6", "2a", "2b", *THIRD})
AFTER_OPENING = frozenset({"2a", "2b", *THIRD, "4"})
"""Rules that are used only where rule 1 or, below the heading, rule 6 leaves a level open."""
PACKING = frozenset({"5a", "5b"})
PREVIOUS = {"3b": "3a", "3c": "3b"}
GARMENTS = frozenset({*map(str, range(6101, 6115)), *map(str, range(6201, 6212))})
"""The headings of textile garments in section XI note 14."""
_SEVERAL = 2


class Fault(NamedTuple):
    """What is out of order.

    Attributes:
        order: the rule of the order, S1 to S8.
        objection: its name.
        number: the number of the step, from 1; 0 where it concerns the whole trace.
        text: what is wrong, and what to do.
    """

    order: str
    objection: str
    number: int
    text: str

    def __str__(self) -> str:
        """Return the fault in one line."""
        return f"{self.order}{f', step {self.number}' if self.number else ''}: {self.text}"


class _At(NamedTuple):
    """A step of a trace, and what the steps before it lead to, without those on packing.

    Attributes:
        step: the step.
        before: for each level the last step by each rule, the latest at the end.
        chosen: the code chosen last at each level.
        settled: the levels that one of rules 1 to 3, or 6, decides, before or after the step.
    """

    step: Step
    before: Mapping[Level, dict[Rule, Step]]
    chosen: Mapping[Level, str]
    settled: Collection[Level]

    def last(self, *rules: str) -> Step | None:
        """Return the last step before this one at its level by one of some rules."""
        steps = self.before.get(self.step.level, {}).values()
        return next((each for each in reversed(steps) if each.rule in rules), None)

    @property
    def opening(self) -> Step | None:
        """The step of rule 1 or 6 that opened the level, for a rule that needs one."""
        return self.last("1", "6") if self.step.rule in AFTER_OPENING else None

    @property
    def previous(self) -> Step | None:
        """The step of the rule that has to fail before this one."""
        return self.last(PREVIOUS[self.step.rule]) if self.step.rule in PREVIOUS else None

    @property
    def is_settled(self) -> bool:
        """Whether one of rules 1 to 3, or 6, decides the level, before or after this step."""
        return self.step.level in self.settled

    @property
    def above(self) -> str:
        """The code chosen last at the nearest level above; empty without one."""
        width = WIDTHS[self.step.level]
        return max((code for code in self.chosen.values() if len(code) < width), key=len, default="")

    @property
    def is_below(self) -> bool:
        """Whether the step is below a heading that is decided."""
        return self.step.level != "heading" and "heading" in self.chosen

    @property
    def is_late(self) -> bool:
        """Whether a step at a level below was taken before."""
        return any(WIDTHS[level] > WIDTHS[self.step.level] for level in self.before)


ORDER: tuple[tuple[str, str, Callable[[_At], object], str], ...] = (
    (
        "S1",
        "opening_rule_missing",
        lambda at: at.step.rule in AFTER_OPENING and at.opening is None,
        "rule {rule} is used before rule 1 or 6 was tried on the {level}; add that rule first",
    ),
    (
        "S1",
        "opening_rule_decided",
        lambda at: at.opening and at.opening.chosen,
        "rule {rule} is used although rule 1 or 6 decided the {level}; remove this step, or show the tie",
    ),
    (
        "S1",
        "opening_tie_of_one",
        lambda at: at.opening and at.opening.outcome == "tied" and len({*at.opening.candidates}) < _SEVERAL,
        "rule {rule} follows a tie of fewer than two codes; name each code that remains, or let that step decide",
    ),
    (
        "S2",
        "third_rule_skipped",
        lambda at: at.step.rule in PREVIOUS and at.previous is None,
        "rule {rule} is used before the one above it in rule 3; first show that that one does not decide",
    ),
    (
        "S2",
        "third_rule_decided",
        lambda at: at.previous and at.previous.chosen,
        "rule {rule} is used although the one above it in rule 3 decided; remove this step",
    ),
    (
        "S2",
        "not_the_last_code",
        lambda at: at.step.rule == "3c" and at.step.chosen and at.step.chosen != max(at.step.candidates),
        "rule 3c takes the last candidate in number order; choose that one",
    ),
    (
        "S4",
        "sixth_rule_on_headings",
        lambda at: at.step.level == "heading" and at.step.rule == "6",
        "rule 6 compares headings; use rules 1 to 4 for headings and rule 6 for the levels below",
    ),
    (
        "S4",
        "heading_too_late",
        lambda at: (
            at.step.level == "heading" and at.step.rule != "6" and not at.step.rule.startswith("us") and at.is_late
        ),
        "the heading is compared after a level below it; decide the heading first",
    ),
    (
        "S4",
        "heading_not_decided",
        lambda at: at.step.level != "heading" and not at.is_below,
        "a {level} is compared before a heading is decided; decide the heading first",
    ),
    (
        "S4",
        "subheading_not_decided",
        lambda at: (
            at.is_below
            and at.step.level in {"line", "suffix"}
            and "subheading" in at.before
            and "subheading" not in at.chosen
        ),
        "a {level} is compared before the subheading is decided; decide the subheading first",
    ),
    (
        "S4",
        "subheading_too_late",
        lambda at: at.is_below and at.step.level == "subheading" and at.is_late,
        "the subheading is compared after a level below it; move this step before them",
    ),
    (
        "S4",
        "not_under_the_choice",
        lambda at: at.is_below and (top := at.above) and not all(is_under(code, top) for code in at.step.candidates),
        "a {level} that is not under the code chosen above it; compare only codes under that one",
    ),
    (
        "S5",
        "third_rule_alone",
        lambda at: at.step.rule in THIRD and len({*at.step.candidates}) < _SEVERAL,
        "rule {rule} needs at least two codes to choose from; name the other codes, or use rule 1 alone",
    ),
    (
        "S6",
        "garments_as_a_set",
        lambda at: at.step.as_set and len(GARMENTS & {code[:4] for code in at.step.candidates}) >= _SEVERAL,
        "garments of several headings are a set, which section XI note 14 forbids; classify each in its own heading",
    ),
    (
        "S8",
        "suffix_before_line",
        lambda at: at.step.level == "suffix" and "line" not in at.chosen,
        "the suffix is compared before the 8-digit line is decided; add the step for the line",
    ),
    # rule 4 is for goods that rules 1 to 3 cannot classify; a tie is not such a case, as 3(c) breaks it
    (
        "S3",
        "fourth_rule_undue",
        lambda at: at.step.rule == "4" and at.is_settled,
        "rule 4 is used although another rule decided the {level}; remove one of them",
    ),
    (
        "S3",
        "fourth_rule_after_tie",
        lambda at: (
            at.step.rule == "4" and not at.is_settled and (last := at.last(*BEFORE_FOURTH)) and last.outcome == "tied"
        ),
        "rule 4 follows a tie; break the tie by rule 3, if necessary by 3c",
    ),
)
"""What is out of order at a single step: the rule of the order, the objection, whether it applies, and its text."""


def order_faults(steps: Sequence[Step], code: str | None) -> Iterator[Fault]:
    """Yield what is out of order in a trace.

    Args:
        steps: the steps in the order taken.
        code: the code of the goods as digits, which the trace has to lead to; None if there is none.
    """
    before: dict[Level, dict[Rule, Step]] = {}
    chosen: dict[Level, str] = {}
    settled = {step.level for step in steps if step.chosen and step.rule in BEFORE_FOURTH}
    for number, step in enumerate(steps, 1):
        if step.rule in PACKING:
            continue
        at = _At(step, before, chosen, settled)
        for order, objection, applies, text in ORDER:
            if applies(at):
                yield Fault(order, objection, number, text.format(rule=step.rule, level=step.level))
        of_level = before.setdefault(step.level, {})
        # the latest at the end
        of_level.pop(step.rule, None)
        of_level[step.rule] = step
        chosen |= {step.level: step.chosen} if step.chosen else {}
    if code is not None:
        yield from _end(steps, code)


def _end(steps: Sequence[Step], code: str) -> Iterator[Fault]:
    """S7: the trace decides a heading, and the code is under every code that the trace chooses."""
    if not any(step.level == "heading" and step.chosen and step.rule not in PACKING for step in steps):
        text = f"no step decides the heading of {dotted(code)}; add the step that decides it"
        yield Fault("S7", "no_step_for_the_heading", 0, text)
    # deeper steps follow from the first mismatch, so that one only
    for number, step in enumerate(steps, 1):
        if step.chosen and not is_under(code, step.chosen):
            text = f"{dotted(code)} is not under {dotted(step.chosen)}, chosen here; correct one of them"
            yield Fault("S7", "code_not_under_the_choice", number, text)
            break
