"""`packbench review`: marks of reviewers become changes of case files, and nothing else of the files changes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.load import case_sha256
from pytest_packbench.commands import main
from pytest_packbench.testing import case, write_case, write_suite
from tests.packs.tariff import cases as tariff_cases
from tests.unit.run_builders import data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA: dict[str, Any] = data("review.yaml")

RULES: Any = DATA["rules"]
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the suite `support`: the cases a and b in files, c in a line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    suite = tmp_path / "storage" / "benchmarks" / "support"
    cases = [case(name, pack_id="generic", expected={"queue": ["refunds"], "order": 1}) for name in "abc"]
    write_suite(suite, cases[:2], pack="generic", rules=RULES)
    lines = [json.dumps({**cases[2], "id": name}, separators=(",", ":")) for name in ("first", "c", "last")]
    (suite / "cases" / "more.jsonl").write_bytes("\r\n".join(lines).encode())
    return suite


def marked(path: Path, mark: str, **changes: Any) -> Json:
    """A mark of the case in a file."""
    data = (
        json.loads(path.read_text("utf-8")) if path.suffix == ".json" else json.loads(path.read_text().split("\n")[1])
    )
    result = changes.get("result")
    return {
        "version": 1,
        "suite": "support",
        "case": data["id"],
        "case_sha256": case_sha256(data),
        "mark": mark,
        "reason": "letters are\n refunds, too",
        "by": "R. Reader",
        "answer": "letters" if result is None else result.get("queue"),
        "run_id": "01ABC",
        "marked_at": "2026-03-01T12:00:00.123Z",
        **changes,
    }


@pytest.fixture
def review(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, list[str], list[str]]]:
    """Run the command on marks; return the exit code, the lines of its output and of its errors."""

    def call(*marks: Json | str, write: bool = True) -> tuple[int, list[str], list[str]]:
        text = "".join(f"{mark if isinstance(mark, str) else json.dumps(mark)}\n" for mark in marks)
        (tmp_path / "review.jsonl").write_text(text, encoding="utf-8")
        code = main(["review", "review.jsonl", *(["--write"] if write else [])])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return call


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_bytes().decode() for path in sorted(folder.rglob("*.json*"))}


def test_marks_are_shown_as_a_patch_then_written_then_known(folder: Path, review: Any) -> None:
    plain = folder / "cases" / "plain"
    before, answer = files(folder), {"queue": "letters", "order": 1}
    marks = [
        marked(plain / "a.json", "also_acceptable", result=answer),
        marked(plain / "b.json", "gold_is_wrong", reason="\x1b[31m</script>"),
        marked(folder / "cases" / "more.jsonl", "quarantine"),
    ]
    code, out, err = review(*marks, write=False)
    assert (code, err, files(folder)) == (0, [], before)
    assert out[-4:] == [
        "a: also acceptable, by R. Reader: letters are refunds, too",
        r"b: gold is wrong, by R. Reader: \x1b[31m</script>",
        "c: quarantine, by R. Reader: letters are refunds, too",
        "3 of 3 marks would be written; add --write to change the files",
    ]
    assert [line.rpartition("/")[2] for line in out if line.startswith("+++ ")] == ["a.json", "b.json", "more.jsonl"]
    assert "@@ -2 +2 @@" in out
    code, written, err = review(*marks)
    assert (code, err, written[:-1], written[-1]) == (0, [], out[:-1], "3 of 3 marks written")
    after = {path.stem: json.loads(path.read_text()) for path in plain.glob("*.json")}
    assert after["a"]["expected"] == {"queue": ["refunds", "letters"], "order": 1}
    assert after["a"]["notes"]["reviews"] == [
        {
            "mark": "also_acceptable",
            "by": "R. Reader",
            "reason": "letters are refunds, too",
            "run_id": "01ABC",
            "marked_at": "2026-03-01T12:00:00.123Z",
        }
    ]
    assert after["b"]["notes"]["xfail"] == "the expected answer is disputed: \x1b[31m</script> (R. Reader)"
    first, line, last = (folder / "cases" / "more.jsonl").read_bytes().decode().split("\r\n")
    assert (first, last) == tuple(before["more.jsonl"].split("\r\n")[::2])
    assert json.loads(line)["notes"]["skip"] == "letters are refunds, too (R. Reader)"
    # once more: they are there
    assert review(*marks)[:2] == (0, [*(f"{name}: already written" for name in "abc"), "0 of 3 marks written"])


@pytest.mark.parametrize(
    ("mark", "problem"),
    DATA["unfit"],
)
def test_what_does_not_fit_is_refused_and_the_others_are_written(
    folder: Path, review: Any, mark: Json, problem: str
) -> None:
    plain = folder / "cases" / "plain"
    before = files(folder)
    good = marked(plain / "b.json", "quarantine")
    code, out, (error,) = review(marked(plain / "a.json", "also_acceptable", **mark), good)
    name = mark.get("case", "a")
    head = f"packbench: not applied: review.jsonl:1: case {name}: "
    assert error.startswith(head)
    assert problem.removeprefix("*") in error
    assert (code, out[-1]) == (1, "1 of 2 marks written")
    assert {name for name, text in files(folder).items() if text != before[name]} == {"b.json"}


def test_marks_in_a_file_that_suites_share_by_a_link_are_all_written(tmp_path: Path, folder: Path, review: Any) -> None:
    lines = folder / "cases" / "more.jsonl"
    other = write_suite(tmp_path / "storage" / "benchmarks" / "other", (), pack="generic", rules=RULES)
    (other / "cases").mkdir(exist_ok=True)
    (other / "cases" / "shared.jsonl").symlink_to(lines)
    line, last = marked(lines, "quarantine"), json.loads(lines.read_text().split("\n")[2])
    linked = {**line, "suite": "other", "case": "last", "case_sha256": case_sha256(last)}
    again = {**line, "suite": "other", "reason": "another"}
    code, out, (error,) = review(line, linked, again)
    assert (code, out[-1], "more.jsonl:2 has changed since the run 01ABC" in error) == (1, "2 of 3 marks written", True)
    assert ["notes" in json.loads(text) for text in lines.read_text().split("\n")] == [False, True, True]


@pytest.mark.parametrize(("name", "line"), [("more.jsonl", b"\n"), ("again.jsonl", b"")])
def test_a_case_whose_id_occurs_twice_is_refused(folder: Path, review: Any, name: str, line: bytes) -> None:
    mark = marked(folder / "cases" / "more.jsonl", "quarantine")
    with (folder / "cases" / name).open("ab") as file:
        file.write(line + json.dumps(case("c", pack_id="generic", expected={"queue": ["other"], "order": 2})).encode())
    before = files(folder)
    problem = "case c: 2 cases have this id; give each an id of its own"
    assert review(mark)[2] == [f"packbench: not applied: review.jsonl:1: {problem}"]
    assert files(folder) == before


@pytest.mark.parametrize(
    ("mark", "content", "problem"),
    [
        ("quarantine", b"{", "a.json: column 2: not JSON"),
        ("quarantine", b"\xff", "a.json: not UTF-8; save the file as UTF-8"),
        ("quarantine", {"difficulty": "odd"}, 'a.json: /difficulty: got "odd"'),
        ("quarantine", {"notes": {"reviews": "none"}}, '/notes/reviews: got "none"'),
        ("quarantine", {"notes": ["x"]}, "a.json: /notes: got "),
        ("quarantine", [1], "a.json: "),
    ],
)
def test_a_case_that_is_not_valid_is_not_changed(
    folder: Path, review: Any, mark: str, content: Any, problem: str
) -> None:
    path = folder / "cases" / "plain" / "a.json"
    line = marked(path, mark, result={"queue": "letters", "order": 1})
    data = {**json.loads(path.read_text("utf-8")), **content} if isinstance(content, dict) else content
    data_sha256 = case_sha256([] if isinstance(data, bytes) else data)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(data).encode())
    before = {name: name.read_bytes() for name in folder.rglob("*.json*")}
    code, _, (error,) = review({**line, "case_sha256": data_sha256})
    assert (code, problem in error) == (1, True), error
    assert {name: name.read_bytes() for name in folder.rglob("*.json*")} == before


def test_a_mark_without_an_answer_is_refused(tmp_path: Path, review: Any) -> None:
    goods = write_suite(tmp_path / "storage" / "benchmarks" / "goods", (), pack="tariff")
    path = write_case(goods, tariff_cases.case("positive"))
    result = {"error": {"kind": "timeout", "message": "late"}}
    failed = marked(path, "also_acceptable", suite="goods", result=result, answer=None)
    code, _, errors = review(failed)
    assert (code, len(errors)) == (1, 1)
    assert errors[0].endswith("the target reported a failure instead of an answer; change expected by hand")


def test_a_file_keeps_the_order_of_its_keys_and_lines_their_ends(folder: Path, review: Any) -> None:
    path = folder / "cases" / "plain" / "b.json"
    data = {"expected": {"order": 12345678901234567891, "queue": ["\u00e9"]}, "$schema": "x", "notes": {}}
    data = {**data, **{key: value for key, value in json.loads(path.read_text()).items() if key not in data}}
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(data, indent="\t").replace("\n", "\r\n").encode())
    mark = {**marked(folder / "cases" / "plain" / "a.json", "quarantine"), "case": "b"}
    line = marked(folder / "cases" / "more.jsonl", "quarantine")
    code, _, errors = review({**mark, "case_sha256": case_sha256(data)}, line)
    assert (code, errors) == (0, [])
    written = path.read_text("utf-8")
    data["notes"] = {"skip": "letters are refunds, too (R. Reader)", "reviews": json.loads(written)["notes"]["reviews"]}
    assert written == json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    assert (folder / "cases" / "more.jsonl").read_bytes().count(b"\r\n") == 2


@pytest.mark.parametrize(
    ("mark", "name"), [("quarantine", "skip"), ("gold_is_wrong", "skip"), ("gold_is_wrong", "xfail")]
)
def test_an_excluded_case_is_not_excluded_again(folder: Path, review: Any, mark: str, name: str) -> None:
    path = write_case(folder, case("a", pack_id="generic", expected={"queue": ["x"], "order": 1}, notes={name: "slow"}))
    code, _, (error,) = review(marked(path, mark))
    assert code == 1
    assert error.endswith(f'a.json is excluded already: notes.{name}: "slow"')


GOOD: Any = DATA["good"]
GOOD |= {"by": "b", "run_id": "01ABC", "marked_at": "2026-03-01T12:00:00Z"}


DEEP = {"deep text": "[" * 90_000, "deep result": json.dumps({**GOOD, "result": json.loads("[" * 120 + "]" * 120)})}


@pytest.mark.parametrize(("lines", "problem"), DATA["faults"])
def test_a_file_with_a_fault_changes_nothing(folder: Path, review: Any, lines: list[Any], problem: str) -> None:
    before = files(folder)
    code, out, (error,) = review(
        *({**GOOD, **line} if isinstance(line, dict) else DEEP.get(line, line) for line in lines)
    )
    assert (code, out, files(folder)) == (2, [], before)
    assert problem in error


TWO_ARTICLES = [{"name": name, "preferred_hts": [tariff_cases.RIGHT]} for name in ("left", "right")]


@pytest.mark.parametrize(
    ("suite", "expected", "key"),
    DATA["allowed"],
)
def test_a_code_is_allowed_where_an_allowed_one_can_pass_else_preferred(
    tmp_path: Path, review: Any, suite: Json, expected: Json, key: str
) -> None:
    folder = write_suite(tmp_path / "storage" / "benchmarks" / "goods", (), pack="tariff", rules=suite)
    path = write_case(
        folder, tariff_cases.case("positive" if expected.get("expected_accept", True) else "negative", **expected)
    )
    mark = marked(path, "also_acceptable", suite="goods", result=tariff_cases.answer("6403 99 6040"))
    code, _, errors = review(mark)
    if key.endswith("_hts"):
        assert (code, errors) == (0, [])
        data = json.loads(path.read_text())
        added = [*(expected.get(key) or ([tariff_cases.RIGHT] if key == "preferred_hts" else [])), "6403.99.6040"]
        assert data["expected"][key] == added
        others = {name: value for name, value in data["expected"].items() if name != key}
        assert others == {
            name: value for name, value in tariff_cases.case(**expected)["expected"].items() if name != key
        }
    else:
        assert code == 1
        assert key in errors[0]
