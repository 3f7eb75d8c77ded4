"""Rules at the one value where they change, where no larger test stands."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pytest_packbench.analysis.changes import baseline_outcome, compare
from pytest_packbench.analysis.counting import differences
from pytest_packbench.cases.texts import SourceTexts, hide_prompts
from pytest_packbench.engine.gateway.exchanges import transcript_of
from pytest_packbench.engine.recordings import parts_of
from pytest_packbench.model.errors import StoredRunError
from pytest_packbench.model.report import BaselineLookup, PolicyChange, PolicyOutcome, StoredRun
from pytest_packbench.packs.agent_safety.harmbench.behaviors import FileError
from pytest_packbench.packs.agent_safety.harmbench.classifier import prompts_of, similarity
from pytest_packbench.packs.tariff.answer import TariffAnswer
from pytest_packbench.packs.tariff.judged import Judged
from pytest_packbench.packs.tariff.metrics import answer_facts, own_gates
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.policy import run_policy
from pytest_packbench.runs.reading import checked_results, open_run
from pytest_packbench.runs.writing import RunResults
from tests.packs.tariff.cases import answer, parse_step, rules, score_of
from tests.packs.tariff.cases import case as tariff_case
from tests.unit.run_builders import COMPLETE, case_result, changed, document, gate, lines, run
from tests.unit.stored_runs import RUN, record, records_of

TABLES = yaml.safe_load((Path(__file__).parent / "data" / "edges.yaml").read_text("utf-8"))


def test_three_failed_gates_are_named_and_of_four_one_is_counted() -> None:
    results = [case_result("a", "failed")]
    rules = [gate("pass_rate", min=0.1 * number) for number in range(1, 5)]
    three, four = (" ".join(lines(results, *rules[:count])) for count in (3, 4))
    assert "3 of 3 gates failed: pass_rate, pass_rate, pass_rate" in three
    assert "more" not in three
    assert "4 of 4 gates failed: pass_rate, pass_rate, pass_rate and 1 more" in four


def test_runs_name_the_first_twelve_digits_of_other_rules() -> None:
    one, other = (run(suite_sha256=digit * 64) for digit in "ab")
    assert differences(one, other) == (f"scoring rules: '{'a' * 12}' before, '{'b' * 12}' now",)


def test_a_journal_that_can_t_be_opened_can_t_be_written() -> None:
    class Writer:
        prior, folder = None, "f"

        def __init__(self, *failing: str) -> None:
            self.failing = failing

        def open_journal(self, header: Any) -> None:
            self.fail("journal")

        def check_space(self) -> None:
            self.fail("space")

        def fail(self, what: str) -> None:
            if what in self.failing:
                raise OSError(28, "no space")

    def opens(*failing: str, **how: bool) -> bool:
        writer: Any = Writer(*failing)
        return RunResults(writer, run).open_journal(**how)

    assert opens()
    assert opens("space")
    assert opens(checks_space=True)
    assert not opens("journal")
    assert not opens("journal", checks_space=True)
    assert not opens("space", checks_space=True)


def test_a_file_of_prompts_is_read_up_to_a_mebibyte(tmp_path: Path) -> None:
    path = tmp_path / "eval_utils.py"
    (tmp_path / "data").mkdir()
    for size, problem in (
        (2**20, "LLAMA2_CLS_PROMPT"),
        (2**20 + 1, "larger than 1 MiB; expected HarmBench's own file"),
    ):
        path.write_bytes(b"#" * size)
        with pytest.raises(FileError, match=re.escape(problem)):
            prompts_of(tmp_path)


def test_a_case_whose_input_is_hidden_keeps_its_other_words() -> None:
    texts = SourceTexts(lambda _: '{"id": "a", "input": "secret", "notes": "é"}', lambda _: None, lambda _: "")
    text = hide_prompts(texts, object(), are_kept=False).case_text(case_result("a"))  # type: ignore[arg-type] # not asked
    assert text is not None
    assert "secret" not in text
    assert '"notes": "é"' in text


def test_a_short_quote_is_long_enough_where_it_is_the_whole_text() -> None:
    text = "The goods are ground to eighty mesh."

    def counts(quote: str, text: str) -> bool:
        plain = tariff_case(must_cite=["report"])
        plain["input"]["evidence"] = [{"source_id": "report", "text": text}]
        citations = [{"source_id": "report", "quote": quote}]
        return score_of(plain, answer(dossier={"citations": citations})).passed

    for length in (19, 20, 21):
        # half a word is none
        quoted = text[:length] if text[length - 1 : length + 1].count(" ") else text[:length].rpartition(" ")[0]
        assert counts(quoted, text) is (len(quoted.strip()) >= 20)
    assert counts("Ground.", "Ground.")
    assert not counts("Ground", "Ground twice.")


@pytest.mark.parametrize("name", TABLES["answers"])
def test_the_answer_of_each_provider_is_shown_as_its_text(name: str) -> None:
    answer, text = TABLES["answers"][name]
    exchange = {"method": "POST", "path": "/v1", "request": None, "status": 200, "body": answer}
    assert transcript_of(exchange)[-1] == ("POST /v1", "answer", text)


def test_settings_with_patterns_and_functions_are_plain() -> None:
    settings = {"word": re.compile("a+"), "raw": re.compile(b"a"), "words": {"b", "a"}, "rule": len}
    (part,) = parts_of([("part", SimpleNamespace(settings=settings))])
    assert part.settings == {
        "raw": "b'a'",
        "rule": "builtins.len",
        "word": "a+",
        "words": ["a", "b"],
    }


def judged_of(plain: dict[str, Any], result: dict[str, Any]) -> Judged:
    return Judged(TariffCase.model_validate(plain), TariffAnswer.model_validate(result), rules())


def test_a_gate_of_the_target_is_compared_where_both_judged() -> None:
    for in_order in (True, False):
        assert own_gates(judged_of(tariff_case(), answer(in_order=in_order, citations=None))).get("order") is None
    assert answer_facts(judged_of(tariff_case(), answer()))["expected_code"] == "6404119020"
    two = tariff_case(preferred_hts=["6404.11.9020", "9503.00.0073"])
    for code, nearest in (("9503.00.0090", "9503000073"), ("6404.19", "6404119020")):
        assert answer_facts(judged_of(two, answer(code)))["expected_code"] == nearest


def test_what_a_change_is_allowed_for_is_said_in_one_line() -> None:
    change = PolicyChange("threshold lowered", "suite.yaml", "/x", 0.8, 0.7)
    outcome = PolicyOutcome("main", (change, change._replace(reason="too\nhigh")))
    line = "threshold lowered: suite.yaml: /x: 0.8 -> 0.7"
    assert outcome.lines()[:3] == [
        "1 change not allowed, 1 allowed by policy_changes.yaml since main",
        f"{line}: FAIL",
        f"{line}: allowed: too high",
    ]


SOUND = ("1 heading 6404 6405 = 6404", "6 subheading 6404.11 6404.19 = 6404.11")
TRACES = (("1 heading 6404 6405 = 6405",), SOUND[::-1], ("3c heading 6404 6405 = 6405",))


@pytest.mark.parametrize("stated", [None, True, False])
def test_a_trace_out_of_order_says_how_often(stated: bool | None) -> None:
    counts = set()
    for steps in TRACES:
        trace = {"steps": list(map(parse_step, steps)), "sequence_ok": stated}
        result = answer(dossier={"gri_trace": trace})
        violations = TariffAnswer.model_validate(result).order
        assert violations
        first, *others = violations
        more = f", and {len(others)} more" if others else ""
        assert gri_detail(result) == f"rules out of order: {first}{more}"
        counts.add(len(others))
    assert {0, 1} <= counts
    unknown = gri_detail(answer(in_order=stated))
    assert unknown == ("rules out of order: the pipeline reports it" if stated is False else "not assessed: no steps")


def gri_detail(result: dict[str, Any]) -> str:
    return next(term.detail for term in score_of(tariff_case(), result).terms if term.name == "gri_sequence")


def test_articles_with_an_allowed_code_are_allowed() -> None:
    wanted = [
        {"name": name, "preferred_hts": [code], "allowed_hts": ["640520"]}
        for name, code in (("shoe", "640411"), ("hat", "650500"))
    ]

    def level(*codes: str) -> str | None:
        items = [{"article": f"number {code}", "baseline": {"hts_code": code}} for code in codes]
        plain = tariff_case(preferred_hts=[], articles=wanted, threshold=0.95)
        config = {"allow_pass": "for this test"}
        return score_of(plain, answer(dossier={"articles": items, "baseline": None}), **config).match_level

    assert [level("6404.11", "6505.00"), level("6405.20", "6505.00")] == ["preferred", "allowed"]
    assert [level("6404.11", "0101"), level("0101", "0102")] == ["articles", "none"]
    assert level("6404.11", "6505.00", "0101") == "articles"


def test_an_error_line_has_the_trial_of_a_repeated_case() -> None:
    line, second = (case_result("a", "error", trial=trial).error_line("01RUN") for trial in (0, 1))
    assert "trial" not in line
    assert second == {**line, "trial": 1}


def test_a_file_of_hashes_is_read_up_to_16_mebibytes(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "copyright_classifier_hashes"
    folder.mkdir(parents=True)
    poem: Any = SimpleNamespace(behavior_id="poem", tags=())
    for size in (2**24, 2**24 + 1):
        with (folder / "poem.pkl").open("wb") as file:
            file.truncate(size)
        with pytest.raises(FileError, match="HarmBench") as caught:
            similarity(poem, tmp_path, "x")
        assert ("larger than 16 MiB" in str(caught.value)) is (size > 2**24)


def test_a_part_of_edited_cases_passes_and_one_by_other_rules_fails() -> None:
    before = StoredRun(source="f", run=run(), results=(case_result("a", case_sha256="1"),))
    edited = StoredRun(source="f", run=run(), results=(case_result("a", case_sha256="2"),))
    other = replace(edited, run=run(suite_sha256="f" * 64))
    lookup = BaselineLookup(stored=before, requested="passed")
    for now, scope, fails in (
        (edited, "part", False),
        (edited, "suite", True),
        (other, "part", True),
        (other, "suite", True),
        (other, "shard", False),
        (before, "part", False),
        (before, "suite", False),
    ):
        outcome = baseline_outcome(lookup, compare(before, now), scope)
        assert outcome is not None
        assert (outcome.fails_unseen, bool(outcome.failures)) == (fails, fails), (scope, outcome.problem)


def test_a_score_or_a_threshold_above_one_is_not_shown() -> None:
    for value, shown in ((1, 1.0), (0.5, 0.5), (1.5, None), (2, None), (-1, None), ("1", None)):
        counted = records_of([record(passed=False, packbench={"score": value, "threshold": value})])
        (failing,) = next(iter(counted.failing.values())).first
        assert (failing["score"], failing["threshold"]) == (shown, shown)


def test_a_run_has_held_only_if_its_report_says_so(tmp_path: Path) -> None:
    stored = document(run(), [case_result("a")], COMPLETE)
    rows = stored.pop("cases")
    path = tmp_path / "report.json"
    for changes, held in TABLES["held"]:
        path.write_text(json.dumps({"packbench": {**stored, **changes, "cases": rows}}), "utf-8")
        try:
            found = open_run(path).stated.held
        except StoredRunError as error:
            found = None
            assert f"report.json: /packbench/{next(iter(changes))}" in str(error)
        assert found is held, changes


@pytest.mark.parametrize("stated", [None, True, False])
def test_a_citation_that_is_wrong_says_how_many_are_whatever_the_target_reports(stated: bool | None) -> None:
    plain = tariff_case()
    plain["input"]["evidence"] = [{"source_id": "report", "text": "The upper is of woven cotton, the sole of rubber."}]
    quotes = ["The upper is of plaited straw and nothing else.", "No such words stand in it at all."]
    for count, more in ((1, "copy one piece of it exactly"), (2, ", and 1 more")):
        cited = [{"source_id": "report", "claim": "so", "quote": quote} for quote in quotes[:count]]
        terms = score_of(plain, answer(citations=stated, dossier={"citations": cited})).terms
        (detail,) = [term.detail for term in terms if term.effect == "zero"]
        assert detail.startswith('the quote "The upper is of plaited')
        assert detail.endswith(more)


def test_a_record_without_a_trial_is_of_the_first_one(tmp_path: Path) -> None:
    result = case_result("a")
    names = ("score", "threshold", "verdict", "case_id")
    whole = {"version": 1, "terms": [], **{name: result.row()[name] for name in names}}
    for packbench in (whole, {**whole, "trial": 0}):
        written = record(test_id=result.case.test_id, passed=True, packbench=packbench)
        (tmp_path / "records.jsonl").write_text(written.to_json_line() + "\n", "utf-8")
        assert list(checked_results(tmp_path, [result], RUN)) == [result]
        with pytest.raises(StoredRunError, match="is not as in"):
            list(checked_results(tmp_path, [changed(result, trial=1)], RUN))


@pytest.mark.parametrize(("mode", "recordings"), [("fixture", {"a": "1" * 64, "c": "2"}), ("live", {"c": "2"})])
def test_the_policy_of_a_run_has_the_recordings_that_it_replayed(
    mode: str, recordings: dict[str, str], tmp_path: Path
) -> None:
    parts: dict[str, Any] = {name: {} for name in ("config", "files", "code", "hooks", "settings")}
    policy = {"version": 1, **parts, "recordings": {"c": "2"}, "baseline": None}
    results = [case_result("a", case_sha256="d" * 64, cassette_sha256="1" * 64), case_result("b")]
    stored = document(run(mode=mode, suite="toy"), results, COMPLETE)
    rows = stored.pop("cases")
    report = {"packbench": {**stored, "policy": policy, "cases": rows}}
    (tmp_path / "report.json").write_text(json.dumps(report), "utf-8")
    found, note = run_policy(tmp_path, "toy", {"hooks": {}, "suites": {}})
    assert (found["recordings"], mode in note) == (recordings, mode == "live")
    assert {name: case.sha256 for name, case in found["cases"].items()} == {
        "a": "d" * 64,
        "b": case_result("b").case.case_sha256,
    }
