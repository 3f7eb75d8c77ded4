"""Reading values written as Python writes them: JSON types only, never evaluated, bounded in size and depth."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from pytest_packbench.model.errors import shown

LONGEST = 200_000
DEEPEST = 50

# no text makes the scan slow; what is no token can't reach Python's parser
_TOKEN = re.compile(
    r"""(?P<space>\s++)
      | (?P<opening>[\[{(])
      | (?P<closing>[\]})])
      | (?P<plain>[,:]|(?:True|False|None)\b
          | -?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?(?![\w.])
          | '[^'\\\n]*+(?:\\.[^'\\\n]*+)*'
          | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*")""",
    re.VERBOSE | re.DOTALL,
)


class LiteralError(ValueError):
    """A text is no literal of JSON types, said in one line."""


def literal(text: str) -> Any:
    """Read a dict, list, string, number, True, False or None as Python writes it; a tuple becomes a list.

    Args:
        text: at most 200,000 characters, at most 50 levels deep.

    Raises:
        LiteralError: it is longer, deeper, or anything else.
    """
    _scan(text)
    with warnings.catch_warnings():
        # of an escape that Python doesn't know, which stays as it is written
        warnings.simplefilter("ignore")
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise LiteralError(f"got {shown(text)}, expected a Python dict, list, string or number") from None
    return _plain(value)


def _scan(text: str) -> None:
    """Let only the tokens of plain values through, and no more brackets in each other than are usual."""
    if len(text) > LONGEST:
        raise LiteralError(f"got {len(text)} characters, expected at most {LONGEST}")
    position = depth = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise LiteralError(f"column {position + 1}: got {shown(text[position : position + 20])}, expected a value")
        depth += (token.lastgroup == "opening") - (token.lastgroup == "closing")
        if depth > DEEPEST:
            raise LiteralError(f"column {position + 1}: nested more than {DEEPEST} deep")
        position = token.end()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise LiteralError(f"the key {shown(odd[0])} is no text")
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        raise LiteralError("a number is out of range")
    if isinstance(value, str | bool | int | float | None):
        return value
    raise LiteralError(f"got a {type(value).__name__}, expected JSON types")
