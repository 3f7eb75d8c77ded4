"""Answers about several articles: each code of the answer is matched with one expected article, in the best way."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.model.errors import format_value
from pytest_packbench.model.result import Term
from pytest_packbench.packs.tariff.notation import is_under, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_packbench.packs.tariff.model import ExpectedArticle, TariffExpected
    from pytest_packbench.packs.tariff.outcome import ArticleAnswer
    from pytest_packbench.packs.tariff.scoring import Match

MATCH = "article_match"
MISSING = "article_missing"
EXTRA = "article_extra"
_MAX_SHOWN = 20
# decides between matches of equal points
_DEPTH_WEIGHT = 1e-6


class MatchedArticle(NamedTuple):
    """An expected article with the code of the answer that fits it best.

    Attributes:
        expected: the article.
        answer: the article of the answer; None if none is left that matches.
        match: how its code matches; None without one.
    """

    expected: ExpectedArticle
    answer: ArticleAnswer | None
    match: Match | None


class MatchedArticles(NamedTuple):
    """The articles of a case and of an answer, matched one to one.

    Attributes:
        pairs: one for each expected article, in the order of the case.
        extra: the articles of the answer that match none, with the reason for each.
        divisor: by how many the sum of points is divided: the larger number of articles.
    """

    pairs: tuple[MatchedArticle, ...]
    extra: tuple[tuple[ArticleAnswer, Match], ...]
    divisor: int

    @property
    def depth(self) -> int:
        """The smallest depth of an article, `Match.known_depth`; 0 for one without a code that matches."""
        return min((pair.match.known_depth if pair.match else 0 for pair in self.pairs), default=0)

    @property
    def level(self) -> str:
        """`preferred` or `allowed` if all articles match so and none is extra; else `articles`, or `none`."""
        levels = {pair.match.level if pair.match else "none" for pair in self.pairs}
        if not self.extra and levels <= {"preferred", "allowed"}:
            return "allowed" if "allowed" in levels else "preferred"
        return "none" if levels == {"none"} else "articles"


def match_articles(
    expected: Sequence[ExpectedArticle],
    answers: Sequence[ArticleAnswer],
    match: Callable[[ExpectedArticle, ArticleAnswer], Match],
) -> MatchedArticles:
    """Match the articles of an answer one to one with the expected ones.

    Where every article of the answer clearly has the name of another expected one, names decide. Else names do not
    matter, and the sum of points is the highest. The order never matters.

    Args:
        expected: the articles of the case.
        answers: the articles of the answer.
        match: how the code of an answer matches an expected article.
    """
    matches = [[match(article, answer) for answer in answers] for article in expected]
    weights = [[found.points + _DEPTH_WEIGHT * found.depth for found in row] for row in matches]
    pairs, used = [], set()
    for row, column in enumerate(_by_name(expected, answers) or assign(weights)):
        found = None if column is None else matches[row][column]
        if column is None or found is None or found.points == 0:
            pairs.append(MatchedArticle(expected[row], None, None))
        else:
            used.add(column)
            pairs.append(MatchedArticle(expected[row], answers[column], found))
    extra = tuple((answers[column], matches[0][column]) for column in range(len(answers)) if column not in used)
    return MatchedArticles(tuple(pairs), extra, max(len(expected), len(answers)))


def _by_name(expected: Sequence[ExpectedArticle], answers: Sequence[ArticleAnswer]) -> list[int | None] | None:
    """Return the answer of each expected article by its name; None unless each has the name of another article."""
    columns: list[int | None] = [None] * len(expected)
    names = [_words(article.name) for article in expected]
    for column, answer in enumerate(answers):
        given = _words(answer.name)
        rows = [row for row, name in enumerate(names) if name == given]
        rows = rows or [row for row, name in enumerate(names) if f" {name} " in f" {given} "]
        if len(rows) != 1 or columns[rows[0]] is not None:
            return None
        columns[rows[0]] = column
    return columns


def _words(name: str) -> str:
    return " ".join(re.findall(r"\w+", name.casefold()))


def assign(weights: Sequence[Sequence[float]]) -> list[int | None]:
    """Assign a column to each row, each column once, so that the sum of weights is the highest (Hungarian method).

    Args:
        weights: 0 or more for each row and column.

    Returns:
        The column of each row; None where there are fewer columns than rows.
    """
    rows, given = len(weights), len(weights[0]) if weights else 0
    columns = max(rows, given)
    cost = [[-row[column] if column < given else 0.0 for column in range(columns)] for row in weights]
    # potentials of rows and columns, and the row of each column; number 0 is the row that is being added
    row_potential, column_potential, row_of = [0.0] * (rows + 1), [0.0] * (columns + 1), [0] * (columns + 1)
    for row in range(1, rows + 1):
        row_of[0], column = row, 0
        slack, before, seen = [math.inf] * (columns + 1), [0] * (columns + 1), [False] * (columns + 1)
        while row_of[column]:
            seen[column] = True
            current, step, following = row_of[column], math.inf, 0
            for other in range(1, columns + 1):
                if seen[other]:
                    continue
                reduced = cost[current - 1][other - 1] - row_potential[current] - column_potential[other]
                if reduced < slack[other]:
                    slack[other], before[other] = reduced, column
                if slack[other] < step:
                    step, following = slack[other], other
            for other in range(columns + 1):
                if seen[other]:
                    row_potential[row_of[other]] += step
                    column_potential[other] -= step
                else:
                    slack[other] -= step
            column = following
        while column:
            row_of[column], column = row_of[before[column]], before[column]
    assigned = {row: column for column, row in enumerate(row_of) if row and column}
    return [column - 1 if (column := assigned[row]) <= given else None for row in range(1, rows + 1)]


def article_terms(articles: MatchedArticles) -> Iterator[Term]:
    """Yield a term for each expected article, and for each of the answer that matches none."""
    for expected, answer, match in articles.pairs:
        if answer is None or match is None:
            yield Term(name=MISSING, detail=f"{expected.name}: no code of the answer matches")
        else:
            detail = f"{expected.name}: {match.detail} ({match.level}), one of {articles.divisor}"
            yield Term(name=MATCH, value=match.points / articles.divisor, detail=detail)
    for answer, _ in articles.extra[:_MAX_SHOWN]:
        code = "no code" if answer.code is None else format_value(answer.code)
        yield Term(name=EXTRA, detail=f"{_label(answer)}{code} matches no article")
    if len(articles.extra) > _MAX_SHOWN:
        yield Term(name=EXTRA, detail=f"{len(articles.extra) - _MAX_SHOWN} more match no article")


def forbidden_articles(articles: MatchedArticles, expected: TariffExpected) -> Iterator[str]:
    """Yield each forbidden code of an answer.

    A code is forbidden for every article by `must_not_hts` of the case, and by that of the article that it is matched
    with. One that matches no article is taken for any that is missing or, where none is and no article wants the code,
    for any at all.
    """
    everywhere = expected.must_not_hts or ()
    missing = [pair.expected for pair in articles.pairs if pair.answer is None]
    given = [(pair.answer, [pair.expected]) for pair in articles.pairs if pair.answer is not None]
    for answer, _ in articles.extra:
        is_wanted = any(is_under(answer.code or "", code) for code in expected.all_preferred)
        given.append((answer, missing or ([] if is_wanted else [pair.expected for pair in articles.pairs])))
    for answer, possible in given:
        prefixes = (*everywhere, *(code for article in possible for code in article.must_not_hts or ()))
        code = answer.code or ""
        matched = next((prefix for prefix in prefixes if is_under(code, prefix)), None)
        if matched is not None:
            yield f"{_label(answer)}{format_value(code)} is under the forbidden code {matched}"


def best_wrong_score(count: int, partial: float) -> float:
    """Return the most that an answer with one wrong or one extra article scores, without a bonus.

    Args:
        count: how many articles are expected.
        partial: the credit of a wrong code of the right chapter, 0 to 1.
    """
    return max((count - 1 + partial) / count, count / (count + 1))


def describe_articles(expected: Sequence[ExpectedArticle]) -> str:
    """Describe the expected articles with their preferred codes in one line."""
    return "; ".join(f"{article.name} {' or '.join(article.preferred_hts)}" for article in expected)


def describe_answers(answers: Sequence[ArticleAnswer]) -> str:
    """Describe the articles of an answer with their codes in one line."""
    shown = [f"{_label(answer)}{answer.code or 'no code'}" for answer in answers[:_MAX_SHOWN]]
    more = [f"and {len(answers) - _MAX_SHOWN} more"] if len(answers) > _MAX_SHOWN else []
    return "; ".join([*shown, *more]) or "none"


def same_code(left: str | None, right: str | None) -> bool:
    """Return whether two codes are the same line."""
    return line_of(left or "") == line_of(right or "")


def _label(answer: ArticleAnswer) -> str:
    return f"{format_value(answer.name)}: " if answer.name else ""
