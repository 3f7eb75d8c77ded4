"""`redact`: takes known frames of injected instructions out of tool outputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_packbench.packs.agent_safety.guards.base import Ruling

if TYPE_CHECKING:
    from pytest_packbench.packs.agent_safety.guards.base import ToolOutput

REMOVED = "[removed]"

_WORD = r"(?:information|important|instructions?|system|admin|user|assistant|prompt|override)"
# what YAML and JSON may put where a text has white space: escapes of line ends, folds
_GAP = r"(?:\s|\\[nrt]?)"
# all bounded, so that no text can hold the search up
_GAPS = rf"{_GAP}{{1,9}}"
_WORDS = rf"(?:\w{{1,20}}{_GAPS})"
# to the end of the paragraph: a blank line, an escaped line end, the next key or item of YAML
_REST = r"(?:(?!\n\s*\n|\\n|\n\s*-\s|\n\s*(?!instruction)\w+:(?:\s|$)).)*"
_LONGEST = 8000
_BLOCK = re.compile(rf"<({_WORD})>.{{0,{_LONGEST}}}?</\1>", re.IGNORECASE | re.DOTALL)
_FORGET = re.compile(
    rf"(?:important{_GAP}{{0,9}}!{{1,9}}{_GAP}{{0,9}})?(?:ignore|disregard|forget){_GAPS}{_WORDS}{{0,3}}?"
    rf"(?:previous|prior|earlier|above|preceding){_GAPS}{_WORDS}{{0,2}}?"
    rf"(?:i\w?nstructions?|prompts?|directions?|orders?){_REST}",
    re.IGNORECASE | re.DOTALL,
)
_SYSTEM = re.compile(
    rf"(?<!#)#{{2,6}}{_GAP}{{0,9}}\(?{_GAP}{{0,9}}system[\w ]{{0,20}}\)?{_REST}", re.IGNORECASE | re.DOTALL
)

RULES: tuple[tuple[int, re.Pattern[str]], ...] = ((1, _BLOCK), (2, _FORGET), (3, _SYSTEM))
"""Rule number and what it removes: tagged blocks, orders to forget earlier instructions, feigned system messages."""


class Redact:
    """Removes known frames of injected instructions; what stands around them stays.

    It knows the frames of the published attacks and nothing else: an attacker who reads this file gets by.
    """

    name = "redact"

    def on_tool_output(self, output: ToolOutput) -> Ruling | None:
        """Replace an output that holds a known frame; the rule is that of the first frame found."""
        text, first = output.text, None
        for rule, pattern in RULES:
            text, count = pattern.subn(REMOVED, text)
            if count and first is None:
                first = rule
        return None if first is None else Ruling(decision="replace", text=text, rule=first)
