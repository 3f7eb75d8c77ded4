"""Suites of the installed package: by name, as `bundled/NAME` beside the project's, and copied into it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_packbench import load_suite
from pytest_packbench.cases.packed import packed_files
from pytest_packbench.cli import main
from pytest_packbench.model.errors import SuiteError
from pytest_packbench.plugin import SUITES
from pytest_packbench.runs.folder import is_run_id
from pytest_packbench.testing import SuiteResults, run_folders

if TYPE_CHECKING:
    from pathlib import Path

NAMES = "bundled/agentdojo, bundled/harmbench, bundled/injecagent, bundled/tariff"


@pytest.fixture
def empty(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder without suites."""
    for name in [name for name in os.environ if name.startswith(("PACKBENCH_", "GITHUB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "240")
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


@pytest.mark.parametrize(
    ("requested", "ran"),
    [
        ("harmbench", {"harmbench": 1}),
        ("bundled/harmbench", {"bundled/harmbench": 12}),
        ("harmbench,bundled/harmbench", {"harmbench": 1, "bundled/harmbench": 12}),
        ("bundled", {"bundled": 2}),
        ("bundled,bundled/injecagent", {"bundled": 2, "bundled/injecagent": 16}),
    ],
)
def test_the_bare_name_is_the_projects(own: pytest.Pytester, requested: str, ran: dict[str, int]) -> None:
    run = own.runpytest(f"--packbench-suite={requested}")
    for name, count in ran.items():
        run.stdout.fnmatch_lines([f"packbench: suite {name}, pack agent_safety, *"])
        found = results(own, name)
        assert len(found.report["packbench"]["cases"]) == count
        described = found.report["packbench"]["run"]
        assert (described["suite"], described["bundled"]) == (name, name.startswith("bundled/"))
        assert ("The suite is bundled" in found.summary) is described["bundled"]


def test_records_of_a_bundled_suite_are_those_of_its_copy(empty: pytest.Pytester) -> None:
    main(["init", "--from", "harmbench"])
    empty.runpytest("--packbench-suite=harmbench,bundled/harmbench")
    assert main(["compare", "--baseline", "bundled/harmbench/latest", "--current", "harmbench/latest"]) == 0
    of_copy, of_bundled = (
        [
            {key: record[key] for key in ("test_id", "test_suite", "passed")} | {"file": record["packbench"]["file"]}
            for record in results(empty, name).records
        ]
        for name in ("harmbench", "bundled/harmbench")
    )
    assert [record.pop("file").replace("storage/benchmarks/", "bundled:") for record in of_copy] == [
        record.pop("file") for record in of_bundled
    ]
    assert of_copy == of_bundled


@pytest.mark.parametrize("requested", ["harmbench", "bundled/harmbench", "harmbench,bundled/harmbench"])
def test_without_suites_of_its_own_a_project_has_the_bundled_ones(empty: pytest.Pytester, requested: str) -> None:
    run = empty.runpytest(f"--packbench-suite={requested}")
    run.assert_outcomes(passed=11, xfailed=1)
    run.stdout.fnmatch_lines(["packbench: suite harmbench (bundled), pack agent_safety, *"])
    assert results(empty, "harmbench").report["packbench"]["run"]["bundled"]
    assert not (empty.path / "reports" / "benchmarks" / "bundled").exists()


@pytest.mark.parametrize("source", ["ini", "environment"])
def test_by_ini_and_environment(own: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    if source == "ini":
        own.makeini("[pytest]\npackbench_suite = bundled/harmbench\n")
    else:
        monkeypatch.setenv("PACKBENCH_SUITE", "bundled/harmbench")
    own.runpytest().assert_outcomes(passed=11, xfailed=1)


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        ("bundled/", f'unknown suite "bundled/" (did you mean "bundled/tariff"?); bundled suites: {NAMES}'),
        ("bundled/nothing", f'unknown suite "bundled/nothing"*; bundled suites: {NAMES}'),
        ("bundled/../harmbench", f'unknown suite "bundled/../harmbench"*; bundled suites: {NAMES}'),
        (
            "tariff",
            'unknown suite "tariff" (did you mean "bundled/tariff", which is part of the installed package?); suites *',
        ),
    ],
)
def test_an_unknown_name_lists_what_there_is(
    own: pytest.Pytester, capsys: pytest.CaptureFixture[str], requested: str, said: str
) -> None:
    run = own.runpytest(f"--packbench-suite={requested}")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines([f"ERROR: --packbench-suite: {said}"])
    capsys.readouterr()
    assert main(["lint", requested]) == 2
    pytest.LineMatcher(capsys.readouterr().err.splitlines()).fnmatch_lines([f"packbench: {said}"])


def test_the_list_has_both(own: pytest.Pytester) -> None:
    run = own.runpytest("--packbench-list")
    assert run.ret == 0
    run.stdout.fnmatch_lines(
        [
            "suites under storage/benchmarks: 2",
            "  harmbench: 1 case (standard 1); pack agent_safety: *",
            "bundled suites: 4",
            "  bundled/harmbench: 12 cases (contextual 3, copyright 1, standard 8); pack agent_safety: *",
        ]
    )


def test_a_case_by_its_node_id_and_the_last_failed(
    own: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # as in a wheel: outside of any project, and packed
    site = tmp_path_factory.mktemp("site")
    pack(SUITES / "harmbench", site)
    monkeypatch.setattr("pytest_packbench.plugin.SUITES", site)
    own.makepyfile(wrong="def act(request):\n    raise ValueError('no')\n")
    target = "--packbench-target=wrong:act"
    run = own.runpytest("--packbench-suite=bundled/harmbench", target, "-k", "sum_of or zebra_word", "-rE")
    (_, nodeid) = [line.split()[1] for line in run.outlines if line.startswith("ERROR ")]
    assert nodeid == f"{site}/harmbench/cases/standard/cases.jsonl::harmless_zebra_word"
    own.runpytest(nodeid, target).assert_outcomes(errors=1)
    assert not list(site.rglob("reports"))
    own.runpytest("--packbench-suite=bundled/harmbench", "--lf").assert_outcomes(passed=2)
    assert len(run_folders(own.path, "bundled/harmbench")) == 3


@pytest.mark.parametrize("resumed", ["latest", "reports/benchmarks/bundled/harmbench/{run}"])
def test_a_run_is_resumed(own: pytest.Pytester, resumed: str) -> None:
    both = "--packbench-suite=harmbench,bundled/harmbench"
    own.runpytest(both).assert_outcomes(passed=12, xfailed=1)
    (folder,) = run_folders(own.path, "bundled/harmbench")
    again = own.runpytest(both, f"--packbench-resume={resumed.format(run=folder.name)}")
    for name, kept in (("harmbench", "1 attempt"), ("bundled/harmbench", "12 attempts")):
        again.stdout.fnmatch_lines([f"packbench: suite {name}: resuming run {folder.name}: {kept} kept*"])
        assert [path.name for path in run_folders(own.path, name)] == [folder.name]


def test_recording_into_one_is_refused(own: pytest.Pytester) -> None:
    live = ("--packbench-mode=record", "--packbench-backend=openai", "--packbench-model=m")
    run = own.runpytest("--packbench-suite=bundled/tariff", *live)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines(["*can't be written into the installed package; *: packbench init --from tariff"])


def test_a_marked_test_runs_one(own: pytest.Pytester) -> None:
    own.makepyfile(
        """
        import pytest

        @pytest.mark.packbench_cases("bundled/tariff", case_type="negative")
        def test_refuses(packbench_case, packbench_check):
            packbench_check({"iterations": [], "status": "refused"})
        """
    )
    run = own.runpytest()
    run.stdout.fnmatch_lines(["packbench: suite bundled/tariff, pack tariff, fixture mode, run by 30 marked tests"])
    assert results(own, "bundled/tariff").report["packbench"]["run"]["bundled"]


def test_commands_take_the_name(own: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    own.runpytest("--packbench-suite=bundled/harmbench")
    for command in (
        ["lint", "bundled/harmbench"],
        ["validate", "bundled/harmbench"],
        ["history", "bundled/harmbench"],
        ["gate", "reports/benchmarks/bundled/harmbench/latest"],
        ["rescore", "bundled/harmbench/latest", "--fail-on", "regressed>0"],
    ):
        assert main(command) == 0, command
    assert "bundled/harmbench compared - no score changed" in capsys.readouterr().out


def test_a_run_of_before_the_project_had_suites_is_rescored_by_the_bundled_one(
    empty: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    empty.runpytest("--packbench-suite=harmbench")
    main(["init", "harmbench", "--pack", "generic"])
    assert main(["rescore", "harmbench/latest"]) == 0
    said = capsys.readouterr()
    assert "harmbench compared - no score changed" in said.out
    assert "not rescored" not in said.err


def test_a_script_loads_one() -> None:
    suite = load_suite("bundled/tariff")
    assert (suite.name, suite.record_name, suite.bundled) == ("bundled/tariff", "tariff", True)
    with pytest.raises(SuiteError, match=f"^bundled/x: unknown suite; expected one of {NAMES}$"):
        load_suite("bundled/x")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(["tariff"], "tariff"), (["bundled/tariff"], "tariff"), (["tariff", "mine"], "mine")],
)
def test_a_copy_has_the_files_of_the_sources(
    empty: pytest.Pytester, capsys: pytest.CaptureFixture[str], arguments: list[str], name: str
) -> None:
    assert main(["init", "--from", *arguments]) == 0
    folder = empty.path / "storage" / "benchmarks" / name
    assert contents(folder) == contents(SUITES / "tariff")
    assert capsys.readouterr().out.splitlines() == [
        f"wrote storage/benchmarks/{name}: suite.yaml, 169 cases, 169 recordings",
        "",
        f"run it: pytest --packbench-suite={name}",
        f"check:  packbench lint {name}",
        f"In this project, {name} is now your copy, and bundled/tariff the original.",
    ]


def test_a_copy_runs_on_its_recordings(empty: pytest.Pytester) -> None:
    main(["init", "--from", "tariff", "mine"])
    empty.runpytest("--packbench-suite=mine", "-k", "neg_0").assert_outcomes(passed=2)
    assert main(["lint", "mine"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected the NAME of the new suite, or --from SUITE for a copy of a bundled one"),
        (["--from", "harmbench"], "storage/benchmarks/harmbench already exists; nothing was written; choose another"),
        (["--from", "x"], '--from: unknown suite "x"; suites of the installed package: agentdojo, harmbench, inj'),
        (["--from", "../tariff"], '--from: unknown suite "../tariff"'),
        (["--from", "tariff", "My suite"], 'invalid suite name "My suite"'),
        (["--from", "tariff", "--pack", "tariff"], "--pack: a copy has the pack of its suite; remove the option"),
    ],
)
def test_what_init_refuses(
    own: pytest.Pytester, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    before = contents(own.path)
    assert main(["init", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert contents(own.path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pack(suite: Path, folder: Path) -> Path:
    """Write the packed form of a suite."""
    for file, content in packed_files(suite):
        path = folder / suite.name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / suite.name
