"""What answers write in many ways, in one form: codes by their grammar, the names of rules, and quotes."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args
from unicodedata import category

from pytest_packbench.model.errors import fold, single_spaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.packs.tariff.checks.sequence import TraceStep

LEVELS = (2, 4, 6, 8, 10)
_LONGEST = 40
_LINE = 8

# full-width forms and their ASCII characters; other compatibility characters, such as footnote marks, stay as they are
_FULL_WIDTH = {0xFF01 + offset: 0x21 + offset for offset in range(0x5E)}
# zero-width space, word joiner, byte order mark: left over at the ends of a copied text
_INVISIBLE = "\u200b\u2060\ufeff"
_QUOTATION_MARKS = frozenset({'""', "''", "``", "\u201c\u201d", "\u201e\u201c", "\u2018\u2019", "\u00ab\u00bb"})
_CODE = re.compile(
    r"""
    (?: HTS(?:US)? (?: [ \t]{1,2} (?:code|number|no\.|subheading|heading) )?
        (?: [ \t]? : | - )? [ \t]{0,2} )?
    (?P<heading> [0-9]{4} )
    (?: (?:\.|[ \t]{0,2}) (?P<subheading> [0-9]{2} )
    (?: (?:\.|[ \t]{0,2}) (?P<line> [0-9]{2} )
    (?: (?:\.|[ \t]{0,2}) (?P<suffix> [0-9]{2} ) )? )? )?
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
# one footnote mark: an asterisk or dagger, a superscript number or letter, a circled digit, [1], (1), (a)
_MARK = r"""
    (?: [*\u2020\u2021\u00a7\u00b6] | [\u00b9\u00b2\u00b3\u2074-\u2079] [\u00b9\u00b2\u00b3\u2070\u2074-\u2079]?
      | [\u1d43\u1d47\u1d9c\u1d48] | [\u2460-\u2468] | \[ (?:[1-9][0-9]?|[a-f]) \] | \( (?:[1-9]|[a-f]) \) )
    """
# up to three of them, or numbers as the schedule prints them: `1/`, after a space
_MARKS = re.compile(
    rf"""
    (?P<attached> [1-9][0-9]? / )?
    (?: (?: (?<=\S) , )? (?: [ \t]{{0,2}} {_MARK} | [ \t]{{1,2}} [1-9][0-9]? / ) ){{0,3}}
    \.?
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_PLAINLY = re.compile(r"[0-9]+([. ][0-9]+)*", re.ASCII)
_MARK_LETTER = re.compile(r"[a-z]", re.IGNORECASE)


def parse_code(text: str) -> str | None:
    """Return the digits of a text that is one code; None if it is anything else.

    A code has 4, 6, 8 or 10 digits, with a dot or a space between its pairs or without. `HTS` or `HTSUS` may stand
    before it, up to three footnote marks or a full stop behind it, quotation marks around it. Two codes, a range, a
    negation or a percentage are no code, and marks can't add one: together they have at most two digits, one behind a
    code of fewer than ten, and at most one letter.
    """
    # the steps of an answer name a few codes again and again; a longer text is kept nowhere
    return _known_codes(text) if len(text) <= _LONGEST else _parse(text)


def _parse(text: str) -> str | None:
    plain = _unquoted(_spaced(text))
    match = _CODE.match(plain)
    if match is None:
        return None
    # the longest code is the one: "6404.11.90 20/" is no line with the note 20
    code = "".join(part for part in match.groups() if part)
    return code if _are_marks(plain[match.end() :], len(code)) else None


_known_codes = lru_cache(maxsize=4096)(_parse)


def _spaced(text: str) -> str:
    plain = text.translate(_FULL_WIDTH)
    return plain if plain.isascii() else "".join(" " if category(char) == "Zs" else char for char in plain)


def _unquoted(text: str) -> str:
    """Return a text without white space, invisible characters and one pair of quotation marks around it."""
    plain = _trimmed(text)
    return _trimmed(plain[1:-1]) if plain[:1] + plain[-1:] in _QUOTATION_MARKS else plain


def _trimmed(text: str) -> str:
    return text.strip().strip(_INVISIBLE).strip()


def _are_marks(text: str, width: int) -> bool:
    """Return whether a text behind a code of so many digits is footnote marks, or a full stop, that add no code."""
    match = _MARKS.fullmatch(text)
    is_whole = width == LEVELS[-1]
    # behind fewer digits, "1/" could be the next ones
    if match is None or (match["attached"] and not is_whole):
        return False
    plain = unicodedata.normalize("NFKC", text)
    numbers = sum(char in "0123456789" for char in plain)
    return numbers <= (2 if is_whole else 1) and len(_MARK_LETTER.findall(plain)) <= 1


def digits(code: str) -> str:
    """Return the digits of a code (`6404.11.90 20`, `HTS 6402.99`), and of any other text all ASCII digits."""
    parsed = parse_code(code)
    if parsed is not None:
        return parsed
    text = unicodedata.normalize("NFKC", code)
    return "".join(char for char in text if char in "0123456789")


def chapter(code: str) -> str:
    """Return the first two digits of a code, its chapter; fewer where the code is shorter."""
    return digits(code)[:2]


def line_of(code: str) -> str:
    """Return the digits of a code; eight for ten that end in 00: a line with this suffix has no other."""
    plain = digits(code)
    return plain[:_LINE] if len(plain) == LEVELS[-1] and plain.endswith("00") else plain


def depth(left: str, right: str) -> int:
    """Return how many leading digits two codes share: 0, 2, 4, 6, 8 or 10."""
    left_digits, right_digits = digits(left), digits(right)
    agreed = 0
    for level in LEVELS:
        if min(len(left_digits), len(right_digits)) < level or left_digits[:level] != right_digits[:level]:
            break
        agreed = level
    return agreed


def is_under(code: str, prefix: str) -> bool:
    """Return whether `code` is `prefix` or a line below it; two codes in one string are under none."""
    code_digits, prefix_line = digits(code), line_of(prefix)
    if prefix_line != digits(prefix):
        return line_of(code) == prefix_line
    return bool(prefix_line) and len(code_digits) <= LEVELS[-1] and code_digits.startswith(prefix_line)


def dotted(code: str) -> str:
    """Format a code as the schedule prints it: `6404.11.90.20`."""
    plain = digits(code)
    return ".".join(part for part in (plain[:4], plain[4:6], plain[6:8], plain[8:]) if part)


def noted_like(code: str, others: Iterable[str]) -> str:
    """Format a code as the first of other codes with as many digits is written; without one as `dotted`."""
    plain = digits(code)
    plainly = [other for other in others if _PLAINLY.fullmatch(other)]
    for other in plainly:
        if len(digits(other)) == len(plain):
            following = iter(plain)
            return "".join(next(following) if sign.isdigit() else sign for sign in other)
    return plain if plainly and all(map(str.isdigit, plainly)) else dotted(plain)


MIN_QUOTE = 20
"""The fewest characters of a quote that shows anything; a shorter document may be quoted as a whole."""

# quotation marks and brackets around a quote, and punctuation that a sentence adds to it
_ENDS = " \"'.,;:()[]"
# a position inside a word or number: "co|tton", "non-|woven", "99.|5"
_INSIDE_WORD = re.compile(
    r"(?<=\w)(?=\w) | (?<=\w-)(?=\w) | (?<=\w)(?=-\w) | (?<=\d[.,])(?=\d) | (?<=\d)(?=[.,]\d)", re.VERBOSE
)


def occurs_in(quote: str, text: str) -> bool:
    """Return whether a quote stands in a text, from one word boundary to another: "60 %" does not occur in "160 %"."""
    start = text.find(quote)
    while start >= 0:
        if not (_INSIDE_WORD.match(text, start) or _INSIDE_WORD.match(text, start + len(quote))):
            return True
        start = text.find(quote, start + 1)
    return False


def readable(text: str) -> str:
    """Return a text as quotes are compared: without differences of white space, typography and case."""
    return single_spaced(fold(text).replace("`", "'")).casefold()


def stands_in(quote: str, text: str) -> bool:
    """Return whether a quote stands in a document; marks and brackets around it and an ellipsis are ignored."""
    plain = readable(quote).strip(_ENDS)
    return bool(plain) and occurs_in(plain, readable(text))


def is_long_enough(quote: str, text: str) -> bool:
    """Return whether a quote that stands in a document is long enough to show anything."""
    plain = readable(quote).strip(_ENDS)
    return len(plain) >= min(MIN_QUOTE, len(readable(text).strip(_ENDS)))


Rule = Literal["1", "2a", "2b", "3a", "3b", "3c", "4", "5a", "5b", "6", "us_1a", "us_1b", "us_1c", "us_1d"]
Level = Literal["heading", "subheading", "line", "suffix"]
RULES: tuple[str, ...] = get_args(Rule)
_LEVELS: tuple[str, ...] = get_args(Level)
_BESIDE = frozenset({"5a", "5b", "us_1a", "us_1b", "us_1c", "us_1d"})
"""Rules that apply beside the one that decides."""
_ROUTINE = "6"
# "GRI 3(b)", "General Rule of Interpretation 1", "Additional U.S. Rule 1(c)" without spaces and punctuation
_RULE = re.compile(
    r"""
    (?: gri | gir | general (?: rules? (?: (?:of|forthe)interpretation )? | interpret(?:at)?iverules? ) )?
    (?P<us> (?: add(?:itional|l)? )? us )?
    (?: rules? (?: ofinterpretation )? )?
    (?P<number> [1-6] [a-d]? )
    """,
    re.VERBOSE,
)


def parse_rule(value: object) -> Rule | None:
    """Return a rule in one spelling: `3b` for `3(b)`, `GRI 3(b)`, `gri_3b`; `1` for the number 1; else None."""
    # true is an integer too, but no rule; "-1" loses its sign below
    if type(value) is int and value > 0:
        value = str(value)
    if not isinstance(value, str):
        return None
    match = _RULE.fullmatch(re.sub(r"[\s_.()\-]", "", value.lower()))
    if match is None:
        return None
    short = f"us_{match['number']}" if match["us"] else match["number"]
    return short if short in RULES else None  # type: ignore[return-value]  # a member of the literal


def deciding_rules(steps: Sequence[TraceStep]) -> list[str]:
    """Return the rules that decide a trace.

    They are those of the heading or, where rule 1 decides it, of the level below it that another rule decides. Rule 6
    opens every level below the heading, and rule 5 and the Additional US Rules apply beside others, so none of them
    decides. More than one rule for a level contradict each other.
    """
    by_level = [_decided(steps, level) for level in _LEVELS]
    below = next((rules for rules in reversed(by_level[1:]) if rules), [])
    return below if by_level[0] == ["1"] and below else by_level[0]


def _decided(steps: Sequence[TraceStep], level: str) -> list[str]:
    rules = (step.rule for step in steps if step.level == level and step.outcome == "decided")
    return list(dict.fromkeys(rule for rule in rules if rule not in _BESIDE and rule != _ROUTINE))


def rules_beside(steps: Sequence[TraceStep]) -> set[str]:
    """Return the rules of packing and of the United States that a trace decides by."""
    return {step.rule for step in steps if step.outcome == "decided" and step.rule in _BESIDE}
