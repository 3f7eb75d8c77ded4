"""Which column becomes what of a case."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from pytest_packbench.cases.load import parse_json
from pytest_packbench.model.case import CASE_ID, Difficulty, canonical_sha256
from pytest_packbench.model.errors import shown
from pytest_packbench.model.pack import Draft, Flaw
from pytest_packbench.packs.generic.paths import MISSING, compile_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.packs.generic.importing.sources import Row

PACK = "generic"
_LONGEST_ID = 120
_LONGEST_TYPE = 80
_HASH = 16
_SHORT_HASH = 8
_TAGS = re.compile(r"[,;]")
_DIFFICULTIES = get_args(Difficulty)


class _RowError(ValueError):
    """What is wrong with one row."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and the key that its value gets in the case.

    Attributes:
        name: the column, or a key of a JSON object, or a JSON pointer.
        key: the key; None where the value stands for the whole.
    """

    name: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that is the same for all rows."""

    text: str


Given = Column | Fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """How a row becomes a case.

    Attributes:
        id: where the id comes from; None for the column `id`, else the hash of input and expected.
        input: one column without a key for the value itself, else an object of keys.
        expected: likewise.
        case_type: the case type; None for the column `case_type`, else `plain`. What it can't hold becomes `_`.
        difficulty: None for the column `difficulty`, else `medium`.
        tags: a list, or a text with commas or semicolons; None for the column `tags`, else none.
        source: where the expected answer comes from.
        date: the day on which it was true; None for the column `date`, else none.
        as_json: columns of text that hold JSON.
        omit_empty: whether an empty text is left out of `input` and `expected`.
    """

    id: Column | None
    input: tuple[Column, ...]
    expected: tuple[Column, ...]
    case_type: Given | None
    difficulty: Given | None
    tags: Given | None
    source: Given
    date: Given | None
    as_json: frozenset[str]
    omit_empty: bool

    def draft(self, row: Row) -> Draft | Flaw:
        """Make the draft of a case of a row."""
        try:
            return Draft(place=row.place, case=self._case(row))
        except _RowError as error:
            return Flaw(place=row.place, message=str(error))

    def _case(self, row: Row) -> dict[str, Any]:
        given = self._of(self.input, row)
        expected = self._of(self.expected, row)
        case_type = self._text(self.case_type or _default("case_type", row, "plain"), row, "case type")
        difficulty = self._text(self.difficulty or _default("difficulty", row, "medium"), row, "difficulty")
        return {
            "id": self._id(row, given, expected),
            "pack_id": PACK,
            "case_type": _case_type(case_type),
            "difficulty": _difficulty(difficulty),
            "input": given,
            "expected": expected,
            "notes": self._notes(row),
        }

    def _notes(self, row: Row) -> dict[str, Any]:
        found = {
            "source": self._text(self.source, row, "source"),
            "date": self._text(self.date or _default("date", row, ""), row, "date"),
            "tags": _tags(self._one(self.tags or _default("tags", row, ""), row)),
        }
        return {key: value for key, value in found.items() if value}

    def _id(self, row: Row, given: Any, expected: Any) -> str:
        column = self.id or _default("id", row, "")
        if isinstance(column, Fixed):
            return f"case_{canonical_sha256([given, expected])[:_HASH]}"
        text = self._text(column, row, "id")
        if not text:
            raise _RowError(f'the id is empty; fill the column "{column.name}"')
        return case_id(text)

    def _of(self, columns: Sequence[Column], row: Row) -> Any:
        if len(columns) == 1 and columns[0].key is None:
            return self._one(columns[0], row)
        found = {one.key or one.name: self._value(one.name, row) for one in columns}
        return {key: value for key, value in found.items() if value is not MISSING}

    def _one(self, given: Given, row: Row) -> Any:
        if isinstance(given, Fixed):
            return given.text
        value = self._value(given.name, row)
        return "" if value is MISSING else value

    def _value(self, name: str, row: Row) -> Any:
        value = value_at(row.values, name)
        if value is MISSING:
            raise _RowError(f'has no "{name}"; keys here: {", ".join(row.values)}')
        if value == "" and self.omit_empty:
            return MISSING
        return _parsed(name, value) if name in self.as_json else value

    def _text(self, given: Given, row: Row, what: str) -> str:
        value = self._one(given, row)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _RowError(f"the {what} is {shown(value)}; expected a text or a number")
        return str(value).strip()


def _default(name: str, row: Row, text: str) -> Given:
    return Column(name) if name in row.values else Fixed(text)


def value_at(values: Mapping[str, Any], name: str) -> Any:
    """Give the value of a key, else at a JSON pointer; `MISSING` where there is none."""
    if name in values or not name.startswith("/"):
        return values.get(name, MISSING)
    return compile_path(name).find(values)


def columns_of(given: Sequence[str], known: Iterable[str] | None) -> tuple[Column, ...]:
    """Read what `--input` and `--expected` say: `COLUMN`, `COLUMN,COLUMN`, `KEY=COLUMN`.

    Args:
        given: the option's values, in order.
        known: the columns; None where rows may differ. A name that is one of them is taken whole, whatever is in it.

    Returns:
        The columns. One that is given alone and without a key stands for the whole; of several, and of a JSON pointer
        among several, the last name is the key.
    """
    names = frozenset(known or ())
    parts = [part for text in given for part in ([text] if text in names else text.split(","))]
    found = [_column(part.strip(), names) for part in parts if part.strip()]
    if len(found) == 1:
        return tuple(found)
    return tuple(Column(one.name, one.key or one.name.rpartition("/")[2] or one.name) for one in found)


def _column(text: str, names: frozenset[str]) -> Column:
    if text in names or "=" not in text:
        return Column(text)
    key, _, name = text.partition("=")
    return Column(name.strip(), key.strip())


def given_of(text: str) -> Given:
    """Read what an option of a column or a value says: `COLUMN`, or `=VALUE`."""
    return Fixed(text[1:].strip()) if text.startswith("=") else Column(text)


def require(columns: Iterable[str], known: Sequence[str], path: object, option: str) -> None:
    """See that all columns are there.

    Raises:
        ValueError: one is not.
    """
    for name in columns:
        if name not in known:
            listed = f"columns: {', '.join(known)}"
            raise ValueError(f'{path}: no column is called "{name}"; name another with {option}; {listed}')


def case_id(text: str) -> str:
    """Make an id of a case, which is also the name of its file, of any text that isn't empty.

    Returns:
        The text itself where it can be an id. Else what is left of it in ASCII, `_` for the rest; with a part of its
        hash where letters were lost or it was too long, so that different texts stay different.
    """
    if len(text) <= _LONGEST_ID and re.fullmatch(CASE_ID, text):
        return text
    plain = unicodedata.normalize("NFKD", text)
    kept = "".join(char for char in plain if not unicodedata.combining(char))
    word = re.sub(r"[^A-Za-z0-9_-]+", "_", kept).strip("_-")
    lost = any(char.isalnum() and not char.isascii() for char in kept)
    if word and not lost and len(word) <= _LONGEST_ID:
        return word
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_HASH]
    return f"{word[: _LONGEST_ID - _SHORT_HASH - 1]}_{mark}" if word else f"case_{mark}"


def _case_type(text: str) -> str:
    word = re.sub(r"[^a-z0-9_-]+", "_", text.lower()).strip("_-")[:_LONGEST_TYPE]
    if not word:
        raise _RowError(f"the case type is {shown(text)}; expected a word of letters and digits")
    return word


def _difficulty(text: str) -> str:
    if text.lower() not in _DIFFICULTIES:
        raise _RowError(f"the difficulty is {shown(text)}; expected one of {', '.join(_DIFFICULTIES)}")
    return text.lower()


def _tags(value: Any) -> list[str]:
    tags = _TAGS.split(value) if isinstance(value, str) else [] if value is None else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _RowError(f"the tags are {shown(value)}; expected a list of texts, or a text with commas")
    return list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))


def _parsed(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise _RowError(f'the column "{name}" is empty; expected JSON, such as null, or pass --omit-empty')
    try:
        return parse_json(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        raise _RowError(f'the column "{name}" is {shown(value)}, no JSON; text stands in double quotes') from None
