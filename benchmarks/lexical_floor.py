"""Run the lexical floor on the tariff suite: a target that only compares words.

    python -m benchmarks.lexical_floor SCHEDULE [--suite DIR]

SCHEDULE is the tariff schedule as exported by its publisher (JSON, CSV, or a table with the same columns; also .gz).
Accuracy is the share of the cases that expect an answer and get a code that agrees with a preferred code to 2, 4, 6, 8
or 10 digits, with the two-sided 95 % Wilson interval. A missed refusal is a case that expects one and gets a code.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.lexical import FILE, target
from pytest_packbench.analysis.statistics import wilson_interval
from pytest_packbench.api import load_suite
from pytest_packbench.cases.load import parse_case
from pytest_packbench.engine.recordings import Replay
from pytest_packbench.model.request import VerifyContext
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import LEVELS
from pytest_packbench.packs.tariff.pack import TariffPack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SUITE = Path(__file__).resolve().parent.parent / "storage" / "benchmarks" / "tariff"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the floor on every case and print its accuracy."""
    parser = argparse.ArgumentParser(description="the lexical floor of the tariff suite")
    parser.add_argument("schedule", type=Path)
    parser.add_argument("--suite", type=Path, default=SUITE)
    arguments = parser.parse_args(argv)
    depths: list[int] = []
    forbidden = missed = refusals = 0
    pack = TariffPack()
    suite = load_suite(arguments.suite)
    rules = TariffSuiteConfig.model_validate(suite.config.model_dump())
    for case in cases(suite.cases_path):
        context = VerifyContext(
            llm=Replay(None, source=case.id),
            suite=suite.name,
            case_id=case.id,
            mode="fixture",
            files={FILE: arguments.schedule},
        )
        outcome = pack.read(target(pack.request(case), context))
        if case.expected.expected_accept:
            score = pack.score(case, outcome, rules)
            depths.append(score.match_depth or 0)
            forbidden += any(term.name == "forbidden_code" for term in score.terms)
        else:
            refusals += 1
            missed += not outcome.refused
    print(f"cases that expect an answer: {len(depths)}")
    for level in LEVELS:
        print(share(f"right to {level} digits", sum(depth >= level for depth in depths), len(depths)))
    print(share("forbidden code", forbidden, len(depths)))
    print(share("refusals missed", missed, refusals))
    return 0


def cases(folder: Path) -> Iterator[TariffCase]:
    """Read the cases of a suite, by path."""
    for path in sorted(folder.rglob("*.json")):
        case = parse_case(path.read_bytes(), TariffCase, source=path.name, stem=path.stem, pack="tariff").case
        if isinstance(case, TariffCase):
            yield case


def share(what: str, count: int, total: int) -> str:
    """Say a count with its rate and interval."""
    interval = wilson_interval(count, total)
    if interval is None:
        return f"{what:22} no case"
    low, high = interval
    return f"{what:22} {count:4} of {total:4}  {count / total:6.1%}  ({low:.1%} to {high:.1%})"


if __name__ == "__main__":
    sys.exit(main())
