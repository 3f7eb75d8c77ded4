"""Inputs by which the fuzzer found mistakes, each with the line that its reader says of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends.client import UnreadableAnswer, parse_json_text
from pytest_packbench.cases.load import JsonError, parse_case, parse_json, parse_yaml
from pytest_packbench.commands import main
from pytest_packbench.engine.gateway.exchanges import RecordedCall, answer_as_json
from pytest_packbench.model.errors import CaseError, StoredRunError, SuiteError
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.runs.journal import Journal
from pytest_packbench.runs.reading import open_run, read_baseline
from pytest_packbench.runs.writing import write_report
from pytest_packbench.testing import case, score, write_suite
from tests.unit.run_builders import case_result, run
from tests.unit.stored_runs import merge, run_of, suite, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.model.result import Result

CRITERIA = [{"numeric": "/total", "absolute": 0.1}, {"set": "/goods"}, {"one_of": "/queue"}]
EXPECTED: dict[str, Any] = {"total": 1.0, "goods": ["a"], "queue": ["a"]}


@pytest.mark.parametrize("key", EXPECTED)
@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, ["\udfff", ["\ud800"]]])
def test_half_of_a_surrogate_pair_where_a_rule_expects_something_is_an_error_of_its_case(key: str, value: Any) -> None:
    wrong = case(expected={**EXPECTED, key: value})
    try:
        assert score(GenericPack(), wrong, EXPECTED, rules={"criteria": CRITERIA}).score != 1.0
    except CaseError as error:
        assert str(error).encode()
        assert f"/expected/{key}" in str(error)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"[1,\n  " + b"9" * 5000 + b"]", f"line 2 column 3: {'9' * 20}"),
        (b'{"' + b"7" * 5000 + b'": "\\"", "a": ' + b"8" * 5000 + b"}", f"line 1 column 5017: {'8' * 20}"),
        (b'{"a": 0.' + b"5" * 5000 + b',\n"b": ' + b"8" * 5000 + b"}", f"line 2 column 6: {'8' * 20}"),
        (b"[" + b"8" * 4300 + b",\n-" + b"9" * 4301 + b"]", f"line 2 column 1: -{'9' * 19}"),
        (b'{"1e400": "1e400",\n "b": [1e308, 1e400]}', "line 2 column 15: 1e400"),
        (b"[-1E+999, 1e400]", "line 1 column 2: -1E+999"),
        (b"[11e400, 1e400]", "line 1 column 2: 11e400"),
        (b'["NaN", "\\\\", NaN]', "line 1 column 15: NaN"),
        (b"\xef\xbb\xbf[\n-Infinity]", "line 2 column 1: -Infinity"),
    ],
)
def test_a_number_that_no_double_holds_has_a_place(raw: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match="number") as caught:
        parse_json(raw)
    assert str(caught.value) == f"{problem} is no finite number; expected a number below 1.8e308, or null"


ENDLESS = ["1e400", "-1E+999", "NaN", "-Infinity", "9" * 5000]


@pytest.mark.parametrize("number", ENDLESS)
def test_a_number_that_no_double_holds_is_refused_wherever_another_program_wrote_it(
    number: str,
) -> None:
    text = f'{{"v": [{number}]}}'
    with pytest.raises(UnreadableAnswer, match=r"is no finite number\)"):
        parse_json_text(text)
    # an answer of a gateway's exchange is kept as text, and a request by its bytes
    assert answer_as_json(text.encode(), stream=False) == {"text": text}
    call = RecordedCall.of("openai", "POST", "/v1/chat/completions", text.encode())
    assert call.body is None


def test_a_run_has_no_number_that_json_lacks_whatever_another_plugin_adds(tmp_path: Path) -> None:
    root = suite(tmp_path)
    folder = write(tmp_path, run_of(root), [case_result("a")], root)
    others = {
        "tests": [{"user_properties": [float("nan"), {"a": float("inf")}]}],
        "duration": -float("inf"),
        "at": folder,
    }
    document = json.loads((folder / "report.json").read_text("utf-8"))["packbench"]
    rows = [json.dumps(row).encode() for row in document["cases"]]
    write_report(folder / "report.json", others, {**document, "cases": []}, rows)
    assert len(list(open_run(folder, checked=False).results)) == 1
    written = json.loads((folder / "report.json").read_text("utf-8"), parse_constant=pytest.fail)
    assert written["tests"] == [{"user_properties": [None, {"a": None}]}]
    assert (written["duration"], written["at"]) == (None, str(folder))
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append(case_result("a", payload={"v": [float("nan")], "w": float("inf")}))
    (line,) = (tmp_path / "journal.jsonl").read_bytes().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["payload"] == {"v": [None], "w": None}


@pytest.mark.parametrize("text", [".inf", "[1, -.INF]", "{a: .nan}", "1.0e+400", "2" * 309 + ".0"])
def test_a_number_of_yaml_that_no_double_holds_has_its_line(text: str) -> None:
    with pytest.raises(SuiteError, match=r"^x: line 2: .+ is no finite number; expected a number below 1\.8e308"):
        parse_yaml(f"a: 1\nb: {text}".encode(), source="x")


def test_a_word_that_goes_on_and_a_baseline_have_the_place_of_a_number(tmp_path: Path) -> None:
    with pytest.raises(JsonError, match=r"^line 2 column 6: Infinity is no finite number; "):
        parse_json(b'{"Infinity": "Infinity",\n"a": Infinityble}')
    path = tmp_path / "baseline.json"
    path.write_text('{"run":\n {"pack": -Infinity}}', "utf-8")
    with pytest.raises(StoredRunError, match=r"baseline\.json: line 2 column 11: -Infinity is no finite number; "):
        read_baseline(path)


@pytest.mark.parametrize("text", [b"[" * 20_000, b"a: b\nc:\n  d: " + b"[" * 20_000, b'{"a":' * 10_000, b"- " * 5_000])
def test_levels_of_yaml_that_are_too_deep_are_not_read_to_their_end(text: bytes, yardstick: float) -> None:
    parse_yaml(b"a: 1", source="x")
    before = time.process_time()
    with pytest.raises(SuiteError, match=r"^x: line [13]: nested deeper than 100; remove levels$"):
        parse_yaml(text, source="x")
    assert time.process_time() - before < 8 * yardstick


def test_a_case_that_pydantic_cannot_describe_is_one_line() -> None:
    class Odd(GenericPack().case_model):  # type: ignore[misc]  # an attribute
        def model_post_init(self, _: Any) -> None:
            from pydantic_core import PydanticCustomError

            raise PydanticCustomError("x", "got {wrong}", {"wrong": "\ud800"})

    for expected, pointer in (({}, ""), ({"total": 1, "\ud800": 1}, "/expected: ")):
        raw = json.dumps({**case("a"), "pack_id": "generic", "expected": expected}).encode()
        with pytest.raises(CaseError, match=rf"a\.json: {pointer}contains half of a surrogate pair"):
            parse_case(raw, Odd, source="a.json", stem="a", pack=None)


# what is replaced in which file of a run, and what is said of it; None replaces the whole file
DAMAGED = {
    "no payloads": (
        "payloads.jsonl",
        None,
        b"",
        "the result of toy:plain:a is missing, but the run's report counts it",
    ),
    "a payload less": ("payloads.jsonl", b'"trial":0', b'"trial":1', "the result of toy:plain:a is missing"),
    "a payload of another run": ("payloads.jsonl", b"RUN1", b"RUN9", "the result of toy:plain:a is missing"),
    "a payload twice": ("payloads.jsonl", b'"trial":0', b'"trial":0,"trial":0', 'the key "trial" occurs twice'),
    "a payload of no number": ("payloads.jsonl", b'"trial":0', b'"trial":0,"x":1e999', "1e999 is no finite number"),
    "no errors": ("errors.jsonl", None, b"", "toy:plain:z is not as in report.json"),
    "errors in UTF-16": ("errors.jsonl", None, "{}\n".encode("utf-16"), "errors.jsonl:1: not UTF-8"),
    "an error of another kind": (
        "errors.jsonl",
        b'"timeout"',
        b'"network"',
        "errors.jsonl:1: toy:plain:z is not as in report.json",
    ),
    "an error of no run": ("errors.jsonl", b'"run_id":"', b'"run_id":"\\ud800', "errors.jsonl:1: /run_id: got "),
    "an error without a case": (
        "errors.jsonl",
        b"plain:z",
        b"plain:y",
        "toy:plain:z is not as in report.json",
    ),
    "a record of another run": (
        "records.jsonl",
        b"RUN1",
        b"RUN9",
        "records.jsonl:1: toy:plain:a is not as in report.json",
    ),
    "a row with two verdicts": ("report.json", b'"verdict":', b'"verdict": "passed", "verdict":', "occurs twice"),
    "a report of no number": ("report.json", b'"selected":', b'"x":1e400,"selected":', "1e400 is no finite number; "),
    "a report without a number": ("report.json", b'"selected":', b'"x":NaN,"selected":', "NaN is no finite number; "),
    "a record of no number": ("records.jsonl", b'"threshold":', b'"x":1e400,"threshold":', "records.jsonl:1: "),
    "two lists of cases": ("report.json", b'"cases":', b'"cases": [], "cases":', "occurs twice"),
}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """A run of two cases with a score, and one that timed out, whose results say what was expected."""
    monkeypatch.chdir(tmp_path)
    root = suite(tmp_path, criteria=[{"exact": "/said", "value": "yes"}])
    plain = [case(name, pack_id="generic", input=name) for name in "abz"]
    write_suite(root / "toy", plain, pack="generic", rules={"criteria": [{"exact": "/said", "value": "yes"}]})

    def make() -> Path:
        results: list[Result] = [case_result(name) for name in "ab"]
        results.append(case_result("z", "error", kind="timeout", message="took too long"))
        return write(tmp_path / "out", run_of(root, suite="toy"), results, root)

    return make


@pytest.mark.parametrize("name", DAMAGED)
def test_a_run_with_a_damaged_file_is_not_used(
    name: str, stored: Callable[[], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored()
    file, old, new, said = DAMAGED[name]
    path = folder / file
    raw = path.read_bytes()
    assert old is None or old in raw
    payload = {"a payload twice", "a payload of no number", "a payload less", "no payloads", "a payload of another run"}
    path.write_bytes(new if old is None else raw.replace(old, new))
    commands = [["rescore", str(folder)]]
    if name not in payload:
        commands += [["gate", str(folder)], ["compare", "--baseline", str(folder), "--current", str(folder)]]
    for command in commands:
        assert main([*command, "--root", "storage"]) == 2
        problem = capsys.readouterr().err
        assert said in problem
        assert problem.count("\n") == 1
    if name not in {"no payloads", "a payload less"}:
        code, merged, printed = merge(tmp_path / "out", tmp_path / "storage", [folder])
        assert (code, merged) == (2, None)
        assert file in printed


def test_a_run_that_is_whole_is_used_and_its_null_results_need_no_line(
    stored: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored()
    assert main(["gate", str(folder), "--root", "storage"]) in {0, 1}
    assert not capsys.readouterr().err
    assert run().run_id == folder.name


def test_a_report_shows_what_can_be_read_and_names_what_cannot(
    stored: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored()
    names = {"run_id": [[]], "suite": "toy", "control": "x", "nodeid": "f::x", "file": "f"}
    (folder / "controls.jsonl").write_text(json.dumps({**names, "outcome": "not_run", "case": "a"}) + "\n")
    assert main(["report", str(folder)]) == 0
    assert "controls.jsonl:1: x is there twice, or of another run than " in capsys.readouterr().out
    (folder / "controls.jsonl").write_text("{}\n")
    for command, code in (["report"], 0), (["gate", "--root", "storage"], 1):
        assert main([*command, str(folder)]) == code
        assert 'controls.jsonl:1: /suite: the key "suite" is missing' in capsys.readouterr().out
    report = json.loads((folder / "report.json").read_bytes())
    report["packbench"] = {"figures": ["x"], **report["packbench"]}
    (folder / "report.json").write_text(json.dumps(report))
    assert main(["report", str(folder)]) == 0
    out, error = capsys.readouterr()
    problem = f'{folder / "report.json"}: /packbench/figures/0: not a run document: got "x"; expected an object'
    assert error == f"packbench: no figures of packs: {problem}\n"
    assert "Verdicts: 2 passed" in out


@pytest.mark.parametrize(
    ("kind", "content"), [("jsonl", ""), ("jsonl", "\n"), ("jsonl", "[]"), ("csv", "input,expected\n")]
)
def test_an_import_without_rows_names_its_file(
    kind: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source.txt").write_text(content)
    assert main(["import", kind, "source.txt", "--suite", "new"]) == 2
    assert "  source.txt: contains no rows; expected at least one\n" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_injecagent_with_a_number_that_is_not_json_is_not_imported(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_cases_dh_base.json").write_text(f'[\n{{"a": "\\": NaN",\n "Modifed": {word}}}]')
    assert main(["import", "injecagent", ".", "--suite", "new"]) == 2
    said = f"  test_cases_dh_base.json: line 3 column 13: {word} is no finite number; expected a number below 1.8e308"
    assert said in capsys.readouterr().out
