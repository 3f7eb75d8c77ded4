"""`packbench init`: what it writes, what it refuses, what it prints."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.api import load_suite
from pytest_packbench.commands import UsageError, main
from pytest_packbench.commands.judging import write_first_baseline
from pytest_packbench.packs.registry import Packs
from pytest_packbench.testing import case, write_suite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts

PACKS = """
from pytest_packbench import Answer, Pack, Starter, Tools


class Bare(Pack):
    name, version, answer_model = "bare", "1", Answer

    def terms(self, case, answer, rules):
        return ()


class NeedyTools(Tools):
    def starter(self):
        files = {"suite.yaml": "pack: needy\\ntarget: TARGET_MODULE:f\\n", "cases/a/SUITE_NAME_1.json": "SUITE_NAME"}
        needs = {"no_such_library": "lacking", "no_such_library.part": "lacking", "json": "there"}
        return Starter(suite=files, project={"TARGET_MODULE.py": ""}, needs=needs, takes={"no_such_thing": "more"})


class Needy(Bare):
    def tools(self):
        return NeedyTools()
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # the command adds the folder
    monkeypatch.setattr(sys, "path", [*sys.path])


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("pack", sorted(name for name, pack in Packs().items() if pack.tools().starter() is not None))
def test_a_starter_is_a_whole_suite_without_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: str
) -> None:
    assert main(["init", "2-mine", "--pack", pack]) == 0
    wrote = [line.removeprefix("wrote ") for line in capsys.readouterr().out.splitlines() if line.startswith("wrote ")]
    assert sorted(wrote) == sorted(files(tmp_path))
    folder = tmp_path / "storage" / "benchmarks" / "2-mine"
    rules = load_suite(folder).config
    assert rules.pack == pack
    # with --packbench-gate=suite only a gate judges a score
    assert {gate.metric for gate in rules.gates} & {"pass_rate", "attack_success_rate"}
    assert len(list(folder.glob("cases/*/*.json"))) == 2
    texts = "".join([*wrote, *((tmp_path / name).read_text("utf-8") for name in wrote)])
    assert [placeholder for placeholder in ("SUITE_NAME", "TARGET_MODULE") if placeholder in texts] == []
    assert "pytest --packbench-suite=2-mine" in (folder / "README.md").read_text("utf-8")
    if pack != "tariff":
        assert len((tmp_path / "target_2_mine.py").read_text("utf-8").splitlines()) == 5
    assert main(["lint", "2-mine"]) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings\n"


def test_nothing_is_overwritten_and_a_name_is_that_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("", "../up", "a/b", "My Suite", "-x y", "_x", "é", "a" * 81, "a,b", "a\n", "."):
        assert main(["init", "--", name]) == 2
        error = capsys.readouterr().err
        assert ("invalid suite name" in error, error.count("\n")) == (True, 1)
    assert files(tmp_path) == set()
    for existing in ("target_mine.py", "storage/benchmarks/mine", "storage/benchmarks/mine/cases/a.json"):
        path = tmp_path / existing
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious", encoding="utf-8")
        assert main(["init", "mine"]) == 2
        named = existing.removesuffix("/cases/a.json")
        assert capsys.readouterr().err.startswith(f"packbench: {named} already exists; nothing was written;")
        assert (files(tmp_path), path.read_text("utf-8")) == ({existing}, "precious")
        path.unlink()
    path.parent.rmdir()
    path.parents[1].rmdir()
    for name in ("mine", "a" * 80):
        assert main(["init", name]) == 0


def test_init_prints_what_to_run_next_and_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    (tmp_path / "packs_of_init_test.py").write_text(PACKS, encoding="utf-8")
    text = ""
    for command in (
        "mine",
        "mine-too --root else/where",
        "My-Suite!",
        "other --pack generik",
        "other --pack packs_of_init_test:Bare",
        "needy --pack packs_of_init_test:Needy",
    ):
        main(["init", *command.split()])
        captured = capsys.readouterr()
        text += f"$ packbench init {command}\n{captured.out}{captured.err}\n"
    suite = tmp_path / "storage/benchmarks/needy"
    assert (suite / "cases/a/needy_1.json").read_text("utf-8") == "needy"
    assert (suite / "suite.yaml").read_text("utf-8").endswith("target: target_needy:f\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    assert main(["init", "here"]) == 0
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    capsys.readouterr()
    assert main(["init", "below"]) == 2
    error = capsys.readouterr().err.replace(str(tmp_path), "<FOLDER>")
    expected.check(f"{text}$ packbench init below (below a pytest.ini)\n{error}")


WRONG_TOOLS = [
    ("lint a", "lint", "return 1 / 0", "raised in lint: ZeroDivisionError: division by zero (odd_of_init.py:12)"),
    ("lint a", "lint", "return ['a']", "raised in lint: TypeError: lint() returned ('a',), expected objects of the"),
    ("lint a", "lint", "return 1", "raised in lint: TypeError: lint() returned (1,), expected objects of the class"),
    ("lint a", "tools", "return 1 / 0", "raised in tools: ZeroDivisionError: division by zero (odd_of_init.py:16)"),
    ("lint a", "tools", "return 1", "tools() returned 1, expected an object of Tools"),
    ("init b", "tools", "return 1", "tools() returned 1, expected an object of Tools"),
    ("init b", "starter", "return 1 / 0", "raised in starter: ZeroDivisionError: division by zero (odd_of_init.py:12)"),
    ("init b", "starter", "return 1", "starter() returned 1, expected a Starter, whose suite and project are texts"),
    ("init b", "starter", "return Starter(suite={'a': 1}, project={})", "expected a Starter, whose suite and project"),
    ("init b", "starter", "return Starter(suite={}, project=None)", "expected a Starter, whose suite and project"),
]


@pytest.mark.parametrize(("command", "method", "body", "line"), WRONG_TOOLS)
def test_tools_that_are_wrong_are_one_line(
    command: str,
    method: str,
    body: str,
    line: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bodies = {"tools": "return OddTools()", method: body}
    other = "lint" if method == "tools" else method
    (tmp_path / "odd_of_init.py").write_text(
        f"""from pytest_packbench import Answer, Pack, Starter, Tools


class Bare(Pack):
    name, version, answer_model = "odd", "1", Answer

    def terms(self, case, answer, rules):
        return ()

class OddTools(Tools):
    def {other}(self, *arguments):
        {bodies.get(other, "return ()")}

class Odd(Bare):
    def tools(self):
        {bodies["tools"]}
""",
        encoding="utf-8",
    )
    monkeypatch.delitem(sys.modules, "odd_of_init", raising=False)
    write_suite(tmp_path / "storage" / "benchmarks" / "a", [case("a", pack_id="odd")], pack="odd")
    assert main([*command.split(), "--pack", "odd_of_init:Odd"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert line in err


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("pytest.ini", "storage/benchmarks"),
        ("pyproject.toml", "storage/benchmarks"),
        ("setup.py", "../storage/benchmarks"),
    ],
)
def test_what_init_prints_below_rootdir_works(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    root: str,
) -> None:
    (pytester.path / name).touch()
    inner = pytester.mkdir("inner")
    monkeypatch.chdir(inner)
    assert main(["init", "mine"]) == 2
    assert files(inner) == set()
    capsys.readouterr()
    assert main(["init", "mine", "--root", root]) == 0
    out = capsys.readouterr().out
    ((python, *run), check) = (
        re.findall(rf"^{word} +(.*)$", out, re.MULTILINE)[0].split() for word in ("run it:", "check:")
    )
    assert python == "python"
    assert "2 of 2 controls" in pytester.run(sys.executable, *run).stdout.str()
    assert main(check[1:]) == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "files_before", "said"),
    [
        ("\n", [], ""),
        ("Y\n", [], ""),
        ("No\n", [], "wrote pytest.ini: packbench_record_prompts = no\n"),
        ("n\n", ["pyproject.toml"], "add to the pytest settings in pyproject.toml: packbench_record_prompts = no\n"),
    ],
)
def test_init_asks_in_a_terminal_whether_prompts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, files_before: list[str], said: str
) -> None:
    for name in files_before:
        (tmp_path / name).touch()
    output = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stdout", output)
    assert main(["init", "mine"]) == 0
    printed = output.getvalue()
    assert "Keep prompts in recordings?" in printed
    assert said in printed
    assert ("packbench_record_prompts" in printed) is bool(said)
    is_written = said.startswith("wrote")
    assert (tmp_path / "pytest.ini").exists() is is_written
    if is_written:
        assert (tmp_path / "pytest.ini").read_text("utf-8") == "[pytest]\npackbench_record_prompts = no\n"


ODD = """
from pytest_packbench.packs.generic.pack import GenericPack


class Odd(GenericPack):
    name = "odd"

    def facts(self, *_):
        raise ValueError("none")


def pytest_packbench_packs():
    return [Odd()]
"""


def test_a_first_baseline_is_written_of_cases_that_end_with_a_score_only(tmp_path: Path) -> None:
    assert main(["init", "mine"]) == 0
    root = tmp_path / "storage" / "benchmarks"
    paths = {path: path.read_text("utf-8") for path in (root / "mine" / "cases").glob("*/*.json")}
    (root / "mine" / "baseline.json").unlink()
    next(iter(paths)).write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="column 2: not JSON"):
        write_first_baseline("mine", root)
    for path, text in paths.items():
        path.write_text(text.replace('"generic"', '"odd"'), encoding="utf-8")
    rules = root / "mine" / "suite.yaml"
    rules.write_text(rules.read_text("utf-8").replace("pack: generic", "pack: odd"), encoding="utf-8")
    (tmp_path / "conftest.py").write_text(ODD, encoding="utf-8")
    with pytest.raises(ValueError, match=r"^none$"):
        write_first_baseline("mine", root)
    assert not (root / "mine" / "baseline.json").exists()


def test_what_could_not_be_written_blocks_no_later_init_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original: Any = type(tmp_path).open
    opened: list[str] = []

    def full_disk(path: Path, mode: str = "r", *arguments: object, **options: object) -> object:
        if mode != "xb":
            return original(path, mode, *arguments, **options)
        opened.append(path.as_posix())
        if len(opened) > 1:
            raise OSError(28, "No space left on device")
        return original(path, mode)

    with monkeypatch.context() as context:
        context.setattr(type(tmp_path), "open", full_disk)
        assert main(["init", "fresh"]) != 0
    assert opened[-1] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["init", "fresh"]) == 0
