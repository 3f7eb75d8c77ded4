"""`--packbench-policy-from`: a run fails if its acceptance policy is not as strict as that of a base."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.testing import run_folders
from tests.integration.policy_repository import DATA, SUITE, commit, git, plant

if TYPE_CHECKING:
    from pathlib import Path

FROM_MAIN, NAMED = "--packbench-policy-from=main", "--packbench-suite=support"


def changes(result: pytest.RunResult) -> list[str]:
    lines = [line.removeprefix("policy: ") for line in result.outlines if line.startswith("policy: ")]
    return [line for line in lines if line.endswith(": FAIL") or ": allowed: " in line]


def document(folder: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))["packbench"]
    return parsed


def test_twelve_planted_changes_fail_a_run_everywhere(
    repository: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = repository / "page.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    clean = pytester.runpytest(NAMED, FROM_MAIN)
    assert clean.ret == pytest.ExitCode.OK
    clean.stdout.fnmatch_lines(["policy: nothing loosened since main (*)"])
    page.unlink()
    for change in DATA["planted"]:
        plant(repository, change)
    # a case that fails by its new expectation is no reason with the gates that are left
    result = pytester.runpytest(NAMED, FROM_MAIN)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = [change["line"] for change in DATA["planted"]]
    assert sorted(changes(result)) == sorted(f"{line}: FAIL" for line in lines)
    folder = run_folders(repository, "support")[-1]
    summary = (folder / "summary.md").read_text("utf-8")
    assert "ACCEPTANCE POLICY CHANGED" in summary.splitlines()[0]
    assert summary.index("- policy: 12 changes not allowed since main") < summary.index("<details>")
    assert page.read_text("utf-8").count("- policy: ") == summary.count("- policy: ") == 15
    outcome = document(folder)["policy_changes"]
    assert (outcome["failed"], document(folder)["status"]) == (True, "failed")
    assert [each["allowed"] for each in outcome["changes"]] == [False] * 12
    assert outcome["changes"][0].keys() == {"what", "file", "key", "old", "new", "case", "reason", "allowed"}
    result.stdout.fnmatch_lines(
        ["::error file=*suite.yaml,*title=support%3A acceptance policy::12 changes not allowed*"]
    )


@pytest.mark.parametrize("workers", ["0", "1"])
def test_environment_and_ini_are_read_and_options_count(
    repository: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setenv("PACKBENCH_POLICY_FROM", "main")
    options = (NAMED, "-n", workers, "--packbench-baseline=none")
    result = pytester.runpytest(
        *options, "--packbench-gate=suite", "--packbench-baseline-optional", "-o", "packbench_stale=warn"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert changes(result) == [
        "setting softened: pytest.ini: setting gate: case -> suite: FAIL",
        "setting softened: pytest.ini: setting stale: error -> warn: FAIL",
        "setting softened: pytest.ini: setting baseline_optional: no -> yes: FAIL",
    ]
    monkeypatch.delenv("PACKBENCH_POLICY_FROM")
    selected = pytester.runpytest(*options, "-o", "packbench_policy_from=main", "-k", "not many and not wrong")
    assert selected.ret == pytest.ExitCode.TESTS_FAILED
    assert changes(selected) == [
        "cases not selected: arguments of this run: selection: all -> 2 of 5: FAIL",
        "controls not selected: arguments of this run: controls: all -> 1 of 2: FAIL",
    ]


def test_a_run_is_a_base_in_full(repository: Path, pytester: pytest.Pytester) -> None:
    assert pytester.runpytest(NAMED).ret == pytest.ExitCode.OK
    base = run_folders(repository, "support")[-1]
    for name in (base.name, str(base), "support/latest"):
        assert changes(pytester.runpytest(NAMED, f"--packbench-policy-from={name}")) == [], name
    # the command has no options of a run
    pytester.runpytest(NAMED, "--packbench-baseline=latest")
    assert main(["gate", "--policy-from=support/latest"]) == 0
    for change in DATA["planted"]:
        plant(repository, change)
    result = pytester.runpytest(NAMED, f"--packbench-policy-from={base.name}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # of cases and of the baseline, a run stores hashes only
    whole = (".yaml", ".py", ".ini", "wrong.json")
    known = [change["line"] for change in DATA["planted"] if change["file"].endswith(whole)]
    hashed = [
        "case changed: cases/answer/a.json: case (case a): * -> *",
        f"case removed: {SUITE}/cases/answer/b.json (case b): present -> removed",
        "case changed: cases/hard/many.jsonl:1: case (case c): * -> *",
        "baseline changed: baseline.json: baseline.json: * -> *",
    ]
    lines = sorted(changes(result))
    expected = sorted(f"{line}: FAIL" for line in (*known, *hashed))
    assert len(lines) == len(expected), lines
    assert all(fnmatchcase(line, pattern.replace("[", "[[]")) for line, pattern in zip(lines, expected, strict=True)), (
        lines
    )


def test_a_base_that_can_t_be_read_is_a_usage_error(repository: Path, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(NAMED, "--packbench-policy-from=origin/main")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --packbench-policy-from: no commit origin/main here; fetch it*"])
    (repository / SUITE / "policy_changes.yaml").write_text("changes: [", encoding="utf-8")
    commit(repository)
    result = pytester.runpytest(NAMED, FROM_MAIN)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(changes(result)) == 1
    (repository / SUITE / "policy_changes.yaml").unlink()
    pytester.runpytest(NAMED, "-k", "not many")
    last = run_folders(repository, "support")[-1].name
    result = pytester.runpytest(NAMED, f"--packbench-policy-from={last}")
    assert changes(result) == [f"run {last} is partial (2 of 5 cases selected); expected a complete run: FAIL"]


HOOK = "def pytest_packbench_target(config, suite):\n    from target_support import {0}\n    return {0}\n"


def test_another_target_by_option_or_hook_is_a_line(repository: Path, pytester: pytest.Pytester) -> None:
    (repository / "target_support.py").write_text(
        "def answer(request):\n    return {'queue': 'refunds', 'order': 1, 'amount': 9.5}\n\n\neasy = answer\n"
    )
    assert pytester.runpytest(NAMED).ret == pytest.ExitCode.OK
    base = run_folders(repository, "support")[-1].name
    by_option = pytester.runpytest(NAMED, FROM_MAIN, "--packbench-target=target_support:easy")
    option = 'pipeline changed: pytest.ini: setting target: "" -> target_support:easy: FAIL'
    assert (by_option.ret, changes(by_option)) == (pytest.ExitCode.TESTS_FAILED, [option])
    same = pytester.runpytest(NAMED, f"--packbench-policy-from={base}", "--packbench-target=target_support:easy")
    tested = "pipeline changed: this run: target of the run: target_support:answer -> target_support:easy: FAIL"
    assert changes(same) == [option, tested]
    (repository / "conftest.py").write_text(HOOK.format("easy"))
    hooked = pytester.runpytest(NAMED, FROM_MAIN)
    assert fnmatchcase("".join(changes(hooked)), "hook changed: conftest.py: hook conftest.py: absent -> *: FAIL")
    assert main(["gate", "--policy-from=main"]) == 1
    resolved = changes(pytester.runpytest(NAMED, f"--packbench-policy-from={base}"))
    assert resolved[1:] == [
        "pipeline changed: this run: target of the run: target_support:answer -> hook:answer: FAIL"
    ], resolved
    commit(repository)
    git(repository, "branch", "--force", "main", "change")
    commit(repository)
    assert changes(pytester.runpytest(NAMED, FROM_MAIN)) == []
    (repository / "conftest.py").unlink()
    removed = changes(pytester.runpytest(NAMED, FROM_MAIN))
    assert fnmatchcase("".join(removed), "hook changed: conftest.py: hook conftest.py: * -> absent: FAIL")


def test_a_run_that_failed_by_policy_is_no_base_and_no_passed_baseline(
    repository: Path, pytester: pytest.Pytester
) -> None:
    pytester.runpytest(NAMED)
    passed = run_folders(repository, "support")[-1].name
    plant(repository, DATA["planted"][0])
    pytester.runpytest(NAMED, FROM_MAIN)
    last = run_folders(repository, "support")[-1].name
    assert changes(pytester.runpytest(NAMED, f"--packbench-policy-from={last}")) == [
        f"run {last} itself failed for its acceptance policy; name a run that passed, or a commit: FAIL"
    ]
    plant(repository, {"file": "suite.yaml", "old": "accept: 0.1", "new": "accept: 0.8"})
    pytester.runpytest(NAMED, "--packbench-baseline=passed").stdout.fnmatch_lines([f"baseline: *since run {passed}*"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((NAMED, "--packbench-policy-from="), "--packbench-policy-from: got no value; expected a commit, *"),
        (("--packbench-suite=",), "--packbench-suite: got no name; expected the name of a suite*"),
        ((FROM_MAIN, "test_other.py"), "--packbench-policy-from: got 'main', but support does not run, because arg*"),
        (("-c", "none.ini", "--packbench-fail-on=mean<0"), "--packbench-fail-on: got 'mean<0', but no suite runs, *"),
        (("--packbench-baseline=latest", "test_other.py", "-n1"), "--packbench-baseline: got 'latest', but support *"),
    ],
)
def test_an_option_that_would_check_nothing_is_a_usage_error(
    repository: Path, pytester: pytest.Pytester, options: tuple[str, ...], message: str
) -> None:
    (repository / "none.ini").write_text("[pytest]\n")
    (repository / "test_other.py").write_text("def test_nothing():\n    pass\n")
    result = pytester.runpytest(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert any(fnmatchcase(line, f"ERROR: {message}") for line in (*result.errlines, *result.outlines))
    # an option of the configuration is for runs with suites
    assert pytester.runpytest("test_other.py").ret == pytest.ExitCode.OK


def test_a_shard_that_failed_by_policy_is_not_merged(
    repository: Path, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(repository, DATA["planted"][0])
    for shard in ("1/2", "2/2"):
        pytester.runpytest(NAMED, FROM_MAIN, f"--packbench-shard={shard}")
    folders = run_folders(repository, "support")
    assert main(["merge", *map(str, folders)]) == 2
    message = "packbench: run * failed for its acceptance policy, *packbench gate --policy-from BASE, *"
    assert fnmatchcase(capsys.readouterr().err.splitlines()[-1], message)
