"""Print the contents of the tariff suite and how many of its controls are caught, in Markdown.

    python benchmarks/controls.py

The controls are derived from every case's right answer (`tests/controls`); the tests run them too. Exit code 1: at
least one was missed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run every control and print the result."""
    sys.path.insert(0, str(HOME))
    from tests.controls import changed_inputs, wrong_answers, wrong_proposals
    from tests.controls.right_answers import right_answers
    from tests.controls.test_tariff_suite import counts

    with right_answers(HOME / "storage" / "benchmarks" / "tariff") as answers:
        tables = [("wrong answer", [wrong_answers.run_controls(kind, answers) for kind in wrong_answers.WRONG_ANSWERS])]
        tables.append(
            ("flawed proposal", [wrong_proposals.run_controls(flaw, answers) for flaw in wrong_proposals.FLAWS])
        )
        with tempfile.TemporaryDirectory() as folder:
            changed = [changed_inputs.run_controls(change, answers, Path(folder)) for change in changed_inputs.CHANGES]
        tables.append(("changed input or recording", changed))
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
