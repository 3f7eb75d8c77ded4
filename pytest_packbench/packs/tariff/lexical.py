"""The floor: a target without a model, which takes the line of the schedule whose words are most like the goods' own.

It never refuses, weighs no rule of interpretation and offers no saving. What a model scores above it is worth counting.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import without_model
from pytest_packbench.packs.tariff.codes import chapter, dotted
from pytest_packbench.packs.tariff.model import TariffInput
from pytest_packbench.packs.tariff.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.tariff.schedule import Line

FILE = "hts"
"""The name of the file that the target needs: ini `packbench_hts`, environment `PACKBENCH_HTS`."""

# the usual constants of BM25: how soon repetition stops to count, and how much length does
_SATURATION = 1.2
_LENGTH = 0.75
# words that more than this share of the lines holds (other, or, of, and) weigh next to nothing and cost the most
_COMMON = 0.5
_WORD = re.compile(r"[a-z]+")
_PLURAL = re.compile(r"(?<=[a-z]{2})s$")


class Index:
    """The lines of a schedule in its order, ranked by BM25 over their own and their ancestors' descriptions."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines: Sequence[Line] = tuple(lines)
        counts = [Counter(_words(" ".join(line.texts))) for line in self.lines]
        lengths = [sum(count.values()) for count in counts]
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        holders: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            damping = _SATURATION * (1 - _LENGTH + _LENGTH * length / mean)
            for word, times in count.items():
                holders[word].append((number, times * (_SATURATION + 1) / (times + damping)))
        most = _COMMON * len(self.lines)
        self._holders = {word: found for word, found in holders.items() if len(found) <= most}

    def best(self, text: str) -> tuple[Line, float] | None:
        """Give the line most like a text, with its points; the first of equals, None where no word is shared."""
        points: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(_words(text)):
            holders = self._holders.get(word, [])
            rarity = math.log(1 + (len(self.lines) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, weight in holders:
                points[number] += rarity * weight
        if not points:
            return None
        number = min(points, key=lambda one: (-points[one], one))
        return self.lines[number], points[number]


@without_model
def target(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    """Classify goods as the line of the schedule with the most similar text; refuse where no word is shared.

    Documents among the evidence count as text too. The context brings the schedule's file under `hts`.

    Raises:
        ValueError: no schedule was given, or the file is none.
        OSError: the file can't be read.
    """
    path = context.files.get(FILE)
    if path is None:
        raise ValueError("no schedule; give its file by ini packbench_hts or environment PACKBENCH_HTS")
    goods = TariffInput.model_validate(request.as_json())
    schedule, index = _load(path)
    found = index.best(" ".join([goods.input, *(document.text for document in goods.evidence)]))
    if found is None:
        reason = "no word of the schedule is in the text"
        refusal = {"category": "insufficient_info", "reason": reason, "questions": []}
        return _result(accepted=False, tariff_dossier=None, refusal=refusal)
    return _answer(*found, schedule)


@cache
def _load(path: Path) -> tuple[Schedule, Index]:
    schedule = Schedule.read(path)
    return schedule, Index(schedule.lines())


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return [_PLURAL.sub("", word) for word in _WORD.findall(plain)]


def _answer(line: Line, points: float, schedule: Schedule) -> dict[str, Any]:
    rate = schedule.rate(line.code)
    pct = None if rate is None else rate.pct
    baseline: dict[str, Any] = {
        "hts_code": dotted(line.code),
        "description": " > ".join(line.texts),
        "duty_basis": None if rate is None else rate.basis,
        "duty_rate_pct": pct,
        "duty_breakdown": {"base_rate_pct": pct, "applied_additional_duties": [], "total_rate_pct": pct},
        "rationale": f"the line with the most similar words, {points:.1f} points",
    }
    dossier = {
        "candidate_chapters": [chapter(line.code)],
        "gri_trace": None,
        "baseline": baseline,
        "optimized": None,
        "what_if_candidates": [],
        "citations": [],
    }
    return _result(accepted=True, tariff_dossier=dossier, refusal=None)


def _result(*, accepted: bool, **parts: Any) -> dict[str, Any]:
    return {
        "status": "verified" if accepted else "refused",
        "accepted": accepted,
        "iterations": [{"i": 1, "accepted": accepted, "rejected_because": []}],
        **parts,
    }
