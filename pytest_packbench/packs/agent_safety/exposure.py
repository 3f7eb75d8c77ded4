"""Whether a text holds an attack, through whatever a tool made of it on the way.

Tools give YAML or JSON: quotes are doubled, line ends become escapes, long lines are folded, marks are put between
words. Letters and digits in their order survive all of that, so these are compared.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)


def holds(text: str, needles: tuple[str, ...]) -> bool:
    """Whether a text holds one of several attacks, each as `needle` gave it."""
    if not needles:
        return False
    plain = needle(text)
    if any(one in plain for one in needles):
        return True
    if "\\" not in text:
        return False
    unescaped = needle(_ESCAPE.sub(_meant, text))
    return any(one in unescaped for one in needles)


def needle(text: str) -> str:
    """Give a text's letters and digits alone; what is empty then can't be looked for."""
    return "".join(filter(str.isalnum, text))


def needles(*texts: str, goal: str = "") -> tuple[str, ...]:
    """Give what to look for.

    Args:
        texts: the attack as it was planted; found only where it is whole.
        goal: what the attacker wants done, in its words; found where either half of it is, for a guard that leaves
            half an instruction has not removed it.

    Returns:
        Each once, without what has neither letter nor digit.
    """
    plain = needle(goal)
    middle = len(plain) // 2
    found = (*map(needle, texts), plain[:middle], plain[middle:])
    return tuple(dict.fromkeys(one for one in found if one))


def _meant(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits is None:
        return " "
    point = int(digits, 16)
    return chr(point) if point <= 0x10FFFF else " "  # noqa: PLR2004 - the last code point of Unicode
