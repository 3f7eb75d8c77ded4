"""A change of the acceptance policy that is not known to be tighter is one line, whether it is read in files or a commit."""

from __future__ import annotations

import json
import re
import shutil
import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import policy as policies
from pytest_packbench.api import load_suite
from pytest_packbench.cases.finder import CaseLocation, Project
from pytest_packbench.cases.load import read_located
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.report import PolicyError, same
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.registry import Packs
from pytest_packbench.policy import (
    Policy,
    PolicyCase,
    code_hashes,
    commit_folder,
    compare_policy,
    differences,
    find_commit,
    function_modules,
    left_at,
    open_base,
    policy_changes,
    policy_of,
    policy_settings,
    suite_policy,
    text_sha256,
)
from pytest_packbench.testing import case
from tests.integration.policy_repository import commit, git
from tests.unit.run_builders import COMPLETE, data, gate

if TYPE_CHECKING:
    from pathlib import Path

DATA: dict[str, Any] = data("policies.yaml")
RUN = {"mode": "fixture", "target": "toy", "trials": 1}
SHA256 = {"same": "a" * 64, "other": "b" * 64}


def policy(row: dict[str, Any]) -> Policy:
    """Return the policy that a row describes; a case's file is read as the content in the row."""
    given = dict(row)
    if "entry" in given:
        entry = given.pop("entry")
        if isinstance(entry, dict) and isinstance(sha256 := entry.get("sha256"), str):
            entry = {**entry, "sha256": SHA256.get(sha256, sha256)}
        given["baseline"] = {"run": RUN, "cases": {"toy:plain:a": entry}}
    if "case" in given:
        case = given.pop("case")
        whole = {"id": "a", "expected": {"code": "1"}, **case}
        location = CaseLocation(json.dumps(whole), "a")
        given["cases"] = {"a": PolicyCase("cases/a.json", str(sorted(case.items(), key=str)), location)}
    else:
        cases = given.get("cases", {"a": "same"} if "baseline" in given else {})
        given["cases"] = {name: PolicyCase("cases/a.json", SHA256.get(sha, sha)) for name, sha in cases.items()}
    if "settings" in given:
        given["settings"] = {"file": "pytest.ini", **given["settings"]}
    named = ("config", "recordings", "files", "code", "hooks", "suites", "settings", "pipeline")
    return {**{name: {} for name in named}, "baseline": None, **given}


def lines(base: dict[str, Any], now: dict[str, Any]) -> list[str]:
    found = [change.line for change in policy_changes(policy(base), policy(now))]
    return [re.sub(r"sha256:\w+", "sha256:*", line) for line in found]


@pytest.mark.parametrize("name", DATA["changes"])
def test_what_is_not_known_to_be_tighter_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "read_located", lambda location: location.path.encode())
    row = DATA["changes"][name]
    assert lines(row["base"], row["now"]) == row.get("lines", [])
    assert lines(row["base"], row["base"]) == lines(row["now"], row["now"]) == []


def test_a_bound_beyond_all_numbers_is_looser_than_any() -> None:
    beyond, half = ({"config": {"gates": [{"metric": "asr", "max": bound}]}} for bound in (10**400, 0.5))
    assert (lines(beyond, half), len(lines(half, beyond))) == ([], 1)


def test_values_are_compared_part_by_part_and_a_truth_value_is_no_number() -> None:
    old = [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    at: tuple[str | int, ...] = ("x",)
    assert list(differences(old, [old[0], {"id": 2, "v": 7}], at)) == [(("x", 1, "v"), 2, 7)]
    # lists of other lengths or of other values, as a whole
    for other in ([{"id": 0}, *old], old[1:], [], [1, 2], [old[0], 2]):
        assert list(differences(old, other, at)) == [(at, old, other)]
        assert list(differences(other, old, at)) == [(at, other, old)]
    assert list(differences([1, 2], [1, 3], at)) == [(at, [1, 2], [1, 3])]
    assert same({"a": [0, 1.0]}, {"a": [0.0, 1]})
    assert not same([1], [True])
    assert not same({"a": None}, {})


def write(folder: Path, files: dict[str, str | None]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_bytes(text.encode())


def project_at(folder: Path, settings: dict[str, str]) -> Project:
    """Return a project with a hook of an installed package, which is no file of the project."""
    hooks = (str(folder / "env" / "site-packages" / "conftest.py"),)
    return Project(folder, folder / "storage" / "benchmarks", (), policy_settings(settings, (), ""), hooks)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "toy", {**DATA["hidden"], **DATA["files"]})
    return tmp_path / "toy"


def test_each_file_of_a_suite_counts_as_what_it_is(folder: Path) -> None:
    (folder / "gone.csv").symlink_to(folder / "nowhere")
    found = suite_policy(folder)
    assert found["baseline"] == {"cases": {}}
    assert found["files"] == {"tables/t.csv": text_sha256(b"1\n2\n"), "cases/notes.txt": text_sha256(b"no case")}
    cases = found["cases"]
    # of two with one name, the first
    assert list(cases) == ["a", "bad", "list", "m1", "more.line-4"]
    assert [cases[name].sha256 is None for name in ("a", "bad", "list", "m1")] == [False, True, True, False]
    assert (cases["a"].file, cases["m1"].file) == ("cases/a.json", "cases/more.jsonl:2")
    read = [json.loads(read_located(cases[name].location)) for name in ("a", "m1")]
    assert read == [{"id": "a", "input": "x"}, {"id": "m1"}]
    values: dict[str, Any] = {"a": {"case_id": "a", "description": "x"}, "p": {"case_id": "p"}}
    values |= {"controls/c": {"id": "c"}, "controls/d": {"id": "d"}, "controls/all.line-3": []}
    recordings = {name: canonical_sha256(value) for name, value in values.items()}
    assert found["recordings"] == {**recordings, "broken": text_sha256(b"{")}
    (folder / "baseline.json").write_bytes(b"{")
    assert suite_policy(folder)["baseline"] == text_sha256(b"{")


def test_a_run_stores_no_hash_of_a_case_or_of_its_recording(folder: Path) -> None:
    write(folder, {"suite.yaml": RULES})
    suite = load_suite(folder)
    stored = policy_of(suite, Packs()["generic"], project_at(folder.parent, {}))
    assert stored["files"] == {"tables/t.csv": text_sha256(b"1\n2\n")}
    assert stored["recordings"].keys() == {"controls/c", "controls/d", "controls/all.line-3"}
    assert "cases" not in stored
    assert stored["baseline"] == text_sha256(b'{"cases": {}}')
    shutil.rmtree(folder / "fixtures")
    assert policy_of(suite, Packs()["generic"], project_at(folder.parent, {}))["recordings"] == {}


def test_the_code_of_a_suite_is_the_modules_of_its_functions_in_the_project(tmp_path: Path) -> None:
    names = ("one.py", "beside.py", "pack/__init__.py", "pack/a.py", "pack/b.py", "env/site-packages/x.py", "c.so")
    write(tmp_path, dict.fromkeys(names, ""))
    modules = [str(tmp_path / name) for name in ("one.py", "pack/a.py", "env/site-packages/x.py", "c.so")]
    found = code_hashes(tmp_path, [None, *modules, "/elsewhere/m.py"])
    assert list(found) == ["one.py", "pack/__init__.py", "pack/a.py", "pack/b.py"]
    (tmp_path / "__init__.py").touch()
    assert list(code_hashes(tmp_path, modules[:1])) == ["one.py"]
    rules = {
        "scores": [{"function": "my.rules:score"}, ("other:f.g",)],
        "judge": "judges:strict",
        "words": ["a: b", "http://x", "1a:b", "a:b:c"],
        "description": "see:here",
        "target": "pipe:run",
        "guards": ["guards:mine"],
    }
    assert function_modules(rules) == {"my.rules", "other", "judges"}


def test_completeness_is_a_gate_of_each_suite_unless_it_has_one_on_all_cases() -> None:
    rate, groups = gate("pass_rate", min=0.5), gate("completeness", min=0.5, by="difficulty")
    for gates, added in (((), 1), ((rate,), 1), ((groups,), 1), ((gate("completeness", min=0.9),), 0)):
        assert SuiteConfig.model_construct(pack="toy", gates=gates).all_gates() == ((COMPLETE,) * added + gates)


TOY = "storage/benchmarks/toy"
RULES, BY_FUNCTION = (
    f"pack: generic\ncriteria: [{{{criterion}}}]\n" for criterion in ("exact: /a", "python: 'checks_of_base:same'")
)
FUNCTION = "def same(value, expected, case_input):\n    return 1.0\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "checks_of_base", raising=False)
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    write(tmp_path, {f"{TOY}/suite.yaml": RULES, "env/site-packages/conftest.py": "pytest_packbench_target"})
    return tmp_path


def policy_lines(folder: Path, suite: str = TOY, **settings: str) -> list[str]:
    """Compare the policy of a suite with that of the last commit."""
    project = project_at(folder, settings)
    loaded = load_suite(folder / suite)
    pack = Packs()[loaded.config.pack].for_suite(loaded.config)
    outcome = compare_policy(open_base("HEAD", project, folder / "reports"), loaded, pack, project)
    return [*(change.line for change in outcome.changes), *outcome.problems]


@pytest.mark.parametrize("name", DATA["bases"])
def test_a_commit_is_read_as_pytest_would_read_it(repository: Path, name: str) -> None:
    row = DATA["bases"][name]
    texts = {"RULES": RULES, "BY_FUNCTION": BY_FUNCTION, "FUNCTION": FUNCTION}
    for step in ("commit", "since"):
        files = row.get(step, {})
        write(repository, {path.replace("TOY", TOY): texts.get(text, text) for path, text in files.items()})
        if step == "commit":
            commit(repository)
    found, expected = policy_lines(repository, **row.get("settings", {})), row.get("lines", [])
    assert len(found) == len(expected), found
    assert all(map(fnmatchcase, found, expected)), found


def test_functions_of_a_base_are_not_imported(repository: Path) -> None:
    rules = BY_FUNCTION.replace("checks_of_base", "trap_of_base")
    write(repository, {f"{TOY}/suite.yaml": rules, "trap_of_base.py": FUNCTION})
    commit(repository)
    write(repository, {f"{TOY}/suite.yaml": RULES})
    assert "python -> exact" in " ".join(policy_lines(repository))
    assert "trap_of_base" not in sys.modules


def test_a_suite_outside_of_the_root_has_its_folder_in_the_commit(repository: Path) -> None:
    write(repository, {"mine/suite.yaml": RULES})
    commit(repository)
    assert policy_lines(repository, "mine") == []
    write(repository, {"mine/suite.yaml": f"{RULES}thresholds: {{accept: 0.1}}\n"})
    lowered = "threshold changed: suite.yaml: /thresholds/accept: 0.8 -> 0.1"
    assert policy_lines(repository, "mine") == [lowered]


@pytest.mark.parametrize("module", [TOY, f"{TOY}/cases"])
def test_a_submodule_is_read_at_the_commit_that_the_base_names(repository: Path, module: str) -> None:
    inner = repository / module
    written = case("only", pack_id="generic", case_type="plain", input={}, expected={})
    write(repository, {f"{TOY}/cases/plain/only.json": json.dumps(written)})
    git(repository, "init", "--quiet", "--initial-branch=main", module)
    commit(inner)
    commit(repository)
    assert policy_lines(repository) == []
    write(repository, {f"{TOY}/cases/plain/only.json": json.dumps(written | {"difficulty": "hard"})})
    if module == TOY:
        write(repository, {f"{TOY}/suite.yaml": f"{RULES}thresholds: {{accept: 0.1}}\n"})
    commit(inner)
    # a checkout of another commit is a change, committed or not
    lines = policy_lines(repository)
    assert "case changed: cases/plain/only.json: /difficulty (case only): easy -> hard" in lines
    assert len(lines) == 1 + (module == TOY)
    shutil.rmtree(inner / ".git")
    assert policy_lines(repository) == [f"{module}: the submodule is not checked out; run git submodule update --init"]


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
        "sub": "sub/module: the submodule is not checked out; run git submodule update --init",
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
