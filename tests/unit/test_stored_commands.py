"""What commands say of stored runs: which run is meant, which are damaged, how many cases and trials there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cli import main
from pytest_packbench.runs.journal import Journal
from tests.unit.record_lines import error, file_of, folder_of, line
from tests.unit.run_builders import case_result, run
from tests.unit.stored_runs import run_of, suite, write, write_jsonl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Call the command; gives the exit code and all that was said."""

    def call(*arguments: str) -> tuple[int, str]:
        code = main([*arguments])
        out, err = capsys.readouterr()
        return code, out + err

    return call


Say = Any


COMPLETE = "01K00000000000000000000000"
GONE = "01K00000000000000000000001"


class TestPlaces:
    @pytest.fixture
    def toy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A project with one complete run of the suite `toy`; gives the folder of its runs."""
        monkeypatch.chdir(tmp_path)
        root = suite(tmp_path, "a")
        folder = write(tmp_path / "reports" / "benchmarks", run_of(root, run_id=COMPLETE), [case_result("a")], root)
        (folder.parent / "latest").write_text(f"{COMPLETE}\n", encoding="utf-8")
        return folder.parent

    @pytest.mark.parametrize("given", ["toy/latest", "reports/benchmarks/toy/latest", f"toy/{COMPLETE}"])
    @pytest.mark.parametrize(
        "command",
        [
            ["report", "{}"],
            ["gate", "{}", "--root", "storage"],
            ["compare", "--baseline", "{}", "--current", "{}", "--out", "-"],
            ["rescore", "{}", "--root", "storage"],
            ["merge", "{}", "--root", "storage"],
        ],
        ids=lambda command: command[0],
    )
    def test_every_command_knows_the_latest_run(
        self, toy: Path, run_command: Say, command: list[str], given: str
    ) -> None:
        assert toy.is_dir()
        code, said = run_command(*(word.replace("{}", given) for word in command))
        assert code == 0, said

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "toy/latest: does not contain a run id; run the suite again, or pass the folder of a run"),
            (b"  \n", "does not contain a run id"),
            (b"../../..", "does not contain a run id"),
            (b"/etc", "does not contain a run id"),
            (b"\xff\xfe", "does not contain a run id"),
            (b"01A\n", "does not contain a run id"),
            (f"{GONE}\n".encode(), f"toy/latest: the folder of run {GONE} no longer exists; pass the folder of a run"),
            (None, "toy/latest: this suite has no complete run yet; run it, or pass the folder of a run"),
        ],
    )
    @pytest.mark.parametrize("command", [["report"], ["gate"], ["rescore"], ["merge"]], ids=lambda command: command[0])
    def test_a_latest_that_leads_nowhere_is_one_line(
        self, toy: Path, run_command: Say, content: bytes | None, said: str, command: list[str]
    ) -> None:
        if content is None:
            (toy / "latest").unlink()
        else:
            (toy / "latest").write_bytes(content)
        code, told = run_command(*command, "toy/latest")
        assert code == 2
        assert told.startswith("packbench: reports/benchmarks/")
        assert said in told
        assert told.count("\n") == 1

    def test_a_folder_without_a_report_says_what_to_give(self, toy: Path, run_command: Say) -> None:
        (toy / COMPLETE / "report.json").unlink()
        code, told = run_command("gate", f"toy/{COMPLETE}", "--root", "storage")
        records = f"reports/benchmarks/toy/{COMPLETE}/records.jsonl"
        assert (code, told) == (
            2,
            f"packbench: reports/benchmarks/toy/{COMPLETE}: contains no report.json; pass {records} to read the records alone\n",
        )
        assert "completeness: unknown, because records alone" in run_command("gate", records, "--root", "storage")[1]

    @pytest.mark.parametrize("out", ["nowhere/x.md", "storage"])
    @pytest.mark.parametrize(
        "command",
        [
            ["rescore", f"toy/{COMPLETE}", "--root", "storage"],
            ["compare", "--baseline", f"toy/{COMPLETE}", "--current", f"toy/{COMPLETE}"],
        ],
        ids=lambda command: command[0],
    )
    def test_a_page_that_cannot_be_written_is_named(
        self, toy: Path, run_command: Say, command: list[str], out: str
    ) -> None:
        if command[0] == "compare":
            # it makes the folder
            (toy.parents[2] / "nowhere").touch()
        code, told = run_command(*command, "--out", out)
        assert code == 2
        last = told.splitlines()[-1]
        assert last.startswith((f"packbench: {out}: ", "packbench: nowhere: File exists"))
        assert ".tmp" not in last

    def test_no_command_says_what_a_terminal_obeys(self, toy: Path, run_command: Say) -> None:
        cases = toy.parents[2] / "storage" / "toy" / "cases"
        (cases / "a.json").write_text(json.dumps({"k\x1b[31m\u202e": 1}), encoding="utf-8")
        for command in (
            ["validate", str(cases)],
            ["lint", "toy", "--root", "storage"],
            ["rescore", f"toy/{COMPLETE}", "--root", "storage"],
            ["gate", "no\x1b[31m\u202e"],
        ):
            _, told = run_command(*command)
            assert r"\x1b[31m\u202e" in told, command
            assert "\x1b" not in told

    def test_a_tag_makes_no_line_of_its_own(self, toy: Path, run_command: Say) -> None:
        root = toy.parents[2] / "storage"
        found = [case_result("a", "failed", case_type="x\n  pass_rate (case_type y) 9 / 9 = 100.0 %: PASS\x1b[2K")]
        write(toy.parent, run_of(root, run_id="01B"), found, root)
        _, told = run_command("gate", "toy/01B", "--root", "storage")
        (line,) = [line for line in told.splitlines() if "case_type" in line]
        assert line.endswith("FAIL")
        assert r"\x1b[2K" in line


def test_an_interrupt_is_no_traceback(run_command: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_packbench.commands.schema.run", interrupted)
    assert run_command("schema", "case") == (2, "packbench: interrupted\n")


class TestHistory:
    def test_one_damaged_run_does_not_hide_the_others(self, tmp_path: Path, run_command: Say) -> None:
        root = suite(tmp_path, "a")
        for number in range(3):
            write(tmp_path, run_of(root, run_id=f"01R{number}"), [case_result("a")], root)
        (tmp_path / "toy" / "01R1" / "report.json").write_text("{", encoding="utf-8")
        killed = tmp_path / "toy" / "01R3"
        killed.mkdir()
        with Journal(killed / "journal.jsonl") as journal:
            journal.append(case_result("a"))
        (tmp_path / "toy" / ".01R9.tmp").mkdir()
        (tmp_path / "toy" / ".01R9.tmp" / "records.jsonl").touch()
        code, said = run_command("history", "toy", "--output", str(tmp_path))
        assert code == 0
        rows = [row for row in said.splitlines() if row.startswith("| 01R")]
        assert [("can't be read" in row, "did not end" in row, "passed" in row) for row in rows] == [
            (False, False, True),
            (True, False, False),
            (False, False, True),
            (False, True, False),
        ]
        assert "- 01R1: " in said
        assert "not JSON: Expecting value at character 2" in said
        assert "- 01R3: " in said
        assert "the run did not end" in said
        code, said = run_command("history", "toy", "--output", str(tmp_path), "--format", "json")
        told = json.loads(said)
        assert [(one["run"], one["status"], bool(one["trouble"])) for one in told] == [
            ("01R0", "passed", False),
            ("01R1", "can't be read", True),
            ("01R2", "passed", False),
            ("01R3", "did not end", True),
        ]

    def test_nothing_but_damaged_runs_is_unusable(self, tmp_path: Path, run_command: Say) -> None:
        folder = tmp_path / "toy" / "01R0"
        folder.mkdir(parents=True)
        (folder / "report.json").write_text('{"packbench": {"version": true}}', encoding="utf-8")
        code, said = run_command("history", "toy", "--output", str(tmp_path))
        assert code == 2
        assert "01R0: " in said
        assert "/packbench/version: got True" in said

    def test_trials_of_a_case_are_one_case(self, tmp_path: Path, run_command: Say) -> None:
        root = suite(tmp_path, "a")
        write(tmp_path, run_of(root, run_id="01R"), [case_result("a", trial=number) for number in range(3)], root)
        _, said = run_command("history", "toy", "--output", str(tmp_path), "--format", "json")
        assert [(one["cases"], one["passed"]) for one in json.loads(said)] == [(1, 1)]


class TestValidate:
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("records.jsonl", "empty: no eval record"),
            ("errors.jsonl", "empty: no error of a run"),
            ("payloads.jsonl", "empty: no result of a run"),
            ("journal.jsonl", "empty: no entry of a journal"),
        ],
    )
    def test_an_empty_file_of_a_run_is_said_and_fine(
        self, tmp_path: Path, run_command: Say, name: str, said: str
    ) -> None:
        code, told = run_command("validate", file_of(tmp_path, b"\n", name))
        assert code == 0
        assert said in told

    def test_any_other_empty_file_is_nothing_of_ours(self, tmp_path: Path, run_command: Say) -> None:
        code, told = run_command("validate", file_of(tmp_path, b"", "x.jsonl"))
        assert code == 2
        assert "its kind is not known" in told

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"message": None}, "errors.jsonl:2: message: got None, expected a string"),
            ({"kind": 1}, "errors.jsonl:2: kind: got 1"),
            ({"verdict": "great"}, "errors.jsonl:2: verdict: got 'great', expected one of passed, failed"),
            ({"trial": "1"}, "errors.jsonl:2: trial: got '1'"),
            ({"file": ...}, "errors.jsonl:2: file: is missing"),
            ({"run_id": ...}, "errors.jsonl:2: run_id: is missing"),
        ],
    )
    def test_error_lines_are_checked_key_by_key(
        self, tmp_path: Path, run_command: Say, change: dict[str, Any], said: str
    ) -> None:
        bad = {name: value for name, value in {**error(), **change}.items() if value is not ...}
        path = tmp_path / "errors.jsonl"
        write_jsonl(path, [error(), bad])
        code, told = run_command("validate", str(path))
        assert code == 2
        assert said in told
        write_jsonl(path, [error(), {**error(), "trial": 2}])
        assert run_command("validate", str(path)) == (0, f"{path}: 2 lines, each error of a run, version 1\n")

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (line(packbench={"trial": "x"}), "in.jsonl:1: packbench."),
            (line() + line(packbench={"version": True}), "in.jsonl:2: packbench.version: "),
            (line() + b'{"run_id":"r","test_id":"t","result":1}\n', "in.jsonl:2: case_id: is missing"),
            (b'{"run_id":"r","test_id":"t","case_id":"c","trial":-1,"result":1}', "in.jsonl:1: trial: got -1"),
            (b'{"suite":"s","nodeid":"n"}', "in.jsonl:1: not a result: "),
            (b"[]", "in.jsonl:1: "),
            (b"{}", "in.jsonl:1: test_suite: missing"),
            (b'{"schema_version":true}', "in.jsonl:1: schema_version"),
        ],
    )
    def test_lines_of_each_kind_are_checked(self, tmp_path: Path, run_command: Say, content: bytes, said: str) -> None:
        code, told = run_command("validate", file_of(tmp_path, content))
        assert code == 2
        assert said in told
        assert told.count("\n") == 1

    def test_a_file_of_many_cases_is_known(self, tmp_path: Path, run_command: Say) -> None:
        case = {"id": "a", "pack_id": "generic", "case_type": "x", "difficulty": "easy", "input": {}, "expected": {}}
        path = tmp_path / "many.jsonl"
        write_jsonl(path, [case, {**case, "id": "b"}])
        assert run_command("validate", str(path)) == (0, f"{path}: 2 lines, each case of pack generic\n")
        for change, said in (
            ({"difficulty": "odd"}, f"{path}:2: /difficulty: "),
            ({"pack_id": "generik"}, f'{path}:2: /pack_id: unknown pack "generik"; did you mean "generic"?'),
            ({"pack_id": []}, f"{path}:2: /pack_id: "),
        ):
            write_jsonl(path, [case, {**case, **change}])
            code, told = run_command("validate", str(path))
            assert code == 2
            assert told.startswith(said)
            assert told.count(str(path)) == 1

    @pytest.mark.parametrize(
        ("bad", "said"),
        [
            ("{case}", '3: /id: duplicate id "a", also in line 1; use a unique id'),
            ("{case} x", "3: column 104: not JSON: "),
            ('{"id": "b', "3: column 8: not JSON: "),
            ("no json", "3: column 1: not JSON: "),
        ],
    )
    def test_a_bad_line_among_cases_is_named_by_the_files_line(
        self, tmp_path: Path, run_command: Say, bad: str, said: str
    ) -> None:
        case = json.dumps(
            {"id": "a", "pack_id": "generic", "case_type": "x", "difficulty": "easy", "input": {}, "expected": {}}
        )
        path = file_of(tmp_path, f"{case}\n\n{bad.replace('{case}', case)}\n".encode(), "many.jsonl")
        code, told = run_command("validate", str(path))
        assert code == 2
        assert told.startswith(f"{path}:{said}")
        assert "line 1 column" not in told

    def test_a_link_that_leads_nowhere_is_no_valid_file(self, tmp_path: Path, run_command: Say) -> None:
        (tmp_path / "lost.json").symlink_to(tmp_path / "nowhere")
        code, told = run_command("validate", str(tmp_path))
        assert code == 2
        assert told == f"{tmp_path / 'lost.json'}: No such file or directory: NOT VALID\n"

    def test_a_journal_that_was_cut_short_says_so(self, tmp_path: Path, run_command: Say) -> None:
        path = tmp_path / "journal.jsonl"
        with Journal(path) as journal:
            journal.append(case_result("a"))
            journal.append(case_result("b"))
        path.write_bytes(path.read_bytes()[:-9])
        code, told = run_command("validate", str(path))
        assert code == 0
        assert "1 line, each entry of a journal, version 1; the last line is truncated and was skipped" in told
        path.write_bytes(path.read_bytes() + b"\n")
        assert run_command("validate", str(path))[0] == 2

    def test_the_head_of_a_journal_is_no_entry(self, tmp_path: Path, run_command: Say) -> None:
        path = tmp_path / "journal.jsonl"
        with Journal(path, run):
            pass
        assert run_command("validate", str(path)) == (0, f"{path}: head of a journal, version 1, and no entry\n")
        with Journal(path) as journal:
            journal.append(case_result("a"))
        assert run_command("validate", str(path)) == (0, f"{path}: 1 line, each entry of a journal, version 1\n")
        path.write_bytes(path.read_bytes().replace(b'"packbench_journal":1', b'"packbench_journal":true', 1))
        code, told = run_command("validate", str(path))
        assert code == 2
        assert f"{path}:1: packbench_journal: got True; expected 1" in told

    def test_rules_are_named_as_they_were_given(
        self, tmp_path: Path, run_command: Say, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "suite.yaml").write_text("pack: [", encoding="utf-8")
        code, told = run_command("validate", "suite.yaml")
        assert code == 2
        assert told.startswith("suite.yaml: line 1 column 8: not YAML: ")

    def test_a_report_tells_cases_and_trials(self, tmp_path: Path, run_command: Say) -> None:
        root = suite(tmp_path, "a")
        found = [case_result("a", trial=number) for number in range(3)]
        folder = write(tmp_path, run_of(root), found, root)
        _, told = run_command("validate", str(folder / "report.json"))
        assert "report of a run, version 1, 1 case, 3 trials" in told


class TestTrialsInReports:
    def trials(self, test_id: str, *numbers: int, **changes: Any) -> bytes:
        return b"".join(line(test_id=test_id, packbench={"trial": number}, **changes) for number in numbers)

    def test_cases_and_trials_are_both_told(self, tmp_path: Path, run_command: Say) -> None:
        content = self.trials("agentdojo:a", 2, 0, 1) + self.trials("agentdojo:b", 1, 2) + line(test_id="agentdojo:c")
        _, told = run_command("report", file_of(tmp_path, content * 2))
        assert "# packbench report: 1 run, 6 records (3 cases, 6 trials)" in told
        assert "3 cases, 6 trials. Verdicts of trials: 6 passed, 0 failed." in told
        _, told = run_command("report", file_of(tmp_path, content), "--format", "json")
        document = json.loads(told)
        assert (document["cases"], document["records"]) == (3, 6)

    def test_nothing_is_said_where_each_case_ran_once(self, tmp_path: Path, run_command: Say) -> None:
        _, told = run_command("report", file_of(tmp_path, self.trials("agentdojo:a", 0)))
        assert "# packbench report: 1 run, 1 record\n" in told
        assert "trials" not in told

    @pytest.mark.parametrize("trial", ["x", True, -1, 1.0, None, 2**32])
    def test_a_trial_that_is_none_is_named_by_its_line(self, tmp_path: Path, run_command: Say, trial: object) -> None:
        path = file_of(tmp_path, line() + line(test_id="agentdojo:b", packbench={"trial": trial}))
        code, told = run_command("report", path)
        assert code == 2
        assert told.startswith(f"packbench: {path}:2 packbench.trial: expected an integer 0..4294967295, got ")
        code, told = run_command("report", path, "--skip-bad")
        assert "1 record" in told

    def test_a_run_in_which_all_broke_says_what_it_has(self, tmp_path: Path, run_command: Say) -> None:
        folder = folder_of(tmp_path / "run", b"", error(), error("not_run", test_id="agentdojo:x"))
        code, told = run_command("report", folder)
        assert code == 2
        assert told == f"packbench: no records in {folder}; cases without a score: 1 error, 1 not_run\n"

    def test_trials_that_broke_are_counted_apart(self, tmp_path: Path, run_command: Say) -> None:
        first, second = error(), {**error(), "trial": 1}
        folder = folder_of(tmp_path / "run", line(), first, second, second)  # type: ignore[arg-type]  # a trial is a number
        _, told = run_command("report", folder)
        assert "1 passed, 0 failed, 2 error" in told


class TestRescore:
    def run(self, tmp_path: Path, *found: CaseResult) -> tuple[Path, Path]:
        root = suite(tmp_path)
        for each in found:
            case = {
                "id": each.case_id,
                "pack_id": "generic",
                "case_type": "plain",
                "difficulty": "easy",
                "input": {"q": 1},
                "expected": {"said": each.case_id},
            }
            (root / "toy" / "cases" / f"{each.case_id}.json").write_text(json.dumps(case), encoding="utf-8")
        return write(tmp_path / "out", run_of(root), found, root), root

    def test_each_trial_is_scored_from_its_own_result(self, tmp_path: Path, run_command: Say) -> None:
        folder, root = self.run(tmp_path, *(case_result("a", trial=number) for number in range(3)), case_result("b"))
        lines = [json.loads(one) for one in (folder / "payloads.jsonl").read_text("utf-8").splitlines()]
        results = {("a", 0): {"said": "a"}, ("a", 1): {"said": "x"}, ("a", 2): {"said": "a"}, ("b", 0): {"said": "b"}}
        write_jsonl(
            folder / "payloads.jsonl", [{**one, "result": results[one["case_id"], one["trial"]]} for one in lines]
        )
        code, told = run_command("rescore", str(folder), "--root", str(root))
        assert code == 0
        assert (
            "- Current is the same run, its stored results scored with the current rules, which are those of the"
            in told
        )
        assert "3 / 3 trials passed before, 2 / 3 now" in told
        assert "1 regressed, 0 improved" in told

    def test_a_case_that_is_gone_or_broken_stays_as_it_was_and_is_named(self, tmp_path: Path, run_command: Say) -> None:
        folder, root = self.run(tmp_path, case_result("a"), case_result("b"), case_result("c", "error", kind="timeout"))
        (root / "toy" / "cases" / "a.json").unlink()
        (root / "toy" / "cases" / "b.json").write_text("{", encoding="utf-8")
        code, told = run_command("rescore", str(folder), "--root", str(root))
        assert code == 0
        assert "not rescored: a: the suite no longer has this case" in told
        assert "not rescored: " in told
        assert "b.json: line 1 column 2" in told
        assert "compared - no score changed" in told

    def test_a_result_that_breaks_a_pack_breaks_its_case_alone(self, tmp_path: Path, run_command: Say) -> None:
        # the results that are written hold half a character, which no record can
        folder, root = self.run(tmp_path, case_result("a"), case_result("b"))
        lines = [json.loads(one) for one in (folder / "payloads.jsonl").read_text("utf-8").splitlines()]
        write_jsonl(folder / "payloads.jsonl", [{**lines[0], "result": {"said": "a"}}, lines[1]])
        code, told = run_command("rescore", str(folder), "--root", str(root))
        assert code == 0
        assert "0 regressed, 0 improved, 1 new failure, 0 fixed" in told
        assert "now: pack_error" in told
        assert run_command("rescore", str(folder), "--root", str(root), "--fail-on", "new_failures>0")[0] == 1

    def test_other_rules_are_named(self, tmp_path: Path, run_command: Say) -> None:
        folder, root = self.run(tmp_path, case_result("a"))
        rules = root / "toy" / "suite.yaml"
        rules.write_text(rules.read_text("utf-8") + "thresholds: {accept: 0.5}\n", "utf-8")
        line = json.loads((folder / "payloads.jsonl").read_text("utf-8"))
        write_jsonl(folder / "payloads.jsonl", [{**line, "result": {"said": "a"}}])
        _, told = run_command("rescore", str(folder), "--root", str(root))
        assert "scored with the current rules: scoring rules: " in told
        assert "Compared by force" not in told
        assert "The target was not run." in told


class TestConditionsOnNothing:
    def test_runs_without_a_case_in_common_fail_a_condition_on_changes(self, tmp_path: Path, run_command: Say) -> None:
        root = suite(tmp_path, "ab")
        before, after = (
            write(tmp_path / "out", run_of(root, run_id=f"01{name}"), [case_result(name)], root) for name in "ab"
        )
        runs = ["--baseline", str(before), "--current", str(after), "--out", "-"]
        code, told = run_command("compare", *runs, "--fail-on", "regressed>0")
        assert code == 1
        assert "packbench: regressed>0: no value: FAIL" in told
        assert run_command("compare", *runs, "--fail-on", "removed>1")[0] == 0
