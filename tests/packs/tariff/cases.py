"""Tariff cases, results, proposals and critiques as plain JSON, each with what a test changes."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pytest_packbench.packs.tariff.answer import Critique, Proposal
from pytest_packbench.packs.tariff.checks import CheckInput
from pytest_packbench.packs.tariff.edition import load_edition
from pytest_packbench.packs.tariff.model import TariffInput, TariffSuiteConfig
from pytest_packbench.packs.tariff.pack import TariffPack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_packbench.model.result import Score


Json = dict[str, Any]
RIGHT = "6404.11.9020"
CHANGE = {"id": "other_sole", "text": "mould another sole"}
BASE_RATE = 20.0


def table(name: str) -> Json:
    """Read `data/<name>.yaml`."""
    rows: Json = yaml.safe_load((Path(__file__).parent / "data" / f"{name}.yaml").read_text("utf-8"))
    return rows


def case(case_type: str = "positive", *, tags: tuple[str, ...] = (), **expected: Any) -> Json:
    """A case that expects the answer `RIGHT`, or a refusal where `expected_accept` is false."""
    preferred = [RIGHT] if expected.get("expected_accept", True) else []
    return {
        "id": "case_of_a_test",
        "pack_id": "tariff",
        "case_type": case_type,
        "difficulty": "easy",
        "input": {"input": "A running shoe with a textile upper and a rubber sole."},
        "expected": {"preferred_hts": preferred, "expected_accept": True, **expected},
        "notes": {"source": "synthetic", "tags": list(tags)},
    }


def classification(code: str = RIGHT, rate: object = BASE_RATE, **changes: Any) -> Json:
    """A code with its rate, as baseline or optimised."""
    return {"hts_code": code, "duty_rate_pct": rate, "duty_breakdown": {"total_rate_pct": rate}, **changes}


def what_if(number: int, steps: int, code: str, delta: float, *, documented: bool = True) -> Json:
    """A savings lever by the change of the request."""
    return {
        "id": f"lever_{number}",
        "kind": "construction",
        "change": CHANGE["id"],
        "steps": ["do it"] * steps,
        "expected_hts": code,
        "estimated_duty_delta": delta,
        "required_evidence": ["a drawing"] if documented else [],
    }


def answer(
    code: str | None = RIGHT,
    rate: Any = BASE_RATE,
    *,
    optimized: Sequence[Any] = (),
    levers: Sequence[int] = (),
    documented: bool = True,
    citations: bool | None = True,
    evidence: bool | None = True,
    in_order: bool | None = True,
    dossier: Json | None = None,
    **changes: Any,
) -> Json:
    """An answer.

    `optimized` is a code and its rate, `levers` the steps of each savings lever, and `citations`, `evidence` and `in_order`
    are what the gates and the trace say. `dossier` and `changes` replace keys of the dossier and of the document.
    """
    best = {**classification(*optimized), "what_if_id": "lever_1"} if optimized else None
    after, new_rate = (best["hts_code"], best["duty_rate_pct"]) if best else (code or RIGHT, None)
    delta = -1.0 if rate is None or new_rate is None else new_rate - rate
    found = [what_if(number, steps, after, delta, documented=documented) for number, steps in enumerate(levers, 1)]
    return {
        "status": "verified",
        "citation_gate_result": None if citations is None else {"ok": citations},
        "missing_evidence_gate_result": None if evidence is None else {"ok": evidence},
        "tariff_dossier": {
            "gri_trace": {"sequence_ok": in_order},
            "baseline": None if code is None else classification(code, rate),
            "optimized": best,
            "what_if_candidates": found,
            **(dossier or {}),
        },
        **changes,
    }


def refusal(category: str | None = "insufficient_info", **changes: Any) -> Json:
    """A refusal with its category."""
    said = {"category": category, "reason": "a fact is missing", "questions": ["Which material?"]}
    return {"status": "refused", "refusal": said, **changes}


def result_of(row: Json) -> Json:
    """The result that a row of a data file describes: the arguments of `answer`, a refusal's category, or all of it."""
    if "raw" in row:
        raw: Json = row["raw"]
        return raw
    return refusal(row["refusal"]) if "refusal" in row else answer(**row)


def rules(**config: Any) -> TariffSuiteConfig:
    """The rules of a suite."""
    return TariffSuiteConfig.model_validate({"pack": "tariff", **config})


def score_of(plain: Json, result: Json, **config: Any) -> Score:
    """Score a result by the rules of a suite."""
    suite_rules = rules(**config)
    pack = TariffPack().for_suite(suite_rules)
    checked: Any = pack.case_model.model_validate(plain)
    return pack.score(checked, pack.read(result), suite_rules)


TABLE = table("gates")
SOUND: Json = TABLE["sound"]


def _merged(plain: Json, changes: Json) -> Json:
    """Return a copy with changes: objects are merged, other values replaced."""
    result = deepcopy(plain)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


def parse_step(line: str) -> Json:
    """A step of a trace from `rule level candidates = chosen`, with `tied` or `failed` instead of a code."""
    before, result = line.removesuffix(" (set)").split(" = ")
    rule, level, *candidates = before.split()
    outcome, _, chosen = result.partition(":") if result[0].isalpha() else ("decided", "", result)
    step = {"rule": rule, "level": level, "candidates": candidates, "outcome": outcome, "chosen": chosen or None}
    return {**step, "as_set": line.endswith(" (set)"), "reason": "dried, then ground"}


def _duty(base: float | None = None, layers: Sequence[float] = (), basis: str = "ad valorem", **rates: float) -> Json:
    """The duty of a baseline, percent of value; `total` defaults to the sum, `rate` to the total."""
    total = rates.get("total", sum(layers, base) if base is not None else None)
    additional = [{"layer_id": f"layer_{pct}", "pct": pct, "reason": "a duty on top"} for pct in layers]
    breakdown = {"base_rate_pct": base, "applied_additional_duties": additional, "total_rate_pct": total}
    return {"duty_basis": basis, "duty_rate_pct": rates.get("rate", total), "duty_breakdown": breakdown}


def _citation(row: str | list[str]) -> Json:
    source, quote = row if isinstance(row, list) else ("lab_report", row)
    return {"source_id": source, "claim": "it is a powder", "quote": quote}


def evidence(row: str | list[str] = "Dried cloves, ground to 80 mesh.") -> Json:
    """One document of the request, by its text, or by its source and its text."""
    source, text = row if isinstance(row, list) else ("lab_report", row)
    return {"source_id": source, "title": "Report", "text": text}


def _table(column: str, shares: Sequence[float | None]) -> Json:
    return {"composition_table": [{"component": "part", "material": "glass", column: share} for share in shares]}


SHORT_FORMS: dict[str, Callable[[Any], Json]] = {
    "trace": lambda lines: {"gri_trace": {"steps": list(map(parse_step, lines))}},
    "what_ifs": lambda rows: {"what_if_candidates": [_merged(SOUND["what_if"], row) for row in rows]},
    "optimized": lambda row: {"optimized": _merged(SOUND["optimized"], row)},
    "quotes": lambda rows: {"citations": list(map(_citation, rows))},
    "duty": lambda row: {"baseline": {**SOUND["classify"]["baseline"], **_duty(**row)}},
    "weights": lambda shares: _table("weight_pct", shares),
    "values": lambda shares: _table("value_pct", shares),
}


def proposal(base: str = "classify", **changes: Any) -> Json:
    """A sound proposal with changes, in full or in the short forms of `data/gates.yaml`."""
    sound = _merged(SOUND[base], SHORT_FORMS["trace"](SOUND["trace"]) if base == "classify" else {})
    for key, value in changes.items():
        sound = _merged(sound, SHORT_FORMS[key](value) if key in SHORT_FORMS else {key: value})
    return sound


def critique(**changes: Any) -> Json:
    return {**SOUND["critique"], **changes}


def check_input(row: Json) -> CheckInput:
    """The input of the gates for a row of `data/gates.yaml`."""
    documents = list(map(evidence, row.get("evidence", ())))
    changes = {key: value for key, value in row.items() if key not in {"evidence", "critique", "problems", "edition"}}
    return CheckInput(
        request=TariffInput.model_validate({"input": "garlic, dried and ground", "evidence": documents}),
        proposal=Proposal.model_validate(proposal(**changes)),
        critique=Critique.model_validate(critique(**row.get("critique", {}))),
        problems=tuple(row.get("problems", ())),
        edition=load_edition(row["edition"]) if "edition" in row else None,
    )
