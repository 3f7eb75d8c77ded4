"""A baseline target without a model: it answers with the line of the schedule that is most similar to the description.

It never refuses a description that shares a word with the schedule, applies no rule of interpretation and proposes no
saving. Only scores above its own are evidence of a model's skill.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.schedule import Schedule
from pytest_packbench.model.request import without_model
from pytest_packbench.packs.tariff.model import TariffInput
from pytest_packbench.packs.tariff.notation import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.schedule import TariffLine
    from pytest_packbench.model.request import VerifyContext, VerifyRequest

FILE = "hts"
"""The name under which the target expects the schedule's file: ini `packbench_hts`, environment `PACKBENCH_HTS`."""

# the usual BM25 constants k1 and b: saturation of term frequency, and normalisation by length
_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75
# words in more than this share of the lines (other, or, of, and) add almost nothing to a score and cost the most time
_MAX_SHARE = 0.5
_WORD = re.compile(r"[a-z]+")
_PLURAL = re.compile(r"(?<=[a-z]{2})s$")


class Index:
    """A BM25 index of the lines of a schedule, over their own and their ancestors' descriptions.

    Attributes:
        lines: the lines in the order of the schedule.
    """

    def __init__(self, lines: Iterable[TariffLine]) -> None:
        self.lines: Sequence[TariffLine] = tuple(lines)
        counts = [Counter(_words(" ".join(line.texts))) for line in self.lines]
        lengths = [sum(count.values()) for count in counts]
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length / mean)
            for word, frequency in count.items():
                postings[word].append((number, frequency * (_SATURATION + 1) / (frequency + damping)))
        limit = _MAX_SHARE * len(self.lines)
        self._postings = {word: entries for word, entries in postings.items() if len(entries) <= limit}

    def best(self, text: str) -> tuple[TariffLine, float] | None:
        """Return the line most similar to a text, with its score; of equals the first, None if no word is shared."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(_words(text)):
            postings = self._postings.get(word, [])
            rarity = math.log(1 + (len(self.lines) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, weight in postings:
                scores[number] += rarity * weight
        if not scores:
            return None
        number = min(scores, key=lambda line: (-scores[line], line))
        return self.lines[number], scores[number]


@without_model
def target(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Answer with the line of the schedule most similar to the text; refuse if no word is shared.

    The text is the description and the evidence. The schedule is read from the context's file `hts`.

    Raises:
        ValueError: no schedule is configured, or the file is not one.
        OSError: the file can't be read.
    """
    path = context.files.get(FILE)
    if path is None:
        raise ValueError(
            "no tariff schedule is configured; set ini packbench_hts or environment PACKBENCH_HTS to its file"
        )
    goods = TariffInput.model_validate(request.as_json())
    schedule, index = _load(path)
    match = index.best(" ".join([goods.input, *(document.text for document in goods.evidence)]))
    if match is None:
        reason = "the text shares no word with the schedule"
        return {"status": "refused", "refusal": {"category": "insufficient_info", "reason": reason}}
    return _answer(*match, schedule)


@cache
def _load(path: Path) -> tuple[Schedule, Index]:
    schedule = Schedule.read(path)
    return schedule, Index(schedule.lines())


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return [_PLURAL.sub("", word) for word in _WORD.findall(plain)]


def _answer(line: TariffLine, score: float, schedule: Schedule) -> dict[str, Any]:
    rate = schedule.rate(line.code)
    pct = None if rate is None else rate.pct
    baseline: dict[str, Any] = {
        "hts_code": dotted(line.code),
        "description": " > ".join(line.texts),
        "duty_basis": None if rate is None else rate.basis,
        "duty_rate_pct": pct,
        "rationale": f"the line with the most similar description, BM25 score {score:.1f}",
    }
    return {"status": "verified", "tariff_dossier": {"baseline": baseline}}
