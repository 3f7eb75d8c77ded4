"""Lines of the terminal report: what a failed case lost, what a live run used, and counts with their nouns."""

from __future__ import annotations

from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.result import Score, Term
from pytest_packbench.reports.terminal import headline, spent_text, transcript_lines, trials_lines
from tests.unit.run_builders import case_result, data

LINES = data("terminal_lines.yaml")


def test_the_headline_of_a_failed_case_names_the_terms_that_it_lost() -> None:
    for row in LINES["headlines"]:
        terms = tuple(Term(**term) for term in row["terms"])
        score = Score(score=0.67, threshold=0.8, verdict="failed", terms=terms, match_level=row.get("level"))
        assert headline(score) == f"score 0.67 < 0.80{row['named']}"


def test_the_usage_of_a_run_tells_calls_of_packbench_from_the_targets_own() -> None:
    nothing = {"calls": 0, "tokens": 0, "uncounted": 0, "cost": 0.0, "currency": "USD"}
    assert [spent_text(nothing | row["spent"]) for row in LINES["used"]] == [row["text"] for row in LINES["used"]]


def test_a_count_agrees_with_its_noun() -> None:
    texts = ["0 cases", "1 case", "2 cases", "1,000 cases", "-1 cases"]
    assert [pluralize(number, "case") for number in (0, 1, 2, 1_000, -1)] == texts


def test_a_long_transcript_has_its_first_and_its_last_messages() -> None:
    assert transcript_lines([]) == []
    for count, kept in ((24, range(24)), (26, (*range(12), *range(14, 26)))):
        lines = transcript_lines([("judge", "user", f"text {number}") for number in range(count)])
        assert [line.split()[-1] for line in lines if "text " in line and "user" in line] == [str(n) for n in kept]
        assert ("... 2 messages left out" in "\n".join(lines)) is (count == 26)


def test_trials_without_a_score_have_no_mean() -> None:
    trials = [case_result("a", "error", trial=number) for number in range(2)]
    assert trials_lines(trials, trials[0], "all")[:2] == [
        "0 of 2 trials passed, no mean score (rule: all)",
        "scores: -, -",
    ]
