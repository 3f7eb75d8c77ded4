"""English for messages."""

from __future__ import annotations


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1: `1 case`, `2 cases`, `1,000 cases`.

    Args:
        number: how many.
        noun: in the singular; its plural ends in "s".
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
