"""Measure `packbench report` on a million records, compared with `json.loads` on the same lines.

    python benchmarks/report.py [--records N] [--rounds N] [--own]

Records are generated from a seed: 40 categories in two suites, none to two guard decisions each, 1 of 1,000 lines
twice. With `--own`, each also has our object under `packbench`. CPU time is user plus system of the whole process, the
median of several rounds. Memory is the peak of the resident set.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 20260506
PASSING = 0.97
HOOKS = (
    {"hook": "Guard.on_prompt_submit", "decision": "wrap_untrusted", "rule": 3},
    {"hook": "Guard.pre_tool_use", "decision": "AskUser", "rule": 4},
)
OWN = {
    "version": 1,
    "score": 1.0,
    "threshold": 0.8,
    "verdict": "passed",
    "terms": [{"name": "exposed", "effect": "note", "value": 0.0, "detail": "the attack was read"}],
    "mode": "live",
    "stale": False,
    "utility": True,
    "tags": ["indirect", "email"],
    "versions": {"python": "3.11.7", "packbench": "0.1.0"},
}
PARSE_ONLY = """
import json, sys
with open(sys.argv[1], "rb") as file:
    for line in file:
        json.loads(line)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print both commands."""
    parser = argparse.ArgumentParser(description="packbench report compared with json.loads")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--own", action="store_true", help="with our object under packbench in each record")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        write_records(path, arguments.records, own=arguments.own)
        print(f"{arguments.records} records, {path.stat().st_size / arguments.records:.0f} bytes per line")
        plain = measured([sys.executable, "-c", PARSE_ONLY, str(path)], arguments.rounds)
        report = measured([sys.executable, "-m", "pytest_packbench", "report", str(path)], arguments.rounds)
    for name, (seconds, mebibytes) in (("json.loads", plain), ("packbench report", report)):
        each = 1e6 * seconds / arguments.records
        print(f"{name:16}  {seconds:6.2f} CPU s  {each:6.2f} us per record  {mebibytes:4.0f} MiB")
    print(f"ratio {report[0] / plain[0]:.2f}")
    return 0


def write_records(path: Path, number: int, *, own: bool) -> None:
    """Write this number of lines, the same for the same arguments."""
    chance = random.Random(SEED)  # noqa: S311 - records, not secrets
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with path.open("w", encoding="utf-8") as file:
        for place in range(number):
            line = encode(record(chance, place, own=own)) + "\n"
            file.write(line)
            if place % 1000 == 0:
                file.write(line)


def record(chance: random.Random, place: int, *, own: bool) -> dict[str, Any]:
    """Generate one record."""
    suite = chance.choice(("agentdojo", "harmbench"))
    passed = chance.random() < PASSING
    plain = {
        "schema_version": 1,
        "test_suite": suite,
        "test_id": f"{suite}:workspace:user_task_{place}:injection_task_{place % 14}",
        "attack_category": f"category_{chance.randrange(20)}",
        "agent_decision": "refuse" if passed else "comply_unsafe",
        "expected": "refuse",
        "passed": passed,
        "hook_decisions": HOOKS[: chance.choice((0, 0, 1, 2))],
        "tokens_input": chance.randrange(20_000),
        "tokens_output": chance.randrange(500),
        "wall_clock_ms": chance.randrange(10_000),
        "llm_backend": "anthropic",
        "llm_model": "claude-sonnet-4-6",
        "run_id": "01HF8K0M5ZQEJ8C7XV6NQAYWZP",
        "timestamp": "2026-05-06T08:15:32.123Z",
    }
    return {**plain, "packbench": {**OWN, "trial": 0}} if own else plain


def measured(command: Sequence[str], rounds: int) -> tuple[float, float]:
    """Run a command several times; return the median of its CPU seconds and the highest peak memory, MiB."""
    usages = [usage_of(command) for _ in range(rounds)]
    return statistics.median(seconds for seconds, _ in usages), max(mebibytes for _, mebibytes in usages)


def usage_of(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its CPU seconds and its peak memory, MiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    # exit code 1 is a failed gate: this depends on the generated records
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20


if __name__ == "__main__":
    sys.exit(main())
