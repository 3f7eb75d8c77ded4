"""How the labels of answers agree with the expected ones: a confusion matrix, precision, recall and F1 of each label.

A case counts once, as in all rates; of several trials by one with a wrong label, if any. A case without an answer (an
error) is in no number. What has nothing to be counted among is not known, which is not 0: a label that no answer has
has no precision.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.analysis.statistics import rate_interval
from pytest_packbench.model.errors import pluralize, single_spaced
from pytest_packbench.model.suite import Figure, Panel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_packbench.model.result import Labels

PRECISION, RECALL, F1 = "precision", "recall", "F1"
NO_LABEL = "(none)"
"""The name of the row of cases that expect no label, and of the column of answers without one."""
OTHERS = "(others)"
"""The name of the column of the labels that no case expects, but for the most frequent ones."""
# what they are called in a confusion: no label is empty
_OTHERS = ""
_SHOWN = 20
_MAX_LENGTH = 80
_DEFINITIONS = {
    PRECISION: "Answers with the {noun} {label} to cases that expect it, among all answers with it.",
    RECALL: "Answers with the {noun} {label}, among the cases that expect it.",
    F1: "Twice the right answers with the {noun} {label}, among the answers with it and the cases that expect it: the"
    " harmonic mean of precision and recall.",
}


class Share(NamedTuple):
    """A part of a total; with a total of 0 it is not known."""

    part: int
    total: int

    @property
    def value(self) -> float | None:
        """The share, 0 to 1; None if it is not known."""
        return self.part / self.total if self.total else None


@dataclass(frozen=True)
class Confusion:
    """How often each label was given where another one, or the same, was expected.

    Attributes:
        pairs: the number of answers by expected and given label; None for a case that expects none, and for an answer
            without one.
    """

    pairs: Mapping[tuple[str | None, str | None], int] = field(default_factory=dict)

    @classmethod
    def of(cls, labels: Mapping[Labels | None, int]) -> Confusion:
        """Return the sum over answers: the labels of one, and how many have the same."""
        pairs: Counter[tuple[str | None, str | None]] = Counter()
        for each, number in labels.items():
            for pair in each or ():
                pairs[pair] += number
        return cls(pairs)

    @property
    def expected(self) -> list[str]:
        """The labels that cases expect, sorted."""
        return sorted({label for label, _ in self.pairs if label is not None})

    @property
    def known(self) -> list[str]:
        """The labels that cases expect or answers have, sorted."""
        return sorted({label for pair in self.pairs for label in pair if label is not None})

    @cached_property
    def _counts(self) -> tuple[Counter[str | None], ...]:
        """The number of right answers, of cases and of answers by label; None for all labels together."""
        right, expected, given = counts = (Counter[str | None](), Counter[str | None](), Counter[str | None]())
        for (due, answered), number in self.pairs.items():
            for count, label, counts_here in (
                (right, due, due == answered),
                (expected, due, True),
                (given, answered, True),
            ):
                if label is not None and counts_here:
                    count[label] += number
                    count[None] += number
        return counts

    def share(self, kind: str, label: str | None = None) -> Share:
        """Return the precision, the recall or F1 of a label, or of all labels together.

        Args:
            kind: `PRECISION`, `RECALL` or `F1`.
            label: the label; None for all.
        """
        right, expected, given = (count[label] for count in self._counts)
        if kind == F1:
            return Share(2 * right, expected + given)
        return Share(right, given if kind == PRECISION else expected)

    def figures(self, noun: str, *, sampled: bool) -> Iterator[Figure]:
        """Yield the figures of a run; none without a label.

        Args:
            noun: what a label is: `label`, `chapter`.
            sampled: whether the answers are a sample of a model's, so that intervals apply.
        """
        if not self.expected:
            return

        def figure(kind: str, label: str | None) -> Figure:
            share = self.share(kind, label)
            name, definition = (
                f"{kind}, all {noun}s",
                f"Answers with the expected {noun}, among the cases that expect one.",
            )
            if label is not None:
                shown = single_spaced(_cell(label))
                name, definition = f"{kind} of {shown}", _DEFINITIONS[kind].format(noun=noun, label=shown)
            return Figure(
                name=name,
                definition=definition,
                count=share.part,
                total=share.total,
                # F1 is no share of independent answers
                interval=rate_interval(*share) if sampled and kind != F1 and share.total else None,
                group=f"{noun}s",
                headline=label is None and kind == RECALL,
                note="" if share.total else f"no answer with this {noun}",
            )

        expected = self.expected
        f1 = {label: self.share(F1, label).value or 0.0 for label in expected}
        shown = self._worst(expected)
        hidden = _shown_of(len(shown), len(expected), noun)
        yield figure(RECALL, None)
        yield Figure(
            name="macro F1",
            definition=f"The mean of F1 over the {noun}s that cases expect.",
            number=sum(f1.values()) / len(f1),
            group=f"{noun}s",
            headline=True,
            note=f"figures of {hidden}" if hidden else "",
        )
        for label in sorted(shown, key=lambda each: (f1[each], each)):
            yield from (figure(kind, label) for kind in (PRECISION, RECALL, F1))

    def panels(self, noun: str) -> Iterator[Panel]:
        """Yield the tables of a run's page; none without a label.

        Args:
            noun: what a label is, in one word.
        """
        if not self.expected:
            return
        yield self.matrix(noun)
        known = self.known
        shown = sorted(self._worst(known))
        intro = f"An empty cell is not known: no answer has this {noun}, or no case expects it."
        hidden = _shown_of(len(shown), len(known), noun)
        yield Panel(
            title=f"Precision and recall by {noun}",
            intro=f"{intro} Here are {hidden}." if hidden else intro,
            head=(noun, "expected", "given", PRECISION, RECALL, F1),
            rows=tuple(
                (
                    _cell(label),
                    self.share(RECALL, label).total,
                    self.share(PRECISION, label).total,
                    *(_rounded(self.share(kind, label)) for kind in (PRECISION, RECALL, F1)),
                )
                for label in shown
            ),
        )

    def _worst(self, labels: Sequence[str]) -> list[str]:
        """Return the labels with most errors, of cases that expect them and of answers that have them."""
        right, expected, given = self._counts
        return sorted(labels, key=lambda each: (2 * right[each] - expected[each] - given[each], each))[:_SHOWN]

    def matrix(self, noun: str) -> Panel:
        """Return the confusion matrix: a row for each expected label that was confused, a column for each given one.

        Of many labels, it has a row for those that were confused most often, and a column for those, and the wrong
        ones, that were given most often in these rows.
        """
        wrong: Counter[str | None] = Counter()
        for (due, given), number in self.pairs.items():
            wrong[due] += number if given != due else 0
        confused = +wrong
        rows = _most(confused)
        # a column that is 0 in each row has no meaning
        found: Counter[str | None] = Counter()
        for (due, given), number in self.pairs.items():
            found[given] += number if due in rows else 0
        kept = {None, *rows, *_most(+found)}
        cells: Counter[tuple[str | None, str | None]] = Counter()
        for (due, given), number in self.pairs.items():
            if due in rows:
                cells[due, given if given in kept else _OTHERS] += number
        columns = sorted({given for _, given in cells}, key=_last)
        right, total = self.share(RECALL)
        only = f"; only {noun}s with another answer are shown" if confused else ""
        hidden = _shown_of(len(rows), len(confused), noun)
        return Panel(
            title=f"Confusion by {noun}",
            intro=f"{right} of {pluralize(total, 'answer')} due with a {noun} have the expected one{only}"
            + (f": {hidden}." if hidden else "."),
            head=("expected", *map(_cell, columns)) if confused else (),
            rows=tuple((_cell(row), *(cells[row, column] for column in columns)) for row in sorted(rows, key=_last)),
            matrix=True,
        )


def _most(counts: Counter[str | None]) -> set[str | None]:
    """Return the labels with the highest counts."""
    return set(sorted(counts, key=lambda each: (-counts[each], _last(each)))[:_SHOWN])


def _shown_of(shown: int, total: int, noun: str) -> str:
    """Return how many labels of how many are shown; empty where all are."""
    return f"the {shown} of {total:,} {noun}s with most errors" if shown < total else ""


NO_LABELS = Confusion()
"""The confusion of a run without labels."""


def _cell(label: str | None) -> str:
    named = {None: NO_LABEL, _OTHERS: OTHERS}
    # a real label that is called so is shown in quotes
    text = named.get(label) or (json.dumps(label) if label in named.values() else str(label))
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def _last(label: str | None) -> tuple[bool, str]:
    return label is None, label or ""


def _rounded(share: Share) -> float | None:
    return None if share.value is None else round(share.value, 3)
