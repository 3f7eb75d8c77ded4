"""The packed form of a suite: the same cases and recordings, in few files."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import load_suite
from pytest_packbench.cases.finder import find_recording, iter_cases
from pytest_packbench.cases.load import load_case, load_recording
from pytest_packbench.commands import main
from pytest_packbench.files import packed_files, single_files
from pytest_packbench.model.errors import CassetteError
from pytest_packbench.packs.registry import Packs
from tests.integration.test_bundled import SOURCES, contents, pack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDINGS = "fixtures/recordings.jsonl"


@pytest.mark.parametrize("name", ["agentdojo", "harmbench", "injecagent", "tariff"])
def test_there_and_back(tmp_path: Path, name: str) -> None:
    folder = pack(SOURCES / name, tmp_path)
    assert dict(single_files(folder)) == contents(SOURCES / name)
    assert dict(packed_files(SOURCES / name)) == contents(folder)
    # the cases, the recordings, the controls, suite.yaml
    assert len(contents(folder)) <= 4


def test_a_packed_suite_is_a_suite_with_the_hashes_of_single_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = pack(SOURCES / "tariff", tmp_path)
    assert main(["lint", str(packed)]) == 0
    assert main(["validate", str(packed / RECORDINGS)]) == 0
    assert capsys.readouterr().out.endswith("169 lines, each cassette, version 2\n")
    suites = [load_suite(packed), load_suite(SOURCES / "tariff")]
    cases, recordings = [], []
    for suite in suites:
        model = Packs()["tariff"].case_model
        loaded = [load_case(found, model, file="f", pack="tariff") for found in iter_cases(suite.cases_path)]
        cases.append({one.case.id: (one.sha256, one.input_sha256, one.case) for one in loaded})
        recordings.append({one.case.id: load_recording(find_recording(suite, one.case.id)) for one in loaded})
    assert cases[0] == cases[1]
    assert recordings[0] == recordings[1]
    assert suites[0].sha256 == suites[1].sha256


def small(folder: Path) -> Path:
    """Write a packed suite of three cases with their recordings."""
    folder = pack(SOURCES / "tariff", folder)
    path = folder / "cases" / "cases.jsonl"
    chosen = [line for line in lines_of(path) if line["case_type"] == "negative"][:3]
    path.write_text("\n".join(map(json.dumps, chosen)), encoding="utf-8")
    ids = [line["id"] for line in chosen]
    keep(folder, lambda lines: [line for line in lines if line["case_id"] in ids])
    return folder


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def keep(folder: Path, change: Callable[[list[dict[str, Any]]], list[Any]]) -> None:
    """Write the recordings as the function changes them; a text is a line as it is."""
    lines = change(lines_of(folder / RECORDINGS))
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / RECORDINGS).write_text("\n".join(texts), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [lines[0], "[1 2]", lines[2]], f"{RECORDINGS}:2: /: cassette_unreadable: column 4: not JSON: "),
        (lambda lines: [*lines, lines[0]], f"{RECORDINGS}:4: /case_id: cassette_unreadable: duplicate id "),
        (
            lambda lines: [lines[0], lines[1] | {"exchanges": [{"answer": 1}]}, lines[2]],
            f"{RECORDINGS}:2: /exchanges/0/role: cassette_unreadable: ",
        ),
        (
            lambda lines: [*lines[:2], lines[2] | {"input_sha256": "0" * 64}],
            f"{RECORDINGS}:3: /input_sha256: cassette_outdated: ",
        ),
        (lambda lines: [*lines, lines[0] | {"case_id": "gone"}], f"{RECORDINGS}:4: /: cassette_unused: "),
        (lambda lines: [*lines[:2], lines[2] | {"more": 1}], f"{RECORDINGS}:3: /more: cassette_unreadable: "),
        (lambda _: [], f"{RECORDINGS}: /: cassette_unreadable: the file contains no cassette; "),
    ],
)
def test_lint_names_file_and_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[list[dict[str, Any]]], list[Any]],
    message: str,
) -> None:
    folder = small(tmp_path)
    main(["lint", str(folder)])
    assert RECORDINGS not in capsys.readouterr().out
    keep(folder, change)
    assert main(["lint", str(folder)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if RECORDINGS in line]
    assert message in line


def test_a_recording_in_a_file_of_its_own_counts(tmp_path: Path) -> None:
    folder = small(tmp_path)
    suite = load_suite(folder)
    (first, second, _) = [line["case_id"] for line in lines_of(folder / RECORDINGS)]
    own = lines_of(folder / RECORDINGS)[0] | {"llm_model": "another"}
    suite.cassette_path(first).write_text(json.dumps(own), encoding="utf-8")
    found = find_recording(suite, first)
    assert (str(found), load_recording(found)[0].llm_model) == (f"fixtures/{first}.json", "another")
    assert str(find_recording(suite, second)) == f"{RECORDINGS}:2"
    absent = find_recording(suite, "absent")
    assert (str(absent), absent.exists(), found.exists()) == ("fixtures/absent.json", False, True)
    with pytest.raises(FileNotFoundError):
        load_recording(absent)
    # a changed file is read again
    keep(folder, lambda lines: [*lines, lines[1]])
    with pytest.raises(CassetteError, match=f'^{RECORDINGS}:4: /case_id: duplicate id "{second}", also in line 2; '):
        load_recording(find_recording(suite, second))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("cases/a/other.json", '{"id": "one"}', "/id: got 'one'; expected \"other\", the name of the file"),
        ("cases/a/one.json", '{"id": "one", "case_type": "b"}', "/case_type: got 'b'; expected the name of the folder"),
        ("fixtures/one.json", '{"id": "one"}', '/case_id: got None; expected "one", the name of the file'),
        ("cases/a/cases.jsonl", "{}", "the name of a packed file; rename it"),
        ("fixtures/recordings.jsonl", "{}", "the name of a packed file; rename it"),
    ],
)
def test_what_would_not_be_found_is_not_packed(tmp_path: Path, file: str, text: str, message: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        list(packed_files(tmp_path))
