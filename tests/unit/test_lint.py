"""Lint: a clean suite has no finding, and each change for the worse is found by its own rule and by no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.cases.lint import SuiteFiles, check
from pytest_packbench.cases.load import check_case
from pytest_packbench.cli import main
from pytest_packbench.model.case import Case
from pytest_packbench.model.finding import FiledCase, Finding
from pytest_packbench.model.pack import LintOption
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs import agent_safety
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.testing import case as plain
from tests.unit.small_tariff_suite import GARLIC, REPORT, SmallSuite, small_suite

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.fixture
def small(tmp_path: Path) -> SmallSuite:
    """The clean suite."""
    return small_suite(tmp_path)


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


def duplicate_case(small: SmallSuite) -> None:
    """A second case of one id, in another folder; both would have the same cassette and so the same input."""
    path = small.folder / "cases" / "more" / "no_savings" / "books.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(small.path("books").read_bytes())


def move_case(small: SmallSuite) -> None:
    (small.folder / "cases" / "other").mkdir()
    small.path("books").rename(small.folder / "cases" / "other" / "books.json")


def unuse_type(small: SmallSuite) -> None:
    for path in (small.path("books"), small.cassette("books")):
        path.unlink()
    small.rules("thresholds: {by_type: {no_savings: 0.8}}\n")


def revise(small: SmallSuite) -> None:
    """A first proposal with a code that doesn't exist, and a second one without it."""

    def add_exchanges(cassette: dict[str, Any]) -> None:
        proposal, critique = cassette["exchanges"]
        first = json.loads(json.dumps(proposal))
        first["answer"]["baseline"]["hts_code"] = "0712.90.4099"
        cassette["exchanges"] = [first, critique, {**proposal, "role": "revise"}, critique]

    small.recording("powder", add_exchanges)


def without_cassettes(small: SmallSuite, *names: str) -> None:
    for name in names:
        small.cassette(name).unlink()


def skip_without_cassette(small: SmallSuite) -> None:
    change(small, "books", {"notes": {"skip": "the goods are no longer sold"}})
    without_cassettes(small, "books")


def write(name: str, text: str = "{}") -> Callable[[SmallSuite], object]:
    return lambda small: (small.folder / name).write_text(text, encoding="utf-8")


FILES: dict[str, tuple[Callable[[SmallSuite], object], str]] = {
    "a clean suite": (lambda _: None, ""),
    "a case that is no JSON": (write("cases/no_savings/books.json", "{"), "case_unreadable"),
    "a cassette that is none": (write("fixtures/books.json", "[]"), "cassette_unreadable"),
    "a case twice": (duplicate_case, "duplicate_id duplicate_input"),
    "a case in the folder of another type": (move_case, "folder_type"),
    "no case of a type": (unuse_type, "threshold_unused"),
    "a case without its cassette": (lambda small: without_cassettes(small, "books"), "cassette_missing"),
    "a cassette without a case": (
        lambda small: shutil.copy(small.cassette("books"), small.cassette("nobody")),
        "cassette_unused",
    ),
    **{f"a file {name}": (write(f"cases/{name}"), "file_misnamed") for name in ("a.json.txt", "a.JSON", "a.ndjson")},
    **{f"a file {name}": (write(f"cases/{name}"), "") for name in ("conftest.py", "README.md", ".a.json.swp")},
    "no cassettes": (
        lambda small: without_cassettes(small, *(path.stem for path in small.folder.glob("fixtures/*.json"))),
        "",
    ),
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


def test_a_case_that_cannot_be_read_hides_no_other(small: SmallSuite) -> None:
    write("cases/no_savings/books.json", "{")(small)
    change(small, "powder", {"tags": ["garlicky"]})
    assert [finding.rule for finding in small.findings()] == ["case_unreadable", "tag_unknown"]


def test_an_empty_suite_is_found(small: SmallSuite) -> None:
    for path in [*small.folder.glob("cases/*/*.json"), *small.folder.glob("fixtures/*.json")]:
        path.unlink()
    assert rules_of(small.findings()) == {"suite_empty"}


def plain_case(case_id: str, text: str, **notes: Any) -> FiledCase:
    """A case of no domain."""
    notes = {"date": "2026-01-31", "source": "a book", **notes}
    data = plain(case_id, pack_id="toy", input={"order": [1, {"text": text}]}, notes=notes)
    file = f"cases/plain/{case_id}.json"
    loaded = check_case(data, Case, source=file, stem=case_id, pack="toy")
    return FiledCase(file=file, folder="plain", loaded=loaded, cassette=None, cassette_file=f"fixtures/{case_id}.json")


def findings_in(*cases: FiledCase, dated: bool = True) -> list[Finding]:
    config = SuiteConfig(pack="toy")
    files = SuiteFiles(config=config, cases=cases, unread=set(), cassettes={}, unread_cassettes=set(), dated=dated)
    return list(check(files))


@pytest.mark.parametrize(
    ("notes", "dated", "rules"),
    [
        ({"source": None}, True, {"source_missing"}),
        ({"source": " "}, True, {"source_missing"}),
        ({"date": None}, True, {"date_missing"}),
        ({"date": None}, False, set()),
        ({"date": "2015-02-30"}, True, {"date_unreal"}),
        ({"date": "2015-02-30"}, False, {"date_unreal"}),
    ],
)
def test_provenance_is_required_and_a_date_where_answers_go_stale(
    notes: dict[str, Any], *, dated: bool, rules: set[str]
) -> None:
    assert rules_of(findings_in(plain_case("a", "one", **notes), dated=dated)) == rules


def test_attacks_on_agents_need_no_date(tmp_path: Path) -> None:
    suite = tmp_path / "attacks"
    shutil.copytree(Path(agent_safety.__file__).parent / "starter" / "suite", suite)
    for path in [*suite.glob("cases/*/*.json"), suite / "suite.yaml"]:
        path.write_text(path.read_text("utf-8").replace("SUITE_NAME", "attacks"), encoding="utf-8")
        if path.suffix == ".json":
            case = json.loads(path.read_text("utf-8"))
            case["notes"].pop("date", None)
            path.write_text(json.dumps(case), encoding="utf-8")
    assert main(["lint", str(suite)]) == 0


def test_near_duplicates_are_those_of_comparing_each_with_each() -> None:
    words = [f"word{number}" for number in range(60)]
    texts = [" ".join([*words[:cut], "other", *words[cut + 1 :]]) for cut in (0, 1, 30, 59)]
    # ten triples and nine of them: just alike enough, and the rarest one is not shared
    texts += ["a b c d e f g h i j k", "a b c d e f g h i j"]
    texts += [" ".join(words), " ".join(words[:50]), " ".join(words[:20]), "word0", "word1"]
    triples = [shingles(f"1 {text}") for text in texts]
    similar = {
        (f"cases/plain/c{left}.json", f"cases/plain/c{right}.json")
        for right in range(len(texts))
        for left in range(right)
        if len(triples[left] & triples[right]) >= 0.9 * len(triples[left] | triples[right])
    }
    findings = findings_in(*(plain_case(f"c{number}", text) for number, text in enumerate(texts)))
    assert len(similar) > 4
    assert similar == {
        (finding.message.split(" similar to ")[1].split(";")[0], finding.file)
        for finding in findings
        if finding.rule == "near_duplicate_input"
    }


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2))}


class OtherPack(TariffPack):
    """A second pack, whose lint uses another file."""

    name = "other"
    lint_options = (LintOption(name="other-data", help="for the test"),)


def test_the_command_prints_findings_and_returns_1_if_one_is_an_error(
    small: SmallSuite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, expected: ExpectedTexts
) -> None:
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
