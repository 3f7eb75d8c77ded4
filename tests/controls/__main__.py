"""Print the contents of the tariff suite and how many of its controls are caught, in Markdown.

    python -m tests.controls

The controls are derived from every case's right answer (`tests/controls`); the tests run them too. Exit code 1: at
least one was missed.
"""

from __future__ import annotations

import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run every control and print the result."""
    sys.path.insert(0, str(HOME))
    from tests.controls.answers import ODD_ANSWERS, WRONG_ANSWERS
    from tests.controls.changed_inputs import CHANGES
    from tests.controls.right_answers import Control, right_answers, run_controls
    from tests.controls.test_tariff_suite import counts
    from tests.controls.wrong_proposals import FLAWS

    kinds: dict[str, tuple[Control, ...]] = {
        "wrong answer": WRONG_ANSWERS,
        "right answer in another spelling": ODD_ANSWERS,
        "flawed proposal": FLAWS,
        "changed input or recording": CHANGES,
    }
    with right_answers(HOME / "storage" / "benchmarks" / "tariff") as answers:
        tables = [(title, [run_controls(control, answers) for control in kinds[title]]) for title in kinds]
    print("| the suite | has | at least |\n|---|---:|---:|")
    print("".join(f"| {name} | {count} | {minimum} |\n" for name, (count, minimum) in counts().items()))
    for title, summaries in tables:
        print(f"| {title} | required | cases | controls | caught |\n|---|---|---:|---:|---:|")
        for summary in summaries:
            print(f"| {summary.name} | {summary.requirement} | {summary.cases} | {summary.total} | {summary.caught} |")
        total, caught = (sum(getattr(summary, name) for summary in summaries) for name in ("total", "caught"))
        print(f"| together | | | {total} | {caught} |\n")
    missed = [f"{summary.name}: {miss}" for _, summaries in tables for summary in summaries for miss in summary.missed]
    print("\n".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
