"""Lint: a clean suite has no finding, and each change for the worse is found by its own rule and by no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.lint import SuiteFiles, check
from pytest_packbench.cases.load import check_case
from pytest_packbench.cli import main
from pytest_packbench.model.case import Case
from pytest_packbench.model.finding import FiledCase, Finding
from pytest_packbench.model.pack import LintOption
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs import agent_safety
from pytest_packbench.packs import registry as known
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.unit.small_tariff_suite import GARLIC, REPORT, SmallSuite, small_suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Change = Callable[[SmallSuite], object]
    Json = dict[str, Any]


@pytest.fixture
def small(tmp_path: Path) -> SmallSuite:
    """The clean suite."""
    return small_suite(tmp_path)


def with_expected(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["expected"].update(values))


def with_notes(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["notes"].update(values))


def with_input(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["input"].update(values))


def with_text(words: str, case_id: str = "powder") -> Change:
    """Add words to a description."""

    def change(case: Json) -> None:
        case["input"]["input"] += f" {words}"

    return lambda small: small.case(case_id, change)


def with_tags(case_id: str, *more: str, without: str = "") -> Change:
    def change(case: Json) -> None:
        case["notes"]["tags"] = [*(tag for tag in case["notes"]["tags"] if tag != without), *more]

    return lambda small: small.case(case_id, change)


def with_codes(name: str, *codes: str, case_id: str = "powder") -> Change:
    """Set a list of codes, each with a reason."""

    def change(case: Json) -> None:
        case["expected"][name] = list(codes)
        others = [] if name == "must_not_hts" else case["expected"]["must_not_hts"]
        case["notes"]["reasons"] = dict.fromkeys([*codes, *others], "wrong or near enough for a reason")

    return lambda small: small.case(case_id, change)


def with_rules(text: str) -> Change:
    return lambda small: small.rules(text)


def with_cassette(of: str, **values: Any) -> Change:
    return lambda small: small.recording(of, lambda cassette: cassette.update(values))


def with_answer(case_id: str, part: str, **values: Any) -> Change:
    return lambda small: small.answer(case_id, lambda proposal: proposal[part].update(values))


def without_cassette(case_id: str) -> Change:
    return lambda small: small.cassette(case_id).unlink()


def unused_type(small: SmallSuite) -> None:
    small.path("books").unlink()
    small.cassette("books").unlink()
    small.rules("thresholds: {by_type: {no_savings: 0.8}}\n")


def moved_case(small: SmallSuite) -> None:
    place = small.folder / "cases" / "other" / "books.json"
    place.parent.mkdir()
    small.path("books").rename(place)


def duplicate_case(small: SmallSuite) -> None:
    """Put a second case of one id into a folder below; both would have the same cassette and so the same input."""
    place = small.folder / "cases" / "more" / "no_savings" / "books.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(small.path("books").read_bytes())


def duplicate_input(small: SmallSuite) -> None:
    """Give one case the words of another, in other spacing and letters."""
    small.case("books", lambda case: case["input"].update(input=GARLIC.upper().replace(" ", "  ")))


def unused_cassette(small: SmallSuite) -> None:
    (small.folder / "fixtures" / "nobody.json").write_bytes(small.cassette("books").read_bytes())


def with_file(name: str) -> Change:
    def change(small: SmallSuite) -> None:
        (small.path("books").parent / name).write_bytes(b"{}")

    return change


GENERAL: list[tuple[str, Change]] = [
    ("case_unreadable", lambda small: small.path("books").write_text("{", encoding="utf-8")),
    ("case_unreadable", with_expected("books", expected_accept="yes")),
    ("duplicate_id duplicate_input", duplicate_case),
    ("duplicate_input", duplicate_input),
    ("near_duplicate_input", with_input("books", input=GARLIC.replace("Ohio", "Iowa"))),
    ("folder_type", moved_case),
    ("date_missing", with_notes("books", date=None)),
    ("date_missing", with_notes("powder", date=None)),
    ("date_unreal", with_notes("books", date="2015-02-30")),
    ("quarantine_reason", with_notes("books", skip="later")),
    ("quarantine_reason", with_notes("books", xfail="  ")),
    ("tag_repeated", with_tags("books", "gri_1")),
    ("pair_single", with_tags("books", "pair_of_shoes")),
    ("threshold_zero", with_rules("thresholds: {accept: 0.0}\n")),
    ("threshold_unused", unused_type),
    ("gate_vacuous", with_rules("gates: [{metric: pass_rate, min: 0.0}]\n")),
    ("gate_vacuous", with_rules("gates: [{metric: over_refusal_rate, max: 1.0}]\n")),
    ("gate_unreachable", with_rules("gates: [{metric: pass_rate, min: 0.9, max: 0.8}]\n")),
    ("gate_unknown_case", with_rules("gates: [{must_pass: [books, book]}]\n")),
    ("gate_unknown_group", with_rules("gates: [{metric: pass_rate, min: 0.9, by: casetype}]\n")),
    ("file_misnamed", with_file("more.json.txt")),
    ("file_misnamed", with_file("more.JSON")),
    ("file_misnamed", with_file("more.ndjson")),
    ("cassette_missing", without_cassette("books")),
    ("cassette_unused", unused_cassette),
    ("cassette_foreign", with_cassette("books", case_id="powder")),
    ("cassette_outdated", with_cassette("books", input_sha256="0" * 64)),
    ("cassette_unreadable", lambda small: small.cassette("books").write_text("[]", encoding="utf-8")),
]
LEAKS: list[tuple[str, Change]] = [
    ("leak_gold", with_text("The seller wrote 0712.90.4020 on it.")),
    ("leak_gold", with_text("The seller wrote 0712 90 40 20 on it.")),
    ("leak_gold", with_text("The seller wrote 0712-90-4020 on it.")),
    ("leak_gold", with_text("The seller wrote 07.12.90 on it.")),
    ("leak_gold", with_text("The seller wrote 071290 on it.")),
    ("leak_gold", with_text("Article 12/07129040/3.")),
    ("leak_gold", with_text("The seller wrote \uff10\uff17\uff11\uff12\uff0e\uff19\uff10 on it.")),
    ("leak_gold", with_text("It is of heading 0712.")),
    ("leak_gold", with_text("It is of chapter 7.")),
    ("leak_gold", with_text("Between headings 0910 and 0712 we hesitate.", "trap")),
    ("leak_gold", with_text("The portal says 0712.90.4040 too.", "trap")),
    ("leak_code", with_text("A neighbour enters his as 6404.11.9020.")),
    ("leak_code", with_text("A neighbour enters his as 6404.11.", "bare")),
    ("leak_code", with_text("A neighbour enters his as 6404-11-9020.")),
    ("leak_code", with_text("A neighbour enters his as 6404119020.")),
    ("leak_code", with_input("quoted", evidence=[{"source_id": "a", "title": "On 6404.11.90", "text": REPORT}])),
    ("leak_heading", with_text("A neighbour enters his under heading no. 2106.")),
    ("leak_heading", with_text("A neighbour enters his under chapter twenty-one.")),
    ("leak_heading", with_text("A neighbour enters his under HTS number 2106.")),
    ("leak_ruling", with_text("See NY N270709.")),
    ("leak_ruling", with_text("Customs said so in ruling 812345.")),
    ("leak_conclusion", with_text("The garlic gives it the essential character.")),
    ("leak_conclusion", with_text("So it has been classified in the usual place.")),
    ("leak_chapter", with_input("powder", options={"candidate_chapters": ["07", "21"]})),
    ("planted_code_absent", with_tags("powder", "planted_code")),
    ("planted_code_allowed", with_text("The forwarder says 2106.90.9900.", "trap")),
]
CODES: list[tuple[str, Change]] = [
    ("preferred_missing", with_expected("powder", preferred_hts=[])),
    ("preferred_undue", with_expected("bare", preferred_hts=["0712.90.4020"])),
    ("preferred_length", with_codes("preferred_hts", "0712.90.40")),
    ("forbidden_missing", with_codes("must_not_hts")),
    ("code_length", with_codes("must_not_hts", "0910.99.6")),
    ("code_form", with_codes("must_not_hts", "0910996000")),
    ("code_impossible", with_codes("must_not_hts", "0910.99.6000", "9903")),
    ("code_conflict", with_codes("must_not_hts", "0712.90.4020")),
    ("code_conflict", with_codes("must_not_hts", "0712.90.40.20", "0910.99.6000")),
    ("code_repeated", with_codes("must_not_hts", "0910.99.6000", "0910.99.60.00")),
    ("forbidden_covers_gold", with_codes("must_not_hts", "0712.90")),
    ("forbidden_unreachable", with_codes("must_not_hts", "0910", "0910.99.6000")),
    ("reason_missing", with_notes("powder", reasons={})),
    ("reason_missing allowed_unreachable", with_expected("powder", allowed_hts=["0712.90.4040"])),
    ("allowed_unreachable", with_codes("allowed_hts", "0712.90.4040")),
    ("reason_unused", with_notes("powder", reasons={"0910.99.6000": "no spice", "4911": "no picture"})),
    ("threshold_unreachable", with_rules("scoring: {preferred: 0.7}\n")),
    ("threshold_low", with_rules("thresholds: {accept: 0.3}\n")),
    ("threshold_low", with_rules("thresholds: {refuse: 0.5}\n")),
    ("threshold_low", with_rules("thresholds: {by_type: {no_savings: 0.3}}\n")),
    ("threshold_low", with_expected("powder", threshold=0.0)),
]
EXPECTATIONS: list[tuple[str, Change]] = [
    ("type_expectation", with_expected("books", no_savings_expected=False)),
    ("type_expectation", with_expected("flakes", lever_found_expected=None)),
    ("type_expectation", lambda small: small.case("bare", accept)),
    ("savings_conflict", with_expected("books", lever_count_min=1)),
    ("savings_conflict", with_expected("books", duty_delta_range=[-2.0, -1.0])),
    ("savings_conflict", with_expected("powder", lever_found_expected=False, min_lever_steps=1)),
    ("savings_conflict", with_expected("flakes", expected_best_is_multi_step=False, min_lever_steps=2)),
    ("savings_conflict", with_expected("flakes", expected_duty_delta_direction="increase")),
    ("savings_conflict", with_expected("flakes", expected_duty_delta_direction="flat")),
    ("expectation_unused", with_expected("powder", expected_refusal_category="ambiguous")),
    ("expectation_unused", with_expected("bare", lever_count_min=0)),
    ("expectation_unused", with_expected("bare", no_savings_expected=True)),
    ("refusal_category_missing", with_expected("bare", expected_refusal_category=None)),
]
NOTES: list[tuple[str, Change]] = [
    ("edition_missing", with_notes("powder", hts_edition=None)),
    ("edition_other", with_notes("powder", hts_edition="2025 basic")),
    ("source_form", with_notes("powder", source="ruling:abc")),
    ("tag_unknown", with_tags("powder", "garlicky")),
    ("chapter_tag", with_tags("bare", without="chapter_07")),
    ("chapter_tag", with_tags("powder", "chapter_09")),
    ("chapter_tag", with_tags("powder", "chapter_09", without="chapter_07")),
    ("year_tag", with_tags("powder", without="ruling_year_2015")),
    ("year_tag", with_tags("powder", "ruling_year_2016", without="ruling_year_2015")),
    ("year_tag", with_tags("books", "ruling_year_2015")),
    ("description_length", with_input("powder", input="garlic powder")),
    ("description_length", with_input("powder", input=" ".join(f"word{number}" for number in range(201)))),
    ("citation_trap_evidence", with_tags("powder", "citation_trap")),
    ("evidence_tag", with_tags("powder", "evidence")),
    ("evidence_tag", with_tags("quoted", without="evidence")),
    (
        "evidence_repeated",
        with_input("quoted", evidence=[{"source_id": "lab", "text": REPORT}, {"source_id": "lab", "text": "Nothing."}]),
    ),
]
LOOKED_UP: list[tuple[str, Change]] = [
    ("code_unknown", with_codes("preferred_hts", "0712.90.4099")),
    ("code_unknown", with_codes("must_not_hts", "0910.11")),
    ("duty_rate", with_expected("flakes", expected_duty_total_rate_pct=29.0)),
    ("duty_rate", lambda small: small.case("books", specific_rate)),
    ("cassette_code", with_answer("powder", "baseline", hts_code="0712.90.4099")),
    ("cassette_code", lambda small: small.answer("flakes", unknown_what_if)),
    ("cassette_duty", with_answer("powder", "baseline", duty_basis="compound")),
    ("cassette_duty", with_answer("powder", "baseline", duty_breakdown={"base_rate_pct": 9.0, "total_rate_pct": 9.0})),
    (
        "cassette_duty",
        with_answer("powder", "baseline", duty_breakdown={"base_rate_pct": None, "total_rate_pct": None}),
    ),
    ("cassette_duty", with_answer("flakes", "optimized", duty_rate_pct=6.5)),
]


def accept(case: Json) -> None:
    case["expected"].update(expected_accept=True, preferred_hts=["0712.90.4020"], expected_refusal_category=None)


def specific_rate(case: Json) -> None:
    """A gold whose rate is no percentage, with an expected percentage."""
    case["expected"].update(preferred_hts=["2208.40.2000"], expected_duty_total_rate_pct=3.0)
    case["notes"]["tags"] = ["chapter_22"]


def unknown_what_if(proposal: Json) -> None:
    proposal["what_if_candidates"][0]["expected_hts"] = "2106.10"


def with_layer(small: SmallSuite) -> None:
    small.answer("flakes", additional_duty)
    small.case("flakes", lambda case: case["expected"].update(expected_duty_total_rate_pct=34.8))


FINE: list[Change] = [
    with_rules("gates: [{must_pass: [books]}, {metric: over_refusal_rate, max_ratio_to_baseline: 0.5}]\n"),
    with_rules("gates: [{metric: pass_rate, min: 0.9, by: tag}]\n"),
    with_file("conftest.py"),
    with_file("README.md"),
    with_file(".books.json.swp"),
    with_notes("books", skip="the publisher withdrew the edition"),
    with_notes("books", xfail="waits for the ruling's revocation"),
    lambda small: small.case("bare", lambda case: case["input"].update(input=GARLIC.replace("Ohio", "Iowa"))),
    lambda small: [without_cassette(path.stem)(small) for path in small.folder.glob("fixtures/*.json")],
    lambda small: [with_notes("books", skip="the goods are no longer made")(small), without_cassette("books")(small)],
    with_text("The entry of 2021-11-30 cost $1250.75 or USD 1250.75, order 4500123, 1200 g at 0.45 each."),
    with_text("The forwarder says 0910.99, another one heading 0910.", "trap"),
    with_text("A tariff of 20 percent would ruin us; see the last chapter of the manual."),
    with_cassette("bare", exchanges=[{"role": "propose", "answer": "I decline", "refusal": "no"}]),
    with_cassette("bare", exchanges=[]),
    with_answer("flakes", "optimized", duty_rate_pct=6.4),
    lambda small: small.answer("flakes", preferential_rate),
    with_layer,
    lambda small: small.recording("powder", revised_proposal),
]
BROKEN = [*GENERAL, *LEAKS, *CODES, *EXPECTATIONS, *NOTES, *LOOKED_UP]


def numbered_ids(names: Iterable[str]) -> list[str]:
    """Names for parameters, each once."""
    return [f"{name.replace(' ', '+')}-{number}" for number, name in enumerate(names, start=1)]


def rules_of(small: SmallSuite, *, with_schedule: bool = True) -> set[str]:
    return {finding.rule for finding in small.findings(with_schedule=with_schedule)}


@pytest.mark.parametrize("with_schedule", [True, False])
def test_a_clean_suite_has_no_finding(small: SmallSuite, *, with_schedule: bool) -> None:
    assert small.findings(with_schedule=with_schedule) == []


@pytest.mark.parametrize(("rules", "change"), BROKEN, ids=numbered_ids(rules for rules, _ in BROKEN))
def test_each_rule_fires_alone(small: SmallSuite, rules: str, change: Change) -> None:
    change(small)
    assert rules_of(small) == set(rules.split())


@pytest.mark.parametrize(
    "change", [change for _, change in LOOKED_UP], ids=numbered_ids(rules for rules, _ in LOOKED_UP)
)
def test_without_a_schedule_nothing_is_looked_up(small: SmallSuite, change: Change) -> None:
    change(small)
    assert rules_of(small, with_schedule=False) == set()


@pytest.mark.parametrize("change", FINE, ids=numbered_ids("fine" for _ in FINE))
def test_what_is_fine_is_not_found(small: SmallSuite, change: Change) -> None:
    change(small)
    assert small.findings() == []


def preferential_rate(proposal: Json) -> None:
    """The rate of an agreement, under the same code."""
    proposal["what_if_candidates"][0].update(expected_hts="0712.90.4020", estimated_duty_delta=-27.0)
    proposal["optimized"].update(hts_code="0712.90.4020", duty_rate_pct=2.8)


def additional_duty(proposal: Json) -> None:
    """A duty on top of the baseline's, whose fate after the change is the proposal's own matter."""
    layer = {"layer_id": "extra", "pct": 5.0, "reason": "for the test"}
    proposal["baseline"]["duty_breakdown"]["applied_additional_duties"] = [layer]
    proposal["optimized"]["duty_rate_pct"] = 11.4


def revised_proposal(cassette: Json) -> None:
    """A first proposal with a code that doesn't exist, and one that puts it right."""
    first = json.loads(json.dumps(cassette["exchanges"]))
    first[0]["answer"]["baseline"]["hts_code"] = "0712.90.4099"
    cassette["exchanges"] = [*first, {**cassette["exchanges"][0], "role": "revise"}, first[1]]


def test_a_finding_names_file_place_rule_and_what_to_do(small: SmallSuite) -> None:
    with_codes("preferred_hts", "0712.90.4099")(small)
    (finding,) = small.findings()
    assert str(finding) == (
        "cases/positive/powder.json: /expected/preferred_hts/0: code_unknown: "
        "0712.90.4099 is not in the schedule; only its first 8 of 10 digits are"
    )


def test_a_leak_in_evidence_is_found_where_it_stands(small: SmallSuite) -> None:
    with_input("quoted", evidence=[{"source_id": "a", "text": f"{REPORT} Thus 0712.90.4020."}])(small)
    assert [finding.pointer for finding in small.findings()] == ["/input/evidence/0/text"]


def test_a_case_that_cannot_be_read_hides_no_other(small: SmallSuite) -> None:
    small.path("books").write_text("{", encoding="utf-8")
    with_tags("powder", "garlicky")(small)
    assert [finding.rule for finding in small.findings()] == ["case_unreadable", "tag_unknown"]


def test_an_empty_suite_is_found(small: SmallSuite) -> None:
    for path in [*small.folder.glob("cases/*/*.json"), *small.folder.glob("fixtures/*.json")]:
        path.unlink()
    assert rules_of(small) == {"suite_empty"}


def plain_case(case_id: str, text: str, **notes: Any) -> FiledCase:
    """A case of no domain."""
    data = {"id": case_id, "pack_id": "toy", "case_type": "plain", "difficulty": "easy", "expected": {}}
    data |= {"input": {"order": [1, {"text": text}]}, "notes": {"date": "2026-01-31", "source": "a book", **notes}}
    file = f"cases/plain/{case_id}.json"
    loaded = check_case(data, Case, source=file, stem=case_id, pack="toy")
    return FiledCase(file=file, folder="plain", loaded=loaded, cassette=None, cassette_file=f"fixtures/{case_id}.json")


def findings_in(*cases: FiledCase, dated: bool = True) -> list[Finding]:
    config = SuiteConfig(pack="toy")
    files = SuiteFiles(config=config, cases=cases, unread=set(), cassettes={}, unread_cassettes=set(), dated=dated)
    return list(check(files))


@pytest.mark.parametrize("source", [None, " "])
def test_a_source_is_missing(source: str | None) -> None:
    assert [finding.rule for finding in findings_in(plain_case("a", "one", source=source))] == ["source_missing"]


@pytest.mark.parametrize(
    ("date", "dated", "rules"),
    [
        (None, True, ["date_missing"]),
        (None, False, []),
        ("2015-02-30", True, ["date_unreal"]),
        ("2015-02-30", False, ["date_unreal"]),
    ],
)
def test_a_date_is_asked_for_where_answers_go_stale(date: str | None, dated: bool, rules: list[str]) -> None:
    assert [finding.rule for finding in findings_in(plain_case("a", "one", date=date), dated=dated)] == rules


def test_attacks_on_agents_do_not_go_stale(tmp_path: Path) -> None:
    suite = tmp_path / "attacks"
    shutil.copytree(Path(agent_safety.__file__).parent / "starter" / "suite", suite)
    for path in suite.glob("cases/*/*.json"):
        case = json.loads(path.read_text("utf-8").replace("SUITE_NAME", "attacks"))
        case["notes"].pop("date", None)
        path.write_text(json.dumps(case), encoding="utf-8")
    rules = suite / "suite.yaml"
    rules.write_text(rules.read_text("utf-8").replace("SUITE_NAME", "attacks"), encoding="utf-8")
    assert main(["lint", str(suite)]) == 0


def test_near_duplicates_are_found_as_by_comparing_each_with_each() -> None:
    words = [f"word{number}" for number in range(60)]
    texts = [" ".join([*words[:cut], "other", *words[cut + 1 :]]) for cut in (0, 1, 30, 59)]
    # ten triples and nine of them: just alike enough, and the rarest one is not shared
    texts += ["a b c d e f g h i j k", "a b c d e f g h i j"]
    texts += [" ".join(words), " ".join(words[:50]), " ".join(words[:20]), "word0", "word1"]
    cases = [plain_case(f"c{number}", text) for number, text in enumerate(texts)]
    triples = [shingles(f"1 {text}") for text in texts]
    expected = {
        (f"cases/plain/c{left}.json", f"cases/plain/c{right}.json")
        for right in range(len(texts))
        for left in range(right)
        if len(triples[left] & triples[right]) >= 0.9 * len(triples[left] | triples[right])
    }
    found = {
        (finding.message.split(" similar to ")[1].split(";")[0], finding.file)
        for finding in findings_in(*cases)
        if finding.rule == "near_duplicate_input"
    }
    assert found == expected
    assert len(expected) > 4


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2))}


def run_lint(small: SmallSuite, *arguments: str) -> int:
    return main(["lint", str(small.folder), *arguments])


def test_the_command_says_that_all_is_well(small: SmallSuite, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_lint(small, "--hts", str(small.schedule)) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings\n"


def test_the_command_prints_a_line_a_finding_and_the_count(
    small: SmallSuite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.folder.parent)
    with_tags("powder", "garlicky")(small)
    assert main(["lint", "suite", "--root", "."]) == 1
    finding, summary = capsys.readouterr().out.splitlines()
    assert finding.startswith('suite/cases/positive/powder.json: /notes/tags/4: tag_unknown: unknown tag "garlicky"; ')
    assert summary == "1 error, 0 warnings"


def test_a_warning_does_not_fail(small: SmallSuite, capsys: pytest.CaptureFixture[str]) -> None:
    with_codes("must_not_hts", "0910", "0910.99.6000")(small)
    assert run_lint(small) == 0
    first, count = capsys.readouterr().out.splitlines()
    assert first.endswith("0910 already forbids it; remove one of them (warning)")
    assert count == "0 errors, 1 warning"


def test_the_command_gives_json(small: SmallSuite, capsys: pytest.CaptureFixture[str]) -> None:
    with_tags("powder", "garlicky")(small)
    assert run_lint(small, "--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    (finding,) = document.pop("findings")
    assert document == {"version": 1, "errors": 1, "warnings": 0}
    assert finding.keys() == {"file", "pointer", "rule", "message", "severity"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lint", "none", "--root", "."], 'unknown suite "none"'),
        (
            ["lint", "none", "--root", "away"],
            'unknown suite "none": the folder away does not exist; pass --root, or',
        ),
        (
            ["lint", "suite/cases", "--root", "."],
            "suite/cases has no suite.yaml; create it with the rules of the suite",
        ),
        (["lint", "suite", "--root", ".", "--hts", "none.tsv"], "none.tsv: No such file"),
        (["lint", "suite", "--root", ".", "--hts", "suite/suite.yaml"], "suite/suite.yaml: not a tariff schedule"),
    ],
)
def test_unusable_input_is_one_line_and_exit_2(
    small: SmallSuite,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(small.folder.parent)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"packbench: {said}")
    assert captured.err.count("\n") == 1


class Other(TariffPack):
    """A second pack, whose lint makes use of another file."""

    name = "other"
    lint_options = (LintOption(name="other-data", help="for the test"),)


def test_a_file_that_the_pack_makes_no_use_of_is_refused(
    small: SmallSuite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "builtin", lambda: {"tariff": TariffPack(), "other": Other()})
    assert run_lint(small, "--other-data", "x") == 2
    assert '--other-data: the pack "tariff" of this suite does not use this file' in capsys.readouterr().err


def test_rules_that_cannot_be_read_are_unusable(small: SmallSuite) -> None:
    with_rules("scored_cod: final\n")(small)
    assert run_lint(small) == 2
