"""`packbench gate --policy-from`: each change of the acceptance policy that is not known to be tighter fails."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.load import case_sha256
from pytest_packbench.commands import main
from tests.integration.policy_repository import DATA, SUITE, commit, git, plant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def gate(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """Runs the command, and returns its exit code and the lines of changes, or its error."""

    def call(*words: str, base: str = "main") -> tuple[int, list[str]]:
        capsys.readouterr()
        code = main(["gate", f"--policy-from={base}", *words])
        printed = capsys.readouterr()
        lines = [line.strip().removeprefix("policy: ") for line in printed.out.splitlines()]
        return code, [
            line for line in lines if line.endswith(": FAIL") or ": allowed: " in line
        ] or printed.err.splitlines()

    return call


def test_twelve_planted_changes_give_twelve_lines(repository: Path, gate: Any) -> None:
    assert gate() == (0, [])
    for change in DATA["planted"]:
        plant(repository, change)
    commit(repository)
    code, lines = gate()
    assert code == 1
    assert sorted(lines) == sorted(f"{change['line']}: FAIL" for change in DATA["planted"])
    assert len(lines) == 12


@pytest.mark.parametrize("name", DATA["loosened"])
def test_what_is_not_tighter_is_a_line(repository: Path, gate: Any, name: str) -> None:
    change = DATA["loosened"][name]
    plant(repository, change)
    code, lines = gate()
    expected = [f"{line}: FAIL" for line in change.get("lines", [change.get("line")])]
    assert code == 1
    assert len(lines) == len(expected)
    assert all(map(fnmatches, sorted(lines), sorted(expected))), lines


def fnmatches(line: str, pattern: str) -> bool:
    return fnmatchcase(line, pattern.replace("[", "[[]"))


@pytest.mark.parametrize("name", DATA["tighter"])
def test_what_is_tighter_passes(repository: Path, gate: Any, name: str) -> None:
    plant(repository, DATA["tighter"][name])
    assert gate() == (0, [])


ENTRY = "changes:\n  - {{key: /thresholds/accept, old: {old}, new: {new}, reason: {reason}}}\n"


def test_an_entry_allows_exactly_its_change(repository: Path, gate: Any) -> None:
    lowered, removed = DATA["planted"][0], DATA["planted"][6]
    for change in (lowered, removed):
        plant(repository, change)
    path = repository / SUITE / "policy_changes.yaml"
    path.write_text(
        ENTRY.format(old=0.8, new=0.1, reason="no | need")
        + "  - {case: b, old: present, new: removed, reason: a duplicate of a}\n"
    )
    code, lines = gate()
    assert (code, lines) == (
        0,
        [f"{lowered['line']}: allowed: no | need", f"{removed['line']}: allowed: a duplicate of a"],
    )
    unmatched = "policy_changes.yaml: /changes/0 (/thresholds/accept): matches no change since the base; expected *"
    for old, new in ((0.8, 0.2), (0.7, 0.1), (True, 0.1), ("absent", 0.1)):
        path.write_text(ENTRY.format(old=old, new=new, reason="some"))
        code, lines = gate()
        assert code == 1
        assert fnmatchcase(lines[0], f"{unmatched}: FAIL"), lines
        assert lines[1:] == [f"{each['line']}: FAIL" for each in (lowered, removed)]
    # where the base has the change already, its entry permits nothing any more
    path.write_text(ENTRY.format(old=0.8, new=0.1, reason="some"))
    commit(repository)
    git(repository, "branch", "--force", "main", "change")
    code, lines = gate()
    assert (code, len(lines)) == (1, 1)
    assert fnmatchcase(lines[0], f"{unmatched}: FAIL")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ENTRY.format(old=1, new=2, reason="''"), "policy_changes.yaml: /changes/0/reason: got *"),
        (
            "changes: [{old: 1, new: 2, reason: x}]",
            "policy_changes.yaml: /changes/0 (): matches no change since the base; *",
        ),
        ("changes: [{key: x, new: 2, reason: x}]", 'policy_changes.yaml: /changes/0/old: the key "old" is missing; *'),
        ("change: []", 'policy_changes.yaml: /change: unknown key "change"; did you mean "changes"?'),
        ("changes: [", "policy_changes.yaml: line 1 column *: not YAML: *"),
    ],
)
def test_a_malformed_entry_fails(repository: Path, gate: Any, text: str, problem: str) -> None:
    (repository / SUITE / "policy_changes.yaml").write_text(text)
    code, lines = gate()
    assert code == 1
    assert fnmatchcase(lines[0], f"{problem}: FAIL".replace("[", "[[]")), lines


def test_marks_of_reviewers_are_lines(repository: Path, gate: Any) -> None:
    folder = repository / SUITE
    for path in (folder / "suite.yaml", *folder.glob("cases/*/*.json*")):
        text = path.read_text("utf-8").replace("{exact: /queue, ", "{one_of: /queue, ")
        path.write_text(text.replace('"queue": "refunds"', '"queue": ["refunds"]'), encoding="utf-8")
    commit(repository)
    git(repository, "branch", "--force", "main", "change")
    marks = {"a": "also_acceptable", "b": "quarantine", "c": "gold_is_wrong"}
    cases = {path.stem: json.loads(path.read_text("utf-8")) for path in folder.glob("cases/answer/*.json")}
    cases["c"] = json.loads((folder / "cases/hard/many.jsonl").read_text("utf-8").splitlines()[0])
    lines = [
        {
            "version": 1,
            "suite": "support",
            "case": name,
            "case_sha256": case_sha256(cases[name]),
            "mark": mark,
            "reason": "flaky",
            "by": "R. Reader",
            "run_id": "01",
            "marked_at": "2026-03-01T12:00:00.000Z",
            "result": {"queue": "letters", "order": 1, "amount": 9.5},
        }
        for name, mark in marks.items()
    ]
    (repository / "review.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["review", "review.jsonl", "--write"]) == 0
    disputed = "the expected answer is disputed: flaky"
    # who marked what is in the notes, and is no expectation
    assert gate() == (
        1,
        [
            'expectation changed: cases/answer/a.json: /expected/queue (case a): ["refunds"] -> ["refunds", "letters"]: FAIL',
            "case quarantined: cases/answer/b.json: /notes/skip (case b): absent -> flaky (R. Reader): FAIL",
            f"case quarantined: cases/hard/many.jsonl:1: /notes/xfail (case c): absent -> {disputed} (R. Reader): FAIL",
        ],
    )
    # a later mark of the same case is no line either
    commit(repository)
    git(repository, "branch", "--force", "main", "change")
    path = folder / "cases/answer/a.json"
    path.write_text(path.read_text("utf-8").replace('"01"', '"02"'), encoding="utf-8")
    assert gate() == (0, [])


def test_another_root_or_name_is_no_way_out(repository: Path, gate: Any) -> None:
    plant(repository, DATA["planted"][0])
    storage = repository / "storage"
    storage.joinpath("benchmarks").rename(storage / "easy")
    (repository / "pytest.ini").write_text("[pytest]\npackbench_suite = support\npackbench_root = storage/easy\n")
    code, lines = gate()
    assert code == 1
    assert lines == [
        "setting softened: pytest.ini: setting root: storage/benchmarks -> storage/easy: FAIL",
        f"{DATA['planted'][0]['line']}: FAIL",
    ]
    (storage / "easy" / "support").rename(storage / "easy" / "help")
    code, lines = gate()
    assert "suite removed: support/suite.yaml: suite support: present -> absent: FAIL" in lines


def test_links_are_read_as_a_run_reads_them(repository: Path, gate: Any) -> None:
    folder = repository / SUITE
    (folder / "cases").rename(folder / "all")
    (folder / "cases").symlink_to("all")
    assert gate() == (0, [])
    commit(repository)
    git(repository, "branch", "--force", "main", "change")
    commit(repository)
    assert gate() == (0, [])
    (folder / "cases").unlink()
    (folder / "some").mkdir()
    (folder / "cases").symlink_to("some")
    assert sorted(line.partition(" (case ")[2][:1] for line in gate()[1] if line.startswith("case removed")) == [
        *"abcde"
    ]


def test_a_branch_that_went_on_is_compared_where_it_was_left(repository: Path, gate: Any) -> None:
    commit(repository)
    git(repository, "switch", "--quiet", "main")
    plant(repository, DATA["tighter"]["one more case"])
    commit(repository)
    git(repository, "switch", "--quiet", "change")
    assert gate() == (0, [])


def test_a_base_that_can_t_be_read_is_an_error_with_its_remedy(
    repository: Path, gate: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = "packbench: --policy-from: no commit origin/main here; fetch it, with actions/checkout by fetch-depth: 0*"
    plant(repository, DATA["planted"][0])
    commit(repository)
    assert_error(gate(base="origin/main"), missing)
    assert_error(gate(base="--all"), "packbench: --policy-from: no commit --all here; *")
    assert_error(gate(base="01" + 24 * "A"), "there is no run 01A* of suite support here; *: FAIL", code=1)
    assert_error(gate("--require=x"), "packbench: gate: got no RUNS; *")
    monkeypatch.setenv("CI", "true")
    assert_error(gate(base="HEAD"), "packbench: --policy-from: HEAD is the commit that is checked out, *")
    assert gate()[0] == 1
    shallow = tmp_path / "shallow"
    git(repository, "clone", "--quiet", "--depth=1", "--no-local", f"file://{repository}", str(shallow))
    monkeypatch.chdir(shallow)
    assert_error(gate(base="HEAD^1"), "packbench: --policy-from: no commit HEAD^1 here; fetch it*")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_error(gate(), "packbench: --policy-from: git can't be started (No such file or directory); install*")


def test_without_a_repository_a_base_is_a_run(repository: Path, gate: Any) -> None:
    (repository / ".git").rename(repository / "elsewhere")
    assert_error(gate(), "packbench: --policy-from: git rev-parse: fatal: not a git repository*; run it in*")


def assert_error(result: tuple[int, list[str]], line: str, code: int = 2) -> None:
    assert (result[0], len(result[1])) == (code, 1), result
    assert fnmatchcase(result[1][0], line.replace("[", "[[]")), result
