"""Lint: a clean suite has no finding, and each change for the worse is found by its own rule and by no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.api import load_suite
from pytest_packbench.cases.lint import lint
from pytest_packbench.cli import main
from pytest_packbench.model.pack import LintOption
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.testing import case, write_suite
from tests.unit.small_tariff_suite import GARLIC, REPORT, SmallSuite, small_suite

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.model.authoring import Finding
    from tests.conftest import ExpectedTexts

TABLE: dict[str, list[tuple[str, str, dict[str, Any]]]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "lint.yaml").read_text("utf-8")
)
TEXTS = {
    "GARLIC in Iowa": GARLIC.replace("Ohio", "Iowa"),
    # other spacing and letters, same words
    "GARLIC IN CAPITALS": GARLIC.upper().replace(" ", "  "),
    "201 WORDS": " ".join(f"word{number}" for number in range(201)),
}


def merge(target: dict[str, Any], change: dict[str, Any]) -> None:
    """Merge a change into a case, a cassette or a recorded answer, two levels deep; of a list the first element."""
    for key, value in change.items():
        inner = target[key][0] if key == "what_if_candidates" else target[key]
        for name, content in value.items():
            inner[name] = {**inner[name], **content} if name == "duty_breakdown" else content


def change(small: SmallSuite, name: str, row: dict[str, Any]) -> None:
    """Make the changes of a row of the table."""

    def change_case(case: dict[str, Any]) -> None:
        merge(case, {key: row[key] for key in ("input", "expected", "notes") if key in row})
        case["input"]["input"] += f" {row['text']}" if "text" in row else ""
        if "tags" in row:
            tags = (tag for tag in case["notes"]["tags"] if tag != row.get("without"))
            case["notes"]["tags"] = [*tags, *row["tags"]]
        for key, codes in row.get("codes", {}).items():
            case["expected"][key] = codes
            others = [] if key == "must_not_hts" else case["expected"]["must_not_hts"]
            case["notes"]["reasons"] = dict.fromkeys([*codes, *others], "wrong or near enough for a reason")

    row = json.loads(json.dumps(row).replace("REPORT", REPORT))
    if row.get("input", {}).get("input") in TEXTS:
        row["input"]["input"] = TEXTS[row["input"]["input"]]
    if "rules" in row:
        small.rules(f"{row['rules']}\n")
    else:
        small.case(name, change_case)
        small.recording(name, lambda cassette: cassette.update(row.get("cassette", {})))
        if "answer" in row:
            small.answer(name, lambda answer: merge(answer, row["answer"]))


def rules_of(findings: list[Finding]) -> set[str]:
    return {finding.rule for finding in findings}


@pytest.mark.parametrize("section", TABLE)
def test_each_rule_fires_alone(tmp_path: Path, expected: ExpectedTexts, section: str) -> None:
    lines = []
    for number, (rules, name, row) in enumerate(TABLE[section]):
        small = small_suite(tmp_path / str(number))
        change(small, name, row)
        findings = small.findings()
        assert rules_of(findings) == set(rules.split()), row
        lines += [f"{json.dumps(row)}\n", *(f"    {finding} [{finding.severity}]\n" for finding in findings)]
        if section == "schedule":
            assert small.findings(with_schedule=False) == []
    expected.check("".join(lines))


def write(name: str, text: str = "{}") -> Callable[[SmallSuite], object]:
    return lambda small: (small.folder / name).write_text(text, encoding="utf-8")


def duplicate_case(small: SmallSuite) -> None:
    """A second case of one id, in another folder; both would have the same cassette and so the same input."""
    path = small.folder / "cases" / "more" / "no_savings" / "books.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(small.path("books").read_bytes())


def move_case(small: SmallSuite) -> None:
    (small.folder / "cases" / "other").mkdir()
    small.path("books").rename(small.folder / "cases" / "other" / "books.json")


def unuse_type(small: SmallSuite) -> None:
    delete("cases/no_savings/books.json", "fixtures/books.json")(small)
    small.rules("thresholds: {by_type: {no_savings: 0.8}}\n")


def skip_without_cassette(small: SmallSuite) -> None:
    change(small, "books", {"notes": {"skip": "the goods are no longer sold"}})
    small.cassette("books").unlink()


def break_a_case_and_tag_another(small: SmallSuite) -> None:
    write("cases/no_savings/books.json", "{")(small)
    change(small, "powder", {"tags": ["garlicky"]})


def revise(small: SmallSuite) -> None:
    """A first proposal with a code that doesn't exist, and a second one without it."""

    def add_exchanges(cassette: dict[str, Any]) -> None:
        proposal, critique = cassette["exchanges"]
        first = json.loads(json.dumps(proposal))
        first["answer"]["baseline"]["hts_code"] = "0712.90.4099"
        cassette["exchanges"] = [first, critique, {**proposal, "role": "revise"}, critique]

    small.recording("powder", add_exchanges)


def delete(*patterns: str) -> Callable[[SmallSuite], object]:
    def unlink(small: SmallSuite) -> None:
        for path in [path for pattern in patterns for path in small.folder.glob(pattern)]:
            path.unlink()

    return unlink


FILES: dict[str, tuple[Callable[[SmallSuite], object], str]] = {
    "a clean suite": (lambda _: None, ""),
    "an empty suite": (delete("cases/*/*.json", "fixtures/*.json"), "suite_empty"),
    "a case that is no JSON": (write("cases/no_savings/books.json", "{"), "case_unreadable"),
    "a case that is no JSON hides no other": (break_a_case_and_tag_another, "case_unreadable tag_unknown"),
    "a cassette that is none": (write("fixtures/books.json", "[]"), "cassette_unreadable"),
    "a case twice": (duplicate_case, "duplicate_id duplicate_input"),
    "a case in the folder of another type": (move_case, "folder_type"),
    "no case of a type": (unuse_type, "threshold_unused"),
    "a case without its cassette": (delete("fixtures/books.json"), "cassette_missing"),
    "a cassette without a case": (
        lambda small: shutil.copy(small.cassette("books"), small.cassette("nobody")),
        "cassette_unused",
    ),
    **{f"a file {name}": (write(f"cases/{name}"), "file_misnamed") for name in ("a.json.txt", "a.JSON", "a.ndjson")},
    **{f"a file {name}": (write(f"cases/{name}"), "") for name in ("conftest.py", "README.md", ".a.json.swp")},
    "no cassettes": (delete("fixtures/*.json"), ""),
    "a skipped case without its cassette": (skip_without_cassette, ""),
    "a proposal that is revised": (revise, ""),
}


def test_each_file_in_the_wrong_place_is_found(tmp_path: Path, expected: ExpectedTexts) -> None:
    lines = []
    for name, (change_files, rules) in FILES.items():
        small = small_suite(tmp_path / name)
        change_files(small)
        findings = small.findings()
        assert rules_of(findings) == set(rules.split()), name
        lines += [f"{name}\n", *(f"    {finding} [{finding.severity}]\n" for finding in findings)]
    expected.check("".join(lines))


def test_provenance_is_required_and_a_date_where_answers_go_stale(tmp_path: Path) -> None:
    book = {"source": "a book", "date": "2026-01-31"}
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"source": None},
        {"source": " "},
        {"date": None},
        {"date": "2015-02-30"},
    )
    cases = [case(f"c{number}", input=number, notes=book | change) for number, change in enumerate(changes)]
    suite = load_suite(write_suite(tmp_path / "dated", cases, pack="generic"))
    found = [(Path(finding.file).stem, finding.rule) for finding in lint(suite, GenericPack(), {})]
    missing = [("c1", "source_missing"), ("c2", "source_missing"), ("c3", "date_missing"), ("c4", "date_unreal")]
    assert sorted(found) == missing


def test_near_duplicates_are_those_of_comparing_each_with_each(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(60)]
    texts = [" ".join([*words[:cut], "other", *words[cut + 1 :]]) for cut in (0, 1, 30, 59)]
    # ten triples and nine of them: just alike enough, and the rarest one is not shared
    texts += ["a b c d e f g h i j k", "a b c d e f g h i j"]
    texts += [" ".join(words), " ".join(words[:50]), " ".join(words[:20]), "word0", "word1"]
    triples = [shingles(f"1 {text}") for text in texts]
    similar = {
        (f"c{left:02}", f"c{right:02}")
        for right in range(len(texts))
        for left in range(right)
        if len(triples[left] & triples[right]) >= 0.9 * len(triples[left] | triples[right])
    }
    cases = [case(f"c{number:02}", input={"order": [1, {"text": text}]}) for number, text in enumerate(texts)]
    suite = load_suite(write_suite(tmp_path, cases, pack="generic"))
    found = [finding for finding in lint(suite, GenericPack(), {}) if finding.rule == "near_duplicate_input"]
    assert len(similar) > 4
    assert similar == {(str(finding.message).split("/")[-1][:3], Path(finding.file).stem) for finding in found}


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2))}


class OtherPack(TariffPack):
    """A second pack, whose lint uses another file."""

    name = "other"
    lint_options = (LintOption(name="other-data", help="for the test"),)


def test_the_command_prints_findings_and_returns_1_if_one_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, expected: ExpectedTexts
) -> None:
    small = small_suite(tmp_path)
    monkeypatch.chdir(small.folder.parent)
    text = ""

    def run(*arguments: str) -> None:
        nonlocal text
        code = main(["lint", *arguments])
        captured = capsys.readouterr()
        text += f"$ packbench lint {' '.join(arguments)}\n{captured.out}{captured.err}exit code {code}\n"

    run("suite", "--root", ".", "--hts", "schedule.tsv")
    change(small, "powder", {"codes": {"must_not_hts": ["0910", "0910.99.6000"]}})
    run("suite", "--root", ".")
    change(small, "powder", {"tags": ["garlicky"]})
    run("suite", "--root", ".")
    run(str(small.folder.relative_to(Path.cwd())), "--format", "json")
    run("none", "--root", ".")
    run("none", "--root", "away")
    run("suite/cases", "--root", ".")
    run("suite", "--root", ".", "--hts", "none.tsv")
    run("suite", "--root", ".", "--hts", "suite/suite.yaml")
    packs = "def pytest_packbench_packs():\n    from tests.unit.test_lint import OtherPack\n    return [OtherPack()]\n"
    Path("conftest.py").write_text(packs, encoding="utf-8")
    run("suite", "--root", ".", "--other-data", "x")
    Path("conftest.py").unlink()
    small.rules("scored_cod: final\n")
    run("suite", "--root", ".")
    expected.check(text.replace(str(small.folder.parent), "FOLDER"))
