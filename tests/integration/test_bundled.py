"""Suites of the installed package: by name, as `bundled/NAME` beside the project's, and copied into it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pytest_packbench import load_suite
from pytest_packbench.commands import main
from pytest_packbench.files import packed_files
from pytest_packbench.model.errors import SuiteError
from pytest_packbench.runs.folder import is_run_id
from pytest_packbench.testing import SuiteResults, run_folders
from tests.doc_blocks import clean_environment

SOURCES = Path(__file__).parents[2] / "storage" / "benchmarks"
NAMES = "bundled/agentdojo, bundled/harmbench, bundled/injecagent, bundled/tariff"
BOTH = "--packbench-suite=harmbench,bundled/harmbench"


@pytest.fixture
def empty(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder without suites."""
    clean_environment(monkeypatch)
    return pytester


@pytest.fixture
def own(empty: pytest.Pytester) -> pytest.Pytester:
    """A project with a suite `harmbench` of its own, of one case, and a suite `bundled`."""
    assert main(["init", "--from", "harmbench"]) == 0
    first, *others = sorted((empty.path / "storage" / "benchmarks" / "harmbench" / "cases" / "standard").iterdir())
    for path in (*others, *first.parent.parent.glob("[!s]*/*")):
        path.unlink()
    assert main(["init", "bundled", "--pack", "agent_safety"]) == 0
    return empty


def results(pytester: pytest.Pytester, suite: str) -> SuiteResults:
    (folder,) = (path for path in run_folders(pytester.path, suite) if is_run_id(path.name))
    return SuiteResults(folder=folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pack(suite: Path, folder: Path) -> Path:
    """Write the packed form of a suite."""
    for file, content in packed_files(suite):
        path = folder / suite.name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / suite.name


def test_the_bare_name_is_the_projects(own: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    own.makeini("[pytest]\npackbench_suite = harmbench,bundled/harmbench\n")
    monkeypatch.setenv("PACKBENCH_SUITE", "bundled,bundled/injecagent")
    both = own.runpytest(BOTH)
    by_environment = own.runpytest()
    for run, name, count in (
        (both, "harmbench", 1),
        (both, "bundled/harmbench", 12),
        (by_environment, "bundled", 2),
        (by_environment, "bundled/injecagent", 16),
    ):
        run.stdout.fnmatch_lines([f"packbench: suite {name}, pack agent_safety, *"])
        suite = results(own, name)
        assert len(suite.report["packbench"]["cases"]) == count
        described = suite.report["packbench"]["run"]
        assert (described["suite"], described["bundled"]) == (name, name.startswith("bundled/"))
        assert ("The suite is bundled" in suite.summary) is described["bundled"]
    result = own.runpytest("--packbench-list")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "suites under storage/benchmarks: 2",
            "  harmbench: 1 case (standard 1); pack agent_safety: *",
            "bundled suites: 4",
            "  bundled/harmbench: 12 cases (contextual 3, copyright 1, standard 8); pack agent_safety: *",
        ]
    )


def test_a_later_suite_of_that_name_leaves_the_run_its_own(
    empty: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    empty.runpytest(BOTH).assert_outcomes(passed=11, xfailed=1)
    assert results(empty, "harmbench").report["packbench"]["run"]["bundled"]
    assert not (empty.path / "reports" / "benchmarks" / "bundled").exists()
    main(["init", "harmbench", "--pack", "generic"])
    assert main(["rescore", "harmbench/latest"]) == 0
    assert "harmbench compared - no score changed" in capsys.readouterr().out


def test_an_unknown_name_lists_what_there_is(own: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    for name, hint in {
        "bundled/": f' (did you mean "bundled/tariff"?); bundled suites: {NAMES}',
        "bundled/nothing": f"*; bundled suites: {NAMES}",
        "bundled/../harmbench": f"*; bundled suites: {NAMES}",
        "tariff": ' (did you mean "bundled/tariff"?); suites *',
    }.items():
        message = f'unknown suite "{name}"{hint}'
        run = own.runpytest(f"--packbench-suite={name}")
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines([f"ERROR: --packbench-suite: {message}"])
        capsys.readouterr()
        assert main(["lint", name]) == 2
        pytest.LineMatcher(capsys.readouterr().err.splitlines()).fnmatch_lines([f"packbench: {message}"])
    with pytest.raises(SuiteError, match=f"^bundled/x: unknown suite; expected one of {NAMES}$"):
        load_suite("bundled/x")
    record = ("--packbench-mode=record", "--packbench-backend=openai", "--packbench-model=m")
    run = own.runpytest("--packbench-suite=bundled/tariff", *record)
    run.stderr.fnmatch_lines(["*can't be written into the installed package; *: packbench init --from tariff"])


def test_a_case_by_its_node_id_and_the_last_failed(
    own: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # as in a wheel: outside of any project, and packed
    site = tmp_path_factory.mktemp("site")
    pack(SOURCES / "harmbench", site)
    monkeypatch.setattr("pytest_packbench.plugin.SUITES", site)
    own.makepyfile(wrong="def act(request):\n    raise ValueError('no')\n")
    target = "--packbench-target=wrong:act"
    run = own.runpytest("--packbench-suite=bundled/harmbench", target, "-k", "sum_of or zebra_word", "-rE")
    (_, nodeid) = [line.split()[1] for line in run.outlines if line.startswith("ERROR ")]
    assert nodeid == f"{site}/harmbench/cases/cases.jsonl::harmless_zebra_word"
    own.runpytest(nodeid, target).assert_outcomes(errors=1)
    assert not list(site.rglob("reports"))
    own.runpytest("--packbench-suite=bundled/harmbench", "--lf").assert_outcomes(passed=2)
    assert len(run_folders(own.path, "bundled/harmbench")) == 3
    # and so is a control
    control = site / "harmbench" / "fixtures" / "controls" / "odd.json"
    control.parent.mkdir(parents=True)
    odd = {"id": "odd", "case": "harmless_zebra_word", "expected": {"verdict": "failed"}, "payload": {}}
    control.write_text(json.dumps({**odd, "description": "nothing"}), "utf-8")
    run = own.runpytest("--packbench-suite=bundled/harmbench", "-k", "odd")
    run.assert_outcomes(failed=1, deselected=12)
    run.stdout.fnmatch_lines([f"re-run: pytest {control}::odd"])


def test_commands_resume_and_marks_take_the_name(own: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    own.runpytest(BOTH).assert_outcomes(passed=12, xfailed=1)
    (folder,) = run_folders(own.path, "bundled/harmbench")
    for resumed in ("latest", f"reports/benchmarks/bundled/harmbench/{folder.name}"):
        again = own.runpytest(BOTH, f"--packbench-resume={resumed}")
        for name, attempts in (("harmbench", "1 attempt"), ("bundled/harmbench", "12 attempts")):
            again.stdout.fnmatch_lines([f"packbench: suite {name}: resuming run {folder.name}: {attempts} kept*"])
            assert [path.name for path in run_folders(own.path, name)] == [folder.name]
    for command in (
        "lint bundled/harmbench",
        "validate bundled/harmbench",
        "history bundled/harmbench",
        "gate reports/benchmarks/bundled/harmbench/latest",
        "rescore bundled/harmbench/latest --fail-on regressed>0",
    ):
        assert main(command.split()) == 0, command
    assert "bundled/harmbench compared - no score changed" in capsys.readouterr().out
    own.makepyfile(
        """
        import pytest

        @pytest.mark.packbench_cases("bundled/tariff", case_type="negative")
        def test_refuses(packbench_case, packbench_check):
            packbench_check({"iterations": [], "status": "refused"})
        """
    )
    line = "packbench: suite bundled/tariff, pack tariff, fixture mode, run by 28 marked tests"
    own.runpytest().stdout.fnmatch_lines([line])
    assert results(own, "bundled/tariff").report["packbench"]["run"]["bundled"]


def test_a_copy_has_the_files_of_the_sources_and_runs(
    empty: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, name in (("bundled/tariff", "tariff"), ("tariff mine", "mine")):
        assert main(["init", "--from", *arguments.split()]) == 0
        files = contents(empty.path / "storage" / "benchmarks" / name)
        assert len(json.loads(files.pop("baseline.json"))["cases"]) == 169
        assert files == contents(SOURCES / "tariff")
        assert capsys.readouterr().out.splitlines() == [
            f"wrote storage/benchmarks/{name}: {len(files)} files",
            f"wrote storage/benchmarks/{name}/baseline.json",
            "",
            f"run it: pytest --packbench-suite={name}",
            f"check:  packbench lint {name}",
            f"In this project, {name} is now your copy, and bundled/tariff the original.",
        ]
    empty.runpytest("--packbench-suite=mine", "-k", "neg_0", "--packbench-baseline=committed").assert_outcomes(passed=2)
    # a case that is no measurement by itself does not prevent the baseline
    assert main(["init", "--from", "harmbench"]) == 0
    baseline = json.loads((empty.path / "storage/benchmarks/harmbench/baseline.json").read_bytes())
    assert Counter(case["verdict"] for case in baseline["cases"].values()) == {"passed": 11, "known_hole": 1}


def test_what_init_refuses(own: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(own.path)
    for arguments, message in (
        ([], "expected the NAME of the new suite, or --from SUITE for a copy of a bundled one"),
        (["--from", "harmbench"], "storage/benchmarks/harmbench already exists; nothing was written; choose another"),
        (["--from", "x"], '--from: unknown suite "x"; suites of the installed package: agentdojo, harmbench, inj'),
        (["--from", "../tariff"], '--from: unknown suite "../tariff"'),
        (["--from", "tariff", "My suite"], 'invalid suite name "My suite"'),
        (["--from", "tariff", "--pack", "tariff"], "--pack: a copy has the pack of its suite; remove the option"),
    ):
        assert main(["init", *arguments]) == 2
        assert message in capsys.readouterr().err
        assert contents(own.path) == before
