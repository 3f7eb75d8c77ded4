"""What every term of a score sees: a case, its answer, the suite's rules and schedule, and how the codes match."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.model.result import TOLERANCE, Term
from pytest_packbench.packs.tariff.edition import describe_unlisted, load_edition
from pytest_packbench.packs.tariff.notation import depth, digits, dotted, is_under

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.packs.tariff.answer import Classification, Dossier, TariffAnswer, WhatIf
    from pytest_packbench.packs.tariff.edition import Edition, EditionName, GeneralRate
    from pytest_packbench.packs.tariff.model import (
        ExpectedArticle,
        SavingTarget,
        TariffCase,
        TariffExpected,
        TariffSuiteConfig,
    )

NO_MATCH, EXTRA = "none", "extra"
_SHORTEST_PREFIX = 6
_CHAPTER, _FULL = 2, 10
_DEPTH_WEIGHT = 1e-6
DEPTHS = {0: "none", 2: "chapter", 4: "heading", 6: "subheading", 8: "eight digits", 10: "ten digits"}
"""How deep a code agrees, by the number of its first digits that are right."""


class Match(NamedTuple):
    """How a code matches the expected ones.

    Attributes:
        level: `preferred`, `allowed`, `ladder_8`, `ladder_6`, `ladder_4`, `chapter` or `none`; `extra` for an article
            that the case does not have.
        points: its credit, 0 to 1.
        depth: the most leading digits that it shares with a preferred code, as far as it is in the schedule.
        code: its digits; empty without one.
        detail: the code, and what it matches.
        invalid: why it is not in the schedule; empty if it is, or without a schedule.
    """

    level: str
    points: float
    depth: int
    code: str
    detail: str
    invalid: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the code is a preferred or an allowed one."""
        return self.level in {"preferred", "allowed"}

    @property
    def known_depth(self) -> int:
        """The depth, and 10 for a code that is right to all digits that the case expects: nothing deeper is known."""
        return _FULL if self.level == "preferred" else self.depth


_MISSING = Match(NO_MATCH, 0.0, 0, "", "the answer has no such article")


class Pair(NamedTuple):
    """An article of the case with the article of the answer that is compared with it.

    Attributes:
        expected: the article of the case.
        number: the position of that of the answer; None where the answer has too few.
        match: how its code matches.
    """

    expected: ExpectedArticle
    number: int | None
    match: Match


@dataclass(frozen=True)
class Judged:
    """An answer to a case, with the rules and the schedule by which it is judged."""

    case: TariffCase
    answer: TariffAnswer
    rules: TariffSuiteConfig
    edition: Edition | None = None

    @classmethod
    def of(cls, case: TariffCase, answer: TariffAnswer, rules: TariffSuiteConfig) -> Judged:
        """Return an answer with the schedule that its suite names."""
        return cls(case, answer, rules, edition_of(rules.schedule))

    @property
    def expected(self) -> TariffExpected:
        """The expectations of the case."""
        return self.case.expected

    @property
    def dossier(self) -> Dossier:
        """The dossier of the answer; an empty one where there is none."""
        return self.answer.dossier

    @property
    def targets(self) -> Sequence[SavingTarget]:
        """The savings that the case accepts."""
        return self.expected.savings.targets if self.expected.savings else ()

    @property
    def scored(self) -> Classification | None:
        """The part whose code is scored: the goods as they are, or (`scored_code: final`) after the best change."""
        best = self.dossier.optimized if self.rules.scored_code == "final" else None
        return best or self.dossier.baseline

    @property
    def judges_changes(self) -> bool:
        """Whether changes of the goods are judged: where the goods as they are are scored, or the request lists any."""
        return self.rules.scored_code == "baseline" or bool(self.case.input.options.changes)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Each article of the case with that of the answer: by their names where these are unique, else at best."""
        wanted, given = self.expected.articles or (), self.dossier.articles
        table = [[self.match(article, item.baseline.hts_code) for item in given] for article in wanted]
        weights = [[match.points + match.depth * _DEPTH_WEIGHT for match in row] for row in table]
        columns = _by_name(wanted, [item.article for item in given]) or assign(weights)
        return tuple(
            Pair(article, column, _MISSING if column is None else row[column])
            for article, row, column in zip(wanted, table, columns, strict=True)
        )

    @cached_property
    def matches(self) -> tuple[Match, ...]:
        """One match; of several articles one for each of the case, in its order, and one for each that is too many."""
        if not self.expected.articles:
            return (self.match(self.expected, self.scored.hts_code if self.scored else ""),)
        used = {pair.number for pair in self.pairs}
        extra = (item.baseline.hts_code for number, item in enumerate(self.dossier.articles) if number not in used)
        return (
            *(pair.match for pair in self.pairs),
            *(Match(EXTRA, 0.0, 0, code, f"{dotted(code)} is of no article of the case") for code in extra),
        )

    @property
    def is_right(self) -> bool:
        """Whether the code, or that of each article, is a preferred or an allowed one, and none is too many."""
        return all(match.is_right for match in self.matches)

    def match(self, expected: TariffExpected | ExpectedArticle, code: str) -> Match:
        """Match a code with the expected ones.

        An expected code of 6 or 8 digits matches every line below it. A code that is not in the schedule counts as far
        as it is, and never as a preferred or an allowed one.

        Args:
            expected: the codes.
            code: the digits of the code; empty without one.
        """
        if not code:
            return Match(NO_MATCH, 0.0, 0, "", "the answer contains no code")
        earned, existing = self.rules.scoring, self.edition.existing(code) if self.edition else code
        agreed = max((depth(each, existing) for each in expected.preferred_hts), default=0)
        for level, codes in (("preferred", expected.preferred_hts), ("allowed", expected.allowed_hts or ())):
            if found := next((each for each in codes if existing == code and _fits(code, each)), None):
                return Match(level, getattr(earned, level), agreed, code, f"{dotted(code)} matches {found}")
        partial = [(f"ladder_{step}", points) for step, points in earned.ladder.items() if agreed >= int(step)]
        partial += [("chapter", earned.chapter)] if agreed >= _CHAPTER else []
        level, points = max(partial, key=lambda credit: credit[1], default=(NO_MATCH, 0.0))
        said = f"the first {agreed} digits match" if agreed else "no digits match"
        invalid = "" if existing == code else describe_unlisted(dotted(code), existing)
        return Match(level, points, agreed, code, f"{dotted(code)}: {said}", invalid)

    def general(self, code: str) -> GeneralRate | None:
        """Return the general rate of a code; None without a schedule, or if it has none there."""
        return self.edition.rate(code) if self.edition else None

    def target(self, what_if: WhatIf) -> SavingTarget | None:
        """Return the accepted saving to which a what-if leads, by its change and its code; None if it does not."""
        by_change = (each for each in self.targets if each.change == what_if.change)
        return next((each for each in by_change if is_under(what_if.expected_hts, each.code)), None)

    def rate_after(self, what_if: WhatIf) -> float | None:
        """Return the rate after a change, percent of value: the one that the case lists, else the general one.

        None if that is no percentage, and for goods of another origin, which a preference may favour.
        """
        target = self.target(what_if)
        if target and target.rate_pct is not None:
            return target.rate_pct
        general = self.general(what_if.expected_hts)
        return None if general is None or (target is None and what_if.kind == "origin") else general.pct

    def delta(self, what_if: WhatIf) -> float | None:
        """Return the difference that a change makes by the schedule, percentage points; None without both rates."""
        baseline, after = self.dossier.baseline, self.rate_after(what_if)
        before = self.general(baseline.hts_code) if baseline else None
        return None if before is None or before.pct is None or after is None else after - before.pct

    def forbidden(self) -> Iterator[str]:
        """Yield each code of the answer that the case forbids, with the code that forbids it.

        Where the code after the best change is scored, that of the goods as they are recommends nothing, nor does what
        the interpretation rules choose for them; elsewhere both count, and codes only compared do not. A code after a
        change is not forbidden where the case accepts it as a saving. A code that matches no article is taken for any
        that is missing or, where none is and no article wants it, for any at all.
        """
        dossier, pairs = self.dossier, self.pairs
        after = [what_if.expected_hts for what_if in dossier.what_if_candidates]
        after += [dossier.optimized.hts_code] if dossier.optimized else []
        now = (self.scored, *(item.baseline for item in dossier.articles))
        codes = [part.hts_code for part in now if part]
        # where the goods as they are count, so does what the rules choose for them
        codes += dossier.decided if self.scored is dossier.baseline else []
        codes += [code for item in dossier.articles for code in item.decided]
        codes += [code for code in after if not _any_under(code, [each.code for each in self.targets])]
        checked = [(code, self.expected.must_not_hts or ()) for code in codes]
        matched = {pair.number: [pair.expected] for pair in pairs if pair.match.points}
        missing = [pair.expected for pair in pairs if not pair.match.points]
        for number, item in enumerate(dossier.articles):
            code = item.baseline.hts_code
            is_wanted = _any_under(code, self.expected.all_preferred)
            others = missing or ([] if is_wanted else [pair.expected for pair in pairs])
            forbidding = [article.must_not_hts or () for article in matched.get(number, others)]
            checked += [(each, prefixes) for each in (code, *item.decided) for prefixes in forbidding]
        named = ((code, prefix) for code, prefixes in checked for prefix in prefixes)
        found = dict.fromkeys((code, prefix) for code, prefix in named if is_under(code, prefix))
        # of a code and its beginnings, which steps choose, the code alone
        begun = {(code[:width], prefix) for code, prefix in found for width in range(len(code))}
        for code, prefix in found:
            if (code, prefix) not in begun:
                yield f"{dotted(code)} is under the forbidden code {prefix}"


def edition_of(schedule: EditionName | None) -> Edition | None:
    """Return the schedule that a suite names; None without one."""
    return None if schedule is None else load_edition(schedule)


def add(name: str, points: float, detail: str = "") -> Term:
    """Return a term that adds points."""
    return Term(name=name, value=points, detail=detail)


def zero(name: str, detail: str) -> Term:
    """Return a hard fail: the score is exactly 0."""
    return Term(name=name, effect="zero", detail=detail)


def note(name: str, detail: str) -> Term:
    """Return a remark that does not change the score."""
    return Term(name=name, effect="note", detail=detail)


def _fits(code: str, expected: str) -> bool:
    return is_under(code, expected) and (len(digits(expected)) >= _SHORTEST_PREFIX or code == digits(expected))


def _any_under(code: str, prefixes: Iterable[str]) -> bool:
    return any(is_under(code, prefix) for prefix in prefixes)


def _by_name(wanted: Sequence[ExpectedArticle], names: Sequence[str]) -> list[int | None] | None:
    """Return the position of each article of the case by its name; None unless each has the name of another one."""
    known = [_words(article.name) for article in wanted]
    found: dict[int, int] = {}
    for column, name in enumerate(map(_words, names)):
        rows = [row for row, each in enumerate(known) if each == name]
        rows = rows or [row for row, each in enumerate(known) if each in name]
        found |= {rows[0]: column} if len(rows) == 1 else {}
    return [found.get(row) for row in range(len(wanted))] if len(found) == len(names) else None


def _words(name: str) -> str:
    words = " ".join(re.findall(r"\w+", name.casefold()))
    return f" {words} "


def assign(weights: Sequence[Sequence[float]]) -> list[int | None]:
    """Assign a column to each row, each column once, so that the sum of weights is the highest.

    One row after another takes a column, by the chain of changes that gains most: it takes the column of an earlier
    row, which takes that of another one, and so on to a free column.

    Args:
        weights: 0 or more for each row and column.

    Returns:
        The column of each row; None where there are fewer columns than rows.
    """
    given = len(weights[0]) if weights else 0
    # a column of weight 0 for each row that gets none
    padded = [[*row, *[0.0] * (len(weights) - given)] for row in weights]
    row_of: dict[int, int] = {}
    for row, own in enumerate(padded):
        chains = {column: (weight, [column]) for column, weight in enumerate(own)}
        # a chain moves each earlier row at most once
        for column, other in [*row_of.items()] * row:
            gain, chain = chains[column]
            for target, weight in enumerate(padded[other]):
                more = gain - padded[other][column] + weight
                if more > chains[target][0] + TOLERANCE:
                    chains[target] = (more, [*chain, target])
        _, chain = max(each for column, each in chains.items() if column not in row_of)
        for column, target in reversed([*pairwise(chain)]):
            row_of[target] = row_of[column]
        row_of[chain[0]] = row
    columns = {row: column for column, row in row_of.items() if column < given}
    return [columns.get(row) for row in range(len(weights))]
