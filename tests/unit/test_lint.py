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
from tests.unit.small_suite import GARLIC, REPORT, Small, small_suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Change = Callable[[Small], object]
    Json = dict[str, Any]


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """The clean suite."""
    return small_suite(tmp_path)


def expecting(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["expected"].update(values))


def noting(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["notes"].update(values))


def asking(case_id: str, **values: Any) -> Change:
    return lambda small: small.case(case_id, lambda case: case["input"].update(values))


def saying(words: str, case_id: str = "powder") -> Change:
    """Add words to a description."""

    def change(case: Json) -> None:
        case["input"]["input"] += f" {words}"

    return lambda small: small.case(case_id, change)


def tagging(case_id: str, *more: str, without: str = "") -> Change:
    def change(case: Json) -> None:
        case["notes"]["tags"] = [*(tag for tag in case["notes"]["tags"] if tag != without), *more]

    return lambda small: small.case(case_id, change)


def listing(name: str, *codes: str, case_id: str = "powder") -> Change:
    """Set a list of codes, each with a reason."""

    def change(case: Json) -> None:
        case["expected"][name] = list(codes)
        others = [] if name == "must_not_hts" else case["expected"]["must_not_hts"]
        case["notes"]["reasons"] = dict.fromkeys([*codes, *others], "wrong or near enough for a reason")

    return lambda small: small.case(case_id, change)


def ruled(text: str) -> Change:
    return lambda small: small.rules(text)


def recorded(of: str, **values: Any) -> Change:
    return lambda small: small.recording(of, lambda cassette: cassette.update(values))


def answered(case_id: str, part: str, **values: Any) -> Change:
    return lambda small: small.answer(case_id, lambda proposal: proposal[part].update(values))


def lost(case_id: str) -> Change:
    return lambda small: small.cassette(case_id).unlink()


def typeless(small: Small) -> None:
    small.path("books").unlink()
    small.cassette("books").unlink()
    small.rules("thresholds: {by_type: {no_savings: 0.8}}\n")


def moved(small: Small) -> None:
    place = small.folder / "cases" / "other" / "books.json"
    place.parent.mkdir()
    small.path("books").rename(place)


def filed_twice(small: Small) -> None:
    """Put a second case of one id into a folder below; both would have the same cassette and so the same input."""
    place = small.folder / "cases" / "more" / "no_savings" / "books.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(small.path("books").read_bytes())


def repeated(small: Small) -> None:
    """Give one case the words of another, in other spacing and letters."""
    small.case("books", lambda case: case["input"].update(input=GARLIC.upper().replace(" ", "  ")))


def stray(small: Small) -> None:
    (small.folder / "fixtures" / "nobody.json").write_bytes(small.cassette("books").read_bytes())


def named(name: str) -> Change:
    def change(small: Small) -> None:
        (small.path("books").parent / name).write_bytes(b"{}")

    return change


GENERAL: list[tuple[str, Change]] = [
    ("case_unreadable", lambda small: small.path("books").write_text("{", encoding="utf-8")),
    ("case_unreadable", expecting("books", expected_accept="yes")),
    ("duplicate_id duplicate_input", filed_twice),
    ("duplicate_input", repeated),
    ("near_duplicate_input", asking("books", input=GARLIC.replace("Ohio", "Iowa"))),
    ("folder_type", moved),
    ("date_missing", noting("books", date=None)),
    ("date_missing", noting("powder", date=None)),
    ("date_unreal", noting("books", date="2015-02-30")),
    ("quarantine_reason", noting("books", skip="later")),
    ("quarantine_reason", noting("books", xfail="  ")),
    ("tag_repeated", tagging("books", "gri_1")),
    ("pair_single", tagging("books", "pair_of_shoes")),
    ("threshold_zero", ruled("thresholds: {accept: 0.0}\n")),
    ("threshold_unused", typeless),
    ("gate_vacuous", ruled("gates: [{metric: pass_rate, min: 0.0}]\n")),
    ("gate_vacuous", ruled("gates: [{metric: over_refusal_rate, max: 1.0}]\n")),
    ("gate_unreachable", ruled("gates: [{metric: pass_rate, min: 0.9, max: 0.8}]\n")),
    ("gate_unknown_case", ruled("gates: [{must_pass: [books, book]}]\n")),
    ("gate_unknown_group", ruled("gates: [{metric: pass_rate, min: 0.9, by: casetype}]\n")),
    ("file_misnamed", named("more.json.txt")),
    ("file_misnamed", named("more.JSON")),
    ("file_misnamed", named("more.ndjson")),
    ("cassette_missing", lost("books")),
    ("cassette_unused", stray),
    ("cassette_foreign", recorded("books", case_id="powder")),
    ("cassette_outdated", recorded("books", input_sha256="0" * 64)),
    ("cassette_unreadable", lambda small: small.cassette("books").write_text("[]", encoding="utf-8")),
]
LEAKS: list[tuple[str, Change]] = [
    ("leak_gold", saying("The seller wrote 0712.90.4020 on it.")),
    ("leak_gold", saying("The seller wrote 0712 90 40 20 on it.")),
    ("leak_gold", saying("The seller wrote 0712-90-4020 on it.")),
    ("leak_gold", saying("The seller wrote 07.12.90 on it.")),
    ("leak_gold", saying("The seller wrote 071290 on it.")),
    ("leak_gold", saying("Article 12/07129040/3.")),
    ("leak_gold", saying("The seller wrote \uff10\uff17\uff11\uff12\uff0e\uff19\uff10 on it.")),
    ("leak_gold", saying("It is of heading 0712.")),
    ("leak_gold", saying("It is of chapter 7.")),
    ("leak_gold", saying("Between headings 0910 and 0712 we hesitate.", "trap")),
    ("leak_gold", saying("The portal says 0712.90.4040 too.", "trap")),
    ("leak_code", saying("A neighbour enters his as 6404.11.9020.")),
    ("leak_code", saying("A neighbour enters his as 6404.11.", "bare")),
    ("leak_code", saying("A neighbour enters his as 6404-11-9020.")),
    ("leak_code", saying("A neighbour enters his as 6404119020.")),
    ("leak_code", asking("quoted", evidence=[{"source_id": "a", "title": "On 6404.11.90", "text": REPORT}])),
    ("leak_heading", saying("A neighbour enters his under heading no. 2106.")),
    ("leak_heading", saying("A neighbour enters his under chapter twenty-one.")),
    ("leak_heading", saying("A neighbour enters his under HTS number 2106.")),
    ("leak_ruling", saying("See NY N270709.")),
    ("leak_ruling", saying("Customs said so in ruling 812345.")),
    ("leak_conclusion", saying("The garlic gives it the essential character.")),
    ("leak_conclusion", saying("So it has been classified in the usual place.")),
    ("leak_chapter", asking("powder", options={"candidate_chapters": ["07", "21"]})),
    ("planted_code_absent", tagging("powder", "planted_code")),
    ("planted_code_allowed", saying("The forwarder says 2106.90.9900.", "trap")),
]
CODES: list[tuple[str, Change]] = [
    ("preferred_missing", expecting("powder", preferred_hts=[])),
    ("preferred_undue", expecting("bare", preferred_hts=["0712.90.4020"])),
    ("preferred_length", listing("preferred_hts", "0712.90.40")),
    ("forbidden_missing", listing("must_not_hts")),
    ("code_length", listing("must_not_hts", "0910.99.6")),
    ("code_form", listing("must_not_hts", "0910996000")),
    ("code_impossible", listing("must_not_hts", "0910.99.6000", "9903")),
    ("code_conflict", listing("must_not_hts", "0712.90.4020")),
    ("code_conflict", listing("must_not_hts", "0712.90.40.20", "0910.99.6000")),
    ("code_repeated", listing("must_not_hts", "0910.99.6000", "0910.99.60.00")),
    ("forbidden_covers_gold", listing("must_not_hts", "0712.90")),
    ("forbidden_unreachable", listing("must_not_hts", "0910", "0910.99.6000")),
    ("reason_missing", noting("powder", reasons={})),
    ("reason_missing allowed_unreachable", expecting("powder", allowed_hts=["0712.90.4040"])),
    ("allowed_unreachable", listing("allowed_hts", "0712.90.4040")),
    ("reason_unused", noting("powder", reasons={"0910.99.6000": "no spice", "4911": "no picture"})),
    ("threshold_unreachable", ruled("scoring: {preferred: 0.7}\n")),
    ("threshold_low", ruled("thresholds: {accept: 0.3}\n")),
    ("threshold_low", ruled("thresholds: {refuse: 0.5}\n")),
    ("threshold_low", ruled("thresholds: {by_type: {no_savings: 0.3}}\n")),
    ("threshold_low", expecting("powder", threshold=0.0)),
]
EXPECTATIONS: list[tuple[str, Change]] = [
    ("type_expectation", expecting("books", no_savings_expected=False)),
    ("type_expectation", expecting("flakes", lever_found_expected=None)),
    ("type_expectation", lambda small: small.case("bare", accepting)),
    ("savings_conflict", expecting("books", lever_count_min=1)),
    ("savings_conflict", expecting("books", duty_delta_range=[-2.0, -1.0])),
    ("savings_conflict", expecting("powder", lever_found_expected=False, min_lever_steps=1)),
    ("savings_conflict", expecting("flakes", expected_best_is_multi_step=False, min_lever_steps=2)),
    ("savings_conflict", expecting("flakes", expected_duty_delta_direction="increase")),
    ("savings_conflict", expecting("flakes", expected_duty_delta_direction="flat")),
    ("expectation_unused", expecting("powder", expected_refusal_category="ambiguous")),
    ("expectation_unused", expecting("bare", lever_count_min=0)),
    ("expectation_unused", expecting("bare", no_savings_expected=True)),
    ("refusal_category_missing", expecting("bare", expected_refusal_category=None)),
]
NOTES: list[tuple[str, Change]] = [
    ("edition_missing", noting("powder", hts_edition=None)),
    ("edition_other", noting("powder", hts_edition="2025 basic")),
    ("source_form", noting("powder", source="ruling:abc")),
    ("tag_unknown", tagging("powder", "garlicky")),
    ("chapter_tag", tagging("bare", without="chapter_07")),
    ("chapter_tag", tagging("powder", "chapter_09")),
    ("chapter_tag", tagging("powder", "chapter_09", without="chapter_07")),
    ("year_tag", tagging("powder", without="ruling_year_2015")),
    ("year_tag", tagging("powder", "ruling_year_2016", without="ruling_year_2015")),
    ("year_tag", tagging("books", "ruling_year_2015")),
    ("description_length", asking("powder", input="garlic powder")),
    ("description_length", asking("powder", input=" ".join(f"word{number}" for number in range(201)))),
    ("citation_trap_evidence", tagging("powder", "citation_trap")),
    ("evidence_tag", tagging("powder", "evidence")),
    ("evidence_tag", tagging("quoted", without="evidence")),
    (
        "evidence_repeated",
        asking("quoted", evidence=[{"source_id": "lab", "text": REPORT}, {"source_id": "lab", "text": "Nothing."}]),
    ),
]
LOOKED_UP: list[tuple[str, Change]] = [
    ("code_unknown", listing("preferred_hts", "0712.90.4099")),
    ("code_unknown", listing("must_not_hts", "0910.11")),
    ("duty_rate", expecting("flakes", expected_duty_total_rate_pct=29.0)),
    ("duty_rate", lambda small: small.case("books", by_volume)),
    ("cassette_code", answered("powder", "baseline", hts_code="0712.90.4099")),
    ("cassette_code", lambda small: small.answer("flakes", unknown_what_if)),
    ("cassette_duty", answered("powder", "baseline", duty_basis="compound")),
    ("cassette_duty", answered("powder", "baseline", duty_breakdown={"base_rate_pct": 9.0, "total_rate_pct": 9.0})),
    ("cassette_duty", answered("powder", "baseline", duty_breakdown={"base_rate_pct": None, "total_rate_pct": None})),
    ("cassette_duty", answered("flakes", "optimized", duty_rate_pct=6.5)),
]


def accepting(case: Json) -> None:
    case["expected"].update(expected_accept=True, preferred_hts=["0712.90.4020"], expected_refusal_category=None)


def by_volume(case: Json) -> None:
    """A gold whose rate is no percentage, with an expected percentage."""
    case["expected"].update(preferred_hts=["2208.40.2000"], expected_duty_total_rate_pct=3.0)
    case["notes"]["tags"] = ["chapter_22"]


def unknown_what_if(proposal: Json) -> None:
    proposal["what_if_candidates"][0]["expected_hts"] = "2106.10"


def with_layer(small: Small) -> None:
    small.answer("flakes", layered)
    small.case("flakes", lambda case: case["expected"].update(expected_duty_total_rate_pct=34.8))


FINE: list[Change] = [
    ruled("gates: [{must_pass: [books]}, {metric: over_refusal_rate, max_ratio_to_baseline: 0.5}]\n"),
    ruled("gates: [{metric: pass_rate, min: 0.9, by: tag}]\n"),
    named("conftest.py"),
    named("README.md"),
    named(".books.json.swp"),
    noting("books", skip="the publisher withdrew the edition"),
    noting("books", xfail="waits for the ruling's revocation"),
    lambda small: small.case("bare", lambda case: case["input"].update(input=GARLIC.replace("Ohio", "Iowa"))),
    lambda small: [lost(path.stem)(small) for path in small.folder.glob("fixtures/*.json")],
    lambda small: [noting("books", skip="the goods are no longer made")(small), lost("books")(small)],
    saying("The entry of 2021-11-30 cost $1250.75 or USD 1250.75, order 4500123, 1200 g at 0.45 each."),
    saying("The forwarder says 0910.99, another one heading 0910.", "trap"),
    saying("A tariff of 20 percent would ruin us; see the last chapter of the manual."),
    recorded("bare", exchanges=[{"role": "propose", "answer": "I decline", "refusal": "no"}]),
    recorded("bare", exchanges=[]),
    answered("flakes", "optimized", duty_rate_pct=6.4),
    lambda small: small.answer("flakes", preferential),
    with_layer,
    lambda small: small.recording("powder", mended),
]
BROKEN = [*GENERAL, *LEAKS, *CODES, *EXPECTATIONS, *NOTES, *LOOKED_UP]


def numbered(names: Iterable[str]) -> list[str]:
    """Names for parameters, each once."""
    return [f"{name.replace(' ', '+')}-{number}" for number, name in enumerate(names, start=1)]


def rules_of(small: Small, *, with_schedule: bool = True) -> set[str]:
    return {finding.rule for finding in small.findings(with_schedule=with_schedule)}


@pytest.mark.parametrize("with_schedule", [True, False])
def test_a_clean_suite_has_no_finding(small: Small, *, with_schedule: bool) -> None:
    assert small.findings(with_schedule=with_schedule) == []


@pytest.mark.parametrize(("rules", "change"), BROKEN, ids=numbered(rules for rules, _ in BROKEN))
def test_each_rule_fires_alone(small: Small, rules: str, change: Change) -> None:
    change(small)
    assert rules_of(small) == set(rules.split())


@pytest.mark.parametrize("change", [change for _, change in LOOKED_UP], ids=numbered(rules for rules, _ in LOOKED_UP))
def test_without_a_schedule_nothing_is_looked_up(small: Small, change: Change) -> None:
    change(small)
    assert rules_of(small, with_schedule=False) == set()


@pytest.mark.parametrize("change", FINE, ids=numbered("fine" for _ in FINE))
def test_what_is_fine_is_not_found(small: Small, change: Change) -> None:
    change(small)
    assert small.findings() == []


def preferential(proposal: Json) -> None:
    """The rate of an agreement, under the same code."""
    proposal["what_if_candidates"][0].update(expected_hts="0712.90.4020", estimated_duty_delta=-27.0)
    proposal["optimized"].update(hts_code="0712.90.4020", duty_rate_pct=2.8)


def layered(proposal: Json) -> None:
    """A duty on top of the baseline's, whose fate after the change is the proposal's own matter."""
    layer = {"layer_id": "extra", "pct": 5.0, "reason": "for the test"}
    proposal["baseline"]["duty_breakdown"]["applied_additional_duties"] = [layer]
    proposal["optimized"]["duty_rate_pct"] = 11.4


def mended(cassette: Json) -> None:
    """A first proposal with a code that doesn't exist, and one that puts it right."""
    first = json.loads(json.dumps(cassette["exchanges"]))
    first[0]["answer"]["baseline"]["hts_code"] = "0712.90.4099"
    cassette["exchanges"] = [*first, {**cassette["exchanges"][0], "role": "revise"}, first[1]]


def test_a_finding_names_file_place_rule_and_what_to_do(small: Small) -> None:
    listing("preferred_hts", "0712.90.4099")(small)
    (finding,) = small.findings()
    assert str(finding) == (
        "cases/positive/powder.json: /expected/preferred_hts/0: code_unknown: "
        "0712.90.4099 is not in the schedule: it exists to 8 of 10 digits"
    )


def test_a_leak_in_evidence_is_found_where_it_stands(small: Small) -> None:
    asking("quoted", evidence=[{"source_id": "a", "text": f"{REPORT} Thus 0712.90.4020."}])(small)
    assert [finding.pointer for finding in small.findings()] == ["/input/evidence/0/text"]


def test_a_case_that_cannot_be_read_hides_no_other(small: Small) -> None:
    small.path("books").write_text("{", encoding="utf-8")
    tagging("powder", "garlicky")(small)
    assert [finding.rule for finding in small.findings()] == ["case_unreadable", "tag_unknown"]


def test_an_empty_suite_is_found(small: Small) -> None:
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


def found_in(*cases: FiledCase, dated: bool = True) -> list[Finding]:
    config = SuiteConfig(pack="toy")
    files = SuiteFiles(config=config, cases=cases, unread=set(), cassettes={}, unread_cassettes=set(), dated=dated)
    return list(check(files))


@pytest.mark.parametrize("source", [None, " "])
def test_a_source_is_missing(source: str | None) -> None:
    assert [finding.rule for finding in found_in(plain_case("a", "one", source=source))] == ["source_missing"]


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
    assert [finding.rule for finding in found_in(plain_case("a", "one", date=date), dated=dated)] == rules


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
        for finding in found_in(*cases)
        if finding.rule == "near_duplicate_input"
    }
    assert found == expected
    assert len(expected) > 4


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2))}


def lint_of(small: Small, *arguments: str) -> int:
    return main(["lint", str(small.folder), *arguments])


def test_the_command_says_that_all_is_well(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint_of(small, "--hts", str(small.schedule)) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings\n"


def test_the_command_prints_a_line_a_finding_and_the_count(
    small: Small, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.folder.parent)
    tagging("powder", "garlicky")(small)
    assert main(["lint", "suite", "--root", "."]) == 1
    assert capsys.readouterr().out.splitlines() == [
        'suite/cases/positive/powder.json: /notes/tags/4: tag_unknown: "garlicky" is not in the vocabulary',
        "1 error, 0 warnings",
    ]


def test_a_warning_does_not_fail(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    listing("must_not_hts", "0910", "0910.99.6000")(small)
    assert lint_of(small) == 0
    first, count = capsys.readouterr().out.splitlines()
    assert first.endswith("0910 forbids it already (warning)")
    assert count == "0 errors, 1 warning"


def test_the_command_gives_json(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    tagging("powder", "garlicky")(small)
    assert lint_of(small, "--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    (finding,) = document.pop("findings")
    assert document == {"version": 1, "errors": 1, "warnings": 0}
    assert finding.keys() == {"file", "pointer", "rule", "message", "severity"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lint", "none", "--root", "."], 'no suite is called "none"'),
        (
            ["lint", "none", "--root", "away"],
            'no suite is called "none": the folder away does not exist; give --root, or',
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
    small: Small, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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
    small: Small, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "builtin", lambda: {"tariff": TariffPack(), "other": Other()})
    assert lint_of(small, "--other-data", "x") == 2
    assert '--other-data: the pack "tariff" of this suite makes no use of it' in capsys.readouterr().err


def test_rules_that_cannot_be_read_are_unusable(small: Small) -> None:
    ruled("scored_cod: final\n")(small)
    assert lint_of(small) == 2
