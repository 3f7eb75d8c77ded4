"""What the acceptance policy reads in a suite's folder, and what it leaves out."""

from __future__ import annotations

import json
import shutil
import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.api import load_suite
from pytest_packbench.cases.finder import Project
from pytest_packbench.cases.load import read_located
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.report import PolicyError
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.registry import Packs
from pytest_packbench.policy import (
    code_hashes,
    commit_folder,
    compare_policy,
    find_commit,
    function_modules,
    left_at,
    open_base,
    policy_of,
    policy_settings,
    suite_policy,
    text_sha256,
)
from tests.integration.policy_repository import commit, git
from tests.unit.run_builders import COMPLETE, gate

if TYPE_CHECKING:
    from pathlib import Path

A: dict[str, Any] = {"id": "a", "input": "x"}
HIDDEN = {
    ".git/config": b"1",
    "cases/.draft/z.json": b"{}",
    "cases/.z.json": b"{}",
    "__pycache__/m.pyc": b"1",
    "tables/__pycache__/m.py": b"1",
    "README.md": b"1",
}
FILES = {
    **HIDDEN,
    "baseline.json": b'{"cases": {}}',
    "cases/a.json": json.dumps(A).encode(),
    "cases/bad.json": b"{",
    "cases/list.json": b"[]",
    "cases/more.jsonl": b'\xef\xbb\xbf\n{"id": "m1"}\n\n{"input": 1}\n',
    "cases/notes.txt": b"no case",
    "fixtures/a.json": b'{"case_id": "a", "description": "x"}',
    "fixtures/broken.json": b"{",
    "fixtures/controls/c.json": b'{"id": "c", "description": "x"}',
    "fixtures/controls/all.jsonl": b'{"id": "d", "description": "y"}\n\n[]\n',
    "fixtures/recordings.jsonl": b'{"case_id": "p"}\n{"case_id": "a"}\n',
    "policy_changes.yaml": b"changes: []",
    "suite.yaml": b"pack: toy",
    "tables/t.csv": b"1\r\n2\r\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "toy"


def test_each_file_counts_as_what_it_is(folder: Path) -> None:
    (folder / "gone.csv").symlink_to(folder / "nowhere")
    found = suite_policy(folder)
    assert found["baseline"] == {"cases": {}}
    assert found["files"] == {"tables/t.csv": text_sha256(b"1\n2\n"), "cases/notes.txt": text_sha256(b"no case")}
    cases = found["cases"]
    assert list(cases) == ["a", "bad", "list", "m1", "more.line-4"]
    assert [cases[name].sha256 is None for name in ("a", "bad", "list", "m1")] == [False, True, True, False]
    assert cases["m1"].file == "cases/more.jsonl:2"
    assert [json.loads(read_located(cases[name].location)) for name in ("a", "m1")] == [A, {"id": "m1"}]
    recordings = {
        "a": canonical_sha256({"case_id": "a", "description": "x"}),
        "broken": text_sha256(b"{"),
        "controls/c": canonical_sha256({"id": "c"}),
        "controls/d": canonical_sha256({"id": "d"}),
        "controls/all.line-3": canonical_sha256([]),
        "p": canonical_sha256({"case_id": "p"}),
    }
    assert found["recordings"] == recordings
    (folder / "baseline.json").write_bytes(b"{")
    assert suite_policy(folder)["baseline"] == text_sha256(b"{")


def test_a_run_stores_no_hash_of_a_case_or_of_its_recording(folder: Path) -> None:
    (folder / "suite.yaml").write_text(RULES, encoding="utf-8")
    suite = load_suite(folder)
    stored = policy_of(suite, Packs()["generic"], project_at(folder.parent, {}))
    assert stored["files"] == {"tables/t.csv": text_sha256(b"1\n2\n")}
    assert stored["recordings"].keys() == {"controls/c", "controls/d", "controls/all.line-3"}
    assert "cases" not in stored
    assert stored["baseline"] == text_sha256(b'{"cases": {}}')
    shutil.rmtree(folder / "fixtures")
    assert policy_of(suite, Packs()["generic"], project_at(folder.parent, {}))["recordings"] == {}


def test_of_two_cases_with_one_name_the_first_counts(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"cases/{number}").mkdir(parents=True)
        (tmp_path / f"cases/{number}/a.json").write_text(f'{{"id": "a", "n": {number}}}', encoding="utf-8")
    (facts,) = suite_policy(tmp_path)["cases"].values()
    assert facts.file == "cases/1/a.json"


def test_the_code_of_a_project_is_the_modules_in_its_folder(tmp_path: Path) -> None:
    for name in ("one.py", "beside.py", "pack/__init__.py", "pack/a.py", "pack/b.py", "env/site-packages/x.py", "c.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    modules = [str(tmp_path / name) for name in ("one.py", "pack/a.py", "env/site-packages/x.py", "c.so")]
    expected = ["one.py", "pack/__init__.py", "pack/a.py", "pack/b.py"]
    assert list(code_hashes(tmp_path, [None, *modules, "/elsewhere/m.py"])) == expected
    (tmp_path / "__init__.py").touch()
    assert list(code_hashes(tmp_path, modules[:1])) == ["one.py"]


def test_the_functions_of_a_suite_are_those_of_its_rules() -> None:
    rules = {
        "scores": [{"function": "my.rules:score"}, ("other:f.g",)],
        "judge": "judges:strict",
        "words": ["a: b", "http://x", "1a:b", "a:b:c"],
        "target": "pipe:run",
        "guards": ["guards:mine"],
        "description": "see:here",
    }
    assert function_modules(rules) == {"my.rules", "other", "judges"}


def test_completeness_is_a_gate_of_each_suite_unless_it_has_one_on_all_cases() -> None:
    rate, groups = gate("pass_rate", min=0.5), gate("completeness", min=0.5, by="difficulty")
    for gates, first in (
        ((), COMPLETE),
        ((rate,), COMPLETE),
        ((groups,), COMPLETE),
        ((gate("completeness", min=0.9),), None),
    ):
        config = SuiteConfig.model_construct(pack="toy", gates=gates)
        assert config.all_gates() == (gates if first is None else (first, *gates))


TOY = "storage/benchmarks/toy"
RULES, BY_FUNCTION = (
    "pack: generic\ncriteria: [{exact: /a}]\n",
    "pack: generic\ncriteria: [{python: 'checks_of_base:same'}]\n",
)
FUNCTION = "def same(value, expected, case_input):\n    return 1.0\n"
OPTIONAL = "addopts = --packbench-baseline-optional"
# files in the commit, what is changed since (None is removed), settings now, and what is said
BASES: dict[str, tuple[dict[str, str], dict[str, str | None], dict[str, str], list[str]]] = {
    "no configuration": ({}, {}, {}, []),
    "a root elsewhere": (
        {"pytest.ini": "[pytest]\npackbench_root = ../other\n"},
        {},
        {},
        ["../other/.git is outside of the repository; name a run"],
    ),
    "no TOML": ({"pyproject.toml": "["}, {}, {}, ["pyproject.toml in the base can't be read: *"]),
    "no INI": ({"pytest.ini": "words\n"}, {}, {}, ["pytest.ini in the base can't be read: pytest.ini:1: *"]),
    "an option in another file": (
        {"pyproject.toml": "[tool]\npytest = 1\n", "setup.cfg": f"[tool:pytest]\n{OPTIONAL}\n"},
        {},
        {"baseline_optional": "yes"},
        [],
    ),
    "no such option": (
        {"tox.ini": "[pytest]\n"},
        {},
        {"baseline_optional": "yes"},
        ["setting softened: tox.ini: setting baseline_optional: no -> yes"],
    ),
    "options side by side, and a key of another plugin": (
        {"pytest.ini": f"[pytest]\ngate = suite\n{OPTIONAL} --packbench-stale warn -q --packbench-fail-on=mean<0\n"},
        {},
        {"baseline_optional": "yes", "stale": "warn", "fail_on": "mean<0"},
        [],
    ),
    "rules that are a list": (
        {f"{TOY}/suite.yaml": "- a\n"},
        {f"{TOY}/suite.yaml": RULES},
        {},
        ["scoring changed: suite.yaml: suite.yaml: sha256:* -> sha256:*"],
    ),
    "a module of a package less": (
        {
            f"{TOY}/suite.yaml": BY_FUNCTION,
            "checks_of_base/__init__.py": FUNCTION,
            "checks_of_base/more.py": "",
            "checks_of_base/deep/er.py": "",
            "checks_of_base/data.csv": "",
        },
        {"checks_of_base/more.py": None, "checks_of_base/deep/er.py": None},
        {},
        ["pack changed: checks_of_base/more.py: pack code checks_of_base/more.py: * -> absent"],
    ),
}


def project_at(folder: Path, settings: dict[str, str]) -> Project:
    """Return a project with a hook of an installed package, which is no file of the project."""
    hooks = (str(folder / "env" / "site-packages" / "conftest.py"),)
    return Project(folder, folder / "storage" / "benchmarks", (), policy_settings(settings, (), ""), hooks)


def policy_lines(folder: Path, suite: Path, settings: dict[str, str], base: str = "HEAD") -> list[str]:
    """Compare the policy of a suite with that of a base."""
    project = project_at(folder, settings)
    loaded = load_suite(suite)
    pack = Packs()[loaded.config.pack].for_suite(loaded.config)
    outcome = compare_policy(open_base(base, project, folder / "reports"), loaded, pack, project)
    return [*(change.line for change in outcome.changes), *outcome.problems]


def write(folder: Path, files: dict[str, str | None] | dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", BASES)
def test_a_commit_is_read_as_pytest_would_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    base, now, settings, expected = BASES[name]
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "checks_of_base", raising=False)
    git(tmp_path, "init", "--quiet")
    write(tmp_path, {f"{TOY}/suite.yaml": RULES, "env/site-packages/conftest.py": "pytest_packbench_target", **base})
    commit(tmp_path)
    write(tmp_path, now)
    found = policy_lines(tmp_path, tmp_path / TOY, settings)
    assert len(found) == len(expected), found
    assert all(map(fnmatchcase, found, [line.replace("[", "[[]") for line in expected])), found


def test_functions_of_a_base_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    git(tmp_path, "init", "--quiet")
    rules = BY_FUNCTION.replace("checks_of_base", "trap_of_base")
    write(tmp_path, {f"{TOY}/suite.yaml": rules, "trap_of_base.py": FUNCTION})
    commit(tmp_path)
    write(tmp_path, {f"{TOY}/suite.yaml": RULES})
    assert "python -> exact" in " ".join(policy_lines(tmp_path, tmp_path / TOY, {}))
    assert "trap_of_base" not in sys.modules


def test_a_suite_outside_of_the_root_has_its_folder_in_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    git(tmp_path, "init", "--quiet")
    write(tmp_path, {"mine/suite.yaml": RULES, f"{TOY}/suite.yaml": RULES})
    commit(tmp_path)
    assert policy_lines(tmp_path, tmp_path / "mine", {}) == []
    write(tmp_path, {"mine/suite.yaml": f"{RULES}thresholds: {{accept: 0.1}}\n"})
    assert policy_lines(tmp_path, tmp_path / "mine", {}) == [
        "threshold changed: suite.yaml: /thresholds/accept: 0.8 -> 0.1"
    ]


def test_what_git_can_t_read_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    write(
        tmp_path,
        {"a/b.txt": "b", "lfs/x": "version https://git-lfs.github.com/spec/v1\n", "gone/x": "gone", "sub/x": "x"},
    )
    links = {"a/self": ".", "a/c.txt": "b.txt", "a/nowhere": "none", "out/x": "../../x", "out/y": "/x", "loop/x": "x/y"}
    for name, target in links.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
    # what an archive leaves out or a checkout changes
    (tmp_path / ".gitattributes").write_text("a/** export-ignore\n*.txt text eol=crlf ident\n", encoding="utf-8")
    git(tmp_path, "add", "--all")
    git(tmp_path, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub/module")
    git(tmp_path, "commit", "--quiet", "--message=x")
    missing = git(tmp_path, "rev-parse", "HEAD:gone/x")
    (tmp_path / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    head = git(tmp_path, "rev-parse", "HEAD")
    with commit_folder(tmp_path, head) as commit_:
        folder = commit_.unpack("a")
        assert sorted(path.name for path in folder.iterdir()) == ["b.txt", "c.txt", "nowhere", "self"]
        assert [(folder / name).read_bytes() for name in ("b.txt", "self/self/c.txt")] == [b"b", b"b"]
        assert commit_.names("a/self") == ["b.txt", "c.txt", "nowhere", "self"]
        assert commit_.names("") == [".gitattributes", "a", "gone", "lfs", "loop", "out", "sub"]
    assert not folder.exists()
    for name, problem in {
        "../elsewhere": "../elsewhere is outside of the repository; name a run",
        "lfs": "x: is stored in Git LFS, where git can't read it; name a run as the base",
        "gone": f"x: the object {missing[:12]} is missing in this clone; fetch it",
        "sub": f"sub/module is a submodule, which git can't read in {head[:12]}; name a run",
        "loop": f"loop/x: in {head[:12]} a link out of the repository; name a run instead",
        "out": f"out/x: in {head[:12]} a link out of the repository; name a run instead",
    }.items():
        with pytest.raises(PolicyError) as caught, commit_folder(tmp_path, head) as commit_:
            commit_.unpack(name)
        assert problem in str(caught.value)
    git(tmp_path, "switch", "--quiet", "--orphan", "other")
    main = find_commit(tmp_path, "main")
    with pytest.raises(PolicyError, match="git merge-base: fatal: Not a valid object name HEAD; "):
        left_at(tmp_path, main, "main")
    commit(tmp_path)
    with pytest.raises(PolicyError, match="main and HEAD have no common commit in this clone; fetch it"):
        left_at(tmp_path, main, "main")
