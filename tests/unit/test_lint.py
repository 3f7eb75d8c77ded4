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
from pytest_packbench.cases.load import suite_cases
from pytest_packbench.commands import main
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.pack import LintOption, Pack
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.tariff.model import TariffSuiteConfig
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.tools import TariffTools
from pytest_packbench.testing import case, write_suite
from tests.packs.tariff.small_suite import GARLIC, REPORT, SmallSuite, small_suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.model.authoring import Finding
    from pytest_packbench.model.suite import Suite
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


def pack_of(suite: Suite) -> Pack:
    assert isinstance(suite.config, TariffSuiteConfig)
    return TariffPack().for_suite(suite.config)


def merge(target: dict[str, Any], change: dict[str, Any]) -> None:
    """Merge a change into a case, a cassette or a recorded answer, two levels deep; of a list the first element."""
    for key, value in change.items():
        inner = target[key][0] if key == "what_if_candidates" else target[key]
        for name, content in value.items():
            inner[name] = {**inner[name], **content} if name == "duty_breakdown" else content


def change_case(case: dict[str, Any], row: dict[str, Any]) -> None:
    merge(case, {key: row[key] for key in ("input", "expected", "notes") if key in row})
    case["input"]["input"] += f" {row['text']}" if "text" in row else ""
    if "tags" in row:
        tags = (tag for tag in case["notes"]["tags"] if tag != row.get("without"))
        case["notes"]["tags"] = [*tags, *row["tags"]]
    for key, codes in row.get("codes", {}).items():
        case["expected"][key] = codes
        others = [] if key == "must_not_hts" else case["expected"]["must_not_hts"]
        case["notes"]["reasons"] = dict.fromkeys([*codes, *others], "wrong or near enough for a reason")


def change_cassette(cassette: dict[str, Any], row: dict[str, Any]) -> None:
    cassette |= row.get("cassette", {})
    if "answer" in row:
        merge(cassette["exchanges"][0]["answer"], row["answer"])
    if "revised" in row:
        proposal, critique = cassette["exchanges"]
        first = json.loads(json.dumps(proposal))
        first["answer"]["baseline"]["hts_code"] = row["revised"]
        cassette["exchanges"] = [first, critique, {**proposal, "role": "revise"}, critique]


def change(small: SmallSuite, name: str, row: dict[str, Any]) -> None:
    """Make the changes of a row of the table; a cassette follows the input of its case."""
    row = json.loads(json.dumps(row).replace("REPORT", REPORT))
    if row.get("input", {}).get("input") in TEXTS:
        row["input"]["input"] = TEXTS[row["input"]["input"]]
    if name != "suite":
        path, cassette_path = small.path(name), small.folder / "fixtures" / f"{name}.json"
        case, cassette = json.loads(path.read_text("utf-8")), json.loads(cassette_path.read_text("utf-8"))
        change_case(case, row)
        cassette["input_sha256"] = canonical_sha256(case["input"])
        change_cassette(cassette, row)
        path.write_text(json.dumps(case), "utf-8")
        cassette_path.write_text(json.dumps(cassette), "utf-8")
    with (small.folder / "suite.yaml").open("a", encoding="utf-8") as file:
        file.write(f"{row.get('rules', '')}\n")
    for file_name, text in row.get("written", {}).items():
        (small.folder / file_name).write_text(text, "utf-8")
    for source, destination in row.get("copied", {}).items():
        (small.folder / destination).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(small.folder / source, small.folder / destination)
    for path in [path for pattern in row.get("deleted", ()) for path in small.folder.glob(pattern)]:
        path.unlink()


@pytest.mark.parametrize("section", TABLE)
def test_each_rule_fires_alone(tmp_path: Path, expected: ExpectedTexts, section: str) -> None:
    lines = []
    for number, (rules, name, row) in enumerate(TABLE[section]):
        small = small_suite(tmp_path / str(number))
        change(small, name, row)
        suite = load_suite(small.folder)
        findings = lint(suite, pack_of(suite), {})
        assert {finding.rule for finding in findings} == set(rules.split()), row
        lines += [f"{json.dumps(row)}\n", *(f"    {finding} [{finding.severity}]\n" for finding in findings)]
        if section == "schedule":
            other = small_suite(tmp_path / f"{number} without")
            change(other, name, {key: value for key, value in row.items() if key != "rules"})
            unscheduled = load_suite(other.folder)
            assert lint(unscheduled, pack_of(unscheduled), {}) == []
    expected.check("".join(lines))


def test_provenance_is_required_and_a_date_where_answers_go_stale(tmp_path: Path) -> None:
    book = {"source": "a book", "date": "2026-01-31"}
    changes: list[dict[str, Any]] = [{}, {"source": None}, {"source": " "}, {"date": None}, {"date": "2015-02-30"}]
    cases = [case(f"c{number}", input=number, notes=book | change) for number, change in enumerate(changes)]
    suite = load_suite(write_suite(tmp_path / "dated", cases, pack="generic"))
    found = [(Path(finding.file).stem, finding.rule) for finding in lint(suite, GenericPack(), {})]
    missing = [("c1", "source_missing"), ("c2", "source_missing"), ("c4", "case_unreadable")]
    missing.append(("suite", "date_missing"))
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


class OtherTools(TariffTools):
    """Tools whose lint uses a file."""

    lint_options = (LintOption(name="other-data", help="for the test"),)

    def lint(self, cases: Any, rules: Any, options: Mapping[str, Path]) -> Iterable[Finding]:
        for path in options.values():
            if not path.read_text("utf-8").startswith("data"):
                raise ValueError(f"{path}: not the data; expected another file")
        return super().lint(cases, rules, options)


class OtherPack(TariffPack):
    """A second pack, whose lint uses a file."""

    name = "other"

    def tools(self) -> OtherTools:
        return OtherTools()


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

    run("suite", "--root", ".")
    change(small, "powder", {"codes": {"must_not_hts": ["0910", "0910.99.6000"]}})
    run("suite", "--root", ".")
    change(small, "powder", {"tags": ["garlicky"]})
    run("suite", "--root", ".")
    run("suite", "--format", "json")
    run("none", "--root", ".")
    run("none", "--root", "away")
    run("suite/cases", "--root", ".")
    packs = "def pytest_packbench_packs():\n    from tests.unit.test_lint import OtherPack\n    return [OtherPack()]\n"
    Path("conftest.py").write_text(packs, encoding="utf-8")
    run("suite", "--root", ".", "--other-data", "x")
    config = small.folder / "suite.yaml"
    config.write_text(config.read_text("utf-8").replace("pack: tariff", "pack: other"), "utf-8")
    run("suite", "--root", ".", "--other-data", "none.tsv")
    run("suite", "--root", ".", "--other-data", "suite/suite.yaml")
    expected.check(text.replace(str(small.folder.parent), "FOLDER"))


def test_a_case_needs_an_input(tmp_path: Path) -> None:
    inputs: list[Any] = ["", " ", {}, [], None, 0, False, {"a": ""}]
    cases = [case(f"c{number}", input=value) for number, value in enumerate(inputs)]
    suite = load_suite(write_suite(tmp_path / "s", cases, pack="generic"))
    found = [Path(finding.file).stem for finding in lint(suite, GenericPack(), {}) if finding.rule == "input_empty"]
    assert found == ["c0", "c1", "c2", "c3", "c4"]


def test_a_file_of_lines_without_a_case_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = write_suite(tmp_path, [case("one")], pack="generic", rules={"criteria": [{"exact": "/a"}]})
    path = suite / "cases" / "many.jsonl"
    path.write_text("\n", "utf-8")
    assert main(["validate", str(path)]) != 0
    assert "many.jsonl: empty: its kind is not known" in "".join(capsys.readouterr())
    findings = lint(load_suite(suite), GenericPack(), {})
    found = [(finding.rule, finding.message) for finding in findings if finding.file == "cases/many.jsonl"]
    message = "the file contains no case; expected one case per line; remove the file if it needs none"
    assert found == [("case_unreadable", message)]


def test_what_only_looks_like_a_case_is_none_and_two_of_one_id_are_told_apart(tmp_path: Path) -> None:
    cases = [case("a", pack_id="generic", case_type=kind, expected={"x": 1}) for kind in ("one", "two")]
    folder = write_suite(tmp_path / "mine", cases, pack="generic")
    # another suite in it, and what can't be read
    write_suite(folder / "inner", cases[:1], pack="generic")
    (folder / "lost.json").symlink_to("nowhere")
    suite = load_suite(folder)
    found = suite_cases(suite, GenericPack(), lambda path: path.relative_to(folder).as_posix())
    assert [(each.at.label(each.file), each.problem.partition(": ")[2]) for each in found] == [
        (f"cases/{one}/a.json", f'/id: duplicate id "a", also in cases/{two}/a.json; use a unique id')
        for one, two in (("one", "two"), ("two", "one"))
    ]
