"""Proposals and critiques as a model answers them: the sound ones of `data/tariff_gates.yaml`, with what a test changes."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from pytest_packbench.packs.tariff.checks import CheckInput
from pytest_packbench.packs.tariff.dossier import Critique, Proposal
from pytest_packbench.packs.tariff.model import TariffInput
from tests.unit.tariff_cases import table

Json = dict[str, Any]
TABLE = table("tariff_gates")
SOUND: Json = TABLE["sound"]
_STEP = re.compile(r"(\w+) (\w+) (.+) = (tied|failed|decided)?:?([\d.]+)?( \(set\))?")


def merged(plain: Json, changes: Json) -> Json:
    """Return a copy with changes: objects are merged, other values replaced."""
    result = deepcopy(plain)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def trace(*lines: str) -> Json:
    """A GRI trace; each line is `rule level candidates = chosen`, or `tied` or `failed` instead of a code."""
    steps = []
    for line in lines:
        match = _STEP.fullmatch(line)
        assert match, line
        rule, level, candidates, outcome, chosen, as_set = match.groups()
        steps.append(
            {
                "rule": rule,
                "level": level,
                "candidates": candidates.split(),
                "outcome": outcome or "decided",
                "chosen": chosen,
                "as_set": bool(as_set),
                "reason": "dried, then ground",
            }
        )
    return {"steps": steps}


def duty(
    base: float | None = None,
    layers: tuple[float, ...] = (),
    basis: str = "ad valorem",
    **rates: float,
) -> Json:
    """The duty of a baseline, percent of value; `total` defaults to the sum, `rate` to the total."""
    total = rates.get("total", sum(layers, base) if base is not None else None)
    additional = [{"layer_id": f"layer_{pct}", "pct": pct, "reason": "a duty on top"} for pct in layers]
    breakdown = {"base_rate_pct": base, "applied_additional_duties": additional, "total_rate_pct": total}
    return {"duty_basis": basis, "duty_rate_pct": rates.get("rate", total), "duty_breakdown": breakdown}


def what_if(**changes: Any) -> Json:
    """A lawful what-if that saves 9.8 percentage points."""
    return merged(SOUND["what_if"], changes)


def citation(quote: str, source: str = "lab_report") -> Json:
    """A claim with its quote."""
    return {"source_id": source, "claim": "it is a powder", "quote": quote}


def evidence(text: str = "Dried cloves, ground to 80 mesh.", source: str = "lab_report") -> Json:
    """One document of the request."""
    return {"source_id": source, "title": "Report", "text": text}


def answer(base: str = "classify", **changes: Any) -> Json:
    """A sound proposal with changes, in full or in the short forms of `data/tariff_gates.yaml`."""
    sound = merged(SOUND[base], {"gri_trace": trace(*SOUND["trace"])} if base == "classify" else {})
    short: Json = {
        "trace": lambda lines: {"gri_trace": trace(*lines)},
        "what_ifs": lambda rows: {"what_if_candidates": [what_if(**row) for row in rows]},
        "optimized": lambda row: {"optimized": merged(SOUND["optimized"], row)},
        "quotes": lambda rows: {"citations": [citation(*_reversed(row)) for row in rows]},
        "duty": lambda row: {"baseline": {**SOUND["classify"]["baseline"], **duty(**row)}},
        "weights": lambda shares: {
            "composition_table": [{"component": "part", "material": "glass", "weight_pct": share} for share in shares]
        },
    }
    for key, value in changes.items():
        sound = merged(sound, short[key](value) if key in short else {key: value})
    return sound


def critique_answer(**changes: Any) -> Json:
    """A sound critique with changes."""
    return {**SOUND["critique"], **changes}


def check_input(row: Json) -> CheckInput:
    """The input of the gates for a row of `data/tariff_gates.yaml`."""
    documents = [evidence(*_reversed(document)) for document in row.get("evidence", ())]
    changes = {key: value for key, value in row.items() if key not in {"evidence", "critique"}}
    return CheckInput(
        request=TariffInput.model_validate({"input": "garlic, dried and ground", "evidence": documents}),
        proposal=Proposal.model_validate(answer(**changes)),
        critique=Critique.model_validate(critique_answer(**row.get("critique", {}))),
    )


def _reversed(row: str | list[str]) -> list[str]:
    """Return a text, and after it its source if the row names one."""
    return [row] if isinstance(row, str) else row[::-1]
