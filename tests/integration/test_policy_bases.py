"""`packbench gate --policy-from`: bases whose configuration stands elsewhere, or that today's rules refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.commands import main
from tests.integration.policy_repository import SUITE, commit, git

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


PYPROJECT = '[tool.pytest.ini_options]\npackbench_suite = "support"\npackbench_gate = "{}"\n'


def rebase(repository: Path, *edits: tuple[str, str, str]) -> None:
    """Change files in the base, and put them back on the branch of the change."""
    git(repository, "switch", "--quiet", "main")
    for name, old, new in edits:
        path = repository / name
        path.write_text(path.read_text("utf-8").replace(old, new) if old else new, "utf-8")
    commit(repository)
    git(repository, "switch", "--quiet", "change")
    git(repository, "merge", "--quiet", "main")


def lines(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = main(["gate", "--policy-from=main"])
    printed = capsys.readouterr()
    assert not printed.err
    return code, printed.out.splitlines()


def test_the_suite_is_named_before_its_changes(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = lines(capsys)
    assert code == 0
    assert printed[0] == "support"
    assert "nothing loosened since main" in printed[1]
    assert printed[-1] == "acceptance policy: not loosened"


def test_settings_of_the_base_may_stand_in_pyproject(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "switch", "--quiet", "main")
    (repository / "pytest.ini").unlink()
    (repository / "pyproject.toml").write_text(PYPROJECT.format("case"), "utf-8")
    commit(repository)
    git(repository, "switch", "--quiet", "change")
    git(repository, "merge", "--quiet", "main")
    now = PYPROJECT.format("suite").replace('packbench_suite = "support"\n', "")
    (repository / "pyproject.toml").write_text(now, "utf-8")
    code, printed = lines(capsys)
    assert code == 1
    assert [line.partition("policy: ")[2] for line in printed if line.endswith(": FAIL")] == [
        "setting softened: pyproject.toml: setting gate: case -> suite: FAIL",
        'setting softened: pyproject.toml: setting suite: ["support"] -> []: FAIL',
    ]


def test_an_option_without_its_value_in_the_base_is_none(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rebase(repository, ("pytest.ini", "=none", "=none --packbench-gate"))
    path = repository / "pytest.ini"
    path.write_text(path.read_text("utf-8").replace(" --packbench-gate", " --packbench-gate suite -q"), "utf-8")
    code, printed = lines(capsys)
    assert code == 1
    assert any("setting softened: pytest.ini: setting gate: case -> suite" in line for line in printed)


def test_a_base_that_today_s_rules_refuse_is_one_change(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rebase(repository, (f"{SUITE}/suite.yaml", "pack: generic", "pack: generic\nold_key: 1"))
    path = repository / SUITE / "suite.yaml"
    text = path.read_text("utf-8").replace("old_key: 1\n", "").replace("accept: 0.8", "accept: 0.7")
    path.write_text(text, "utf-8")
    code, printed = lines(capsys)
    assert code == 1
    changes = [line.partition("policy: ")[2] for line in printed if line.endswith(": FAIL")]
    assert len(changes) == 1
    assert changes[0].startswith("scoring changed: suite.yaml: suite.yaml: ")
    # it can be allowed as a whole
    old, new = changes[0].removesuffix(": FAIL").rpartition(": ")[2].split(" -> ")
    entry = f"changes: [{{key: suite.yaml, old: '{old}', new: '{new}', reason: checked by hand}}]"
    path.with_name("policy_changes.yaml").write_text(entry, "utf-8")
    assert lines(capsys)[0] == 0
