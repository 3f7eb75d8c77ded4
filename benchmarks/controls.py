"""Count the cases of the tariff suite, and the wrong answers, flawed proposals and changed inputs that it detects.

    python benchmarks/controls.py

The controls are derived from the right answer of every case (`tests/controls`); the tests run them too. The output is
Markdown. Exit code 1: a control was not detected.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent


def main() -> int:
    """Derive every control and print its result."""
    sys.path.insert(0, str(HOME))
    from tests.controls import changed_inputs, wrong_answers, wrong_proposals
    from tests.controls.test_tariff_gold import counts

    with wrong_answers.answered(HOME / "storage" / "benchmarks" / "tariff") as answers:
        tables = [("wrong answer", [wrong_answers.tally(kind, answers) for kind in wrong_answers.KINDS])]
        tables.append(("flawed proposal", [wrong_proposals.tally(flaw, answers) for flaw in wrong_proposals.FLAWS]))
        with tempfile.TemporaryDirectory() as folder:
            changed = [changed_inputs.tally(change, answers, Path(folder)) for change in changed_inputs.CHANGES]
        tables.append(("changed input or recording", changed))
    print("| the suite | number | at least |\n|---|---:|---:|")
    print("".join(f"| {name} | {found} | {least} |\n" for name, (found, least) in counts().items()))
    for title, tallies in tables:
        print(f"| {title} | required result | cases | number | caught |\n|---|---|---:|---:|---:|")
        for tally in tallies:
            print(f"| {tally.name} | {tally.must} | {tally.cases} | {tally.made} | {tally.caught} |")
        print(f"| together | | | {sum(one.made for one in tallies)} | {sum(one.caught for one in tallies)} |\n")
    slipped = [f"{tally.name}: {one}" for _, tallies in tables for tally in tallies for one in tally.slipped]
    print("\n".join(slipped))
    return 1 if slipped else 0


if __name__ == "__main__":
    sys.exit(main())
