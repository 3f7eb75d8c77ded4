"""Keys that the answer model of a pack does not have: what a run says of them, and what becomes of an opened suite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main
from pytest_packbench.runs.reading import open_run
from pytest_packbench.testing import case, write_case

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

PACK = """
from typing import Any

from pytest_packbench import Answer, Pack, Term, without_model


class Quote(Answer):
    zone: str | None = None
    notes: dict[str, Any] | None = None
    refusal: str | None = None


class ParcelPack(Pack):
    name = "parcels"
    version = "1"
    answer_model = Quote

    def terms(self, case, answer, rules):
        yield Term(name="zone", value=float(answer.zone == "x"))


@without_model
def quote(request):
    with open("called.txt", "a") as file:
        file.write("called ")
    return {"zone": "x", **request.input}


def pytest_packbench_packs():
    return [ParcelPack()]
"""
RULES = "pack: parcels\ndescription: quotes\ntarget: conftest:quote\n"
OPEN = f"{RULES}unknown_keys: ignore\n"
UNREADABLE = (
    "3 results can't be read and have keys that the answer does not have: /trace (3), /more (2). Put them into a key of "
    "the answer for whatever else a pipeline reports, such as notes, or set `unknown_keys: ignore` in the suite.yaml of a "
    "suite of your own; packbench schema result --pack parcels shows the answer."
)
UNREAD = (
    "The suite has `unknown_keys: ignore`: of 3 results, 3 passed, keys were left unread, in which a claim may hide: "
    "/trace (3), /more (2)."
)


@pytest.fixture
def parcels(project: Project) -> Project:
    """A suite with four cases, three of which get an answer with unknown keys."""
    project.write("conftest.py", PACK)
    folder = project.suite("parcels", RULES)
    for name, more in (("a", {}), ("b", {"trace": 1}), ("c", {"trace": 1, "more": 2}), ("d", {"trace": 1, "more": 2})):
        write_case(folder, case(name, pack_id="parcels", input=more))
    return project


def run(parcels: Project, *options: str) -> pytest.RunResult:
    return parcels.run("--packbench-suite=parcels", *options)


def open_suite(parcels: Project) -> None:
    parcels.write("storage/benchmarks/parcels/suite.yaml", OPEN)


def texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text("utf-8").replace("&#x27;", "'") for name in ("summary.md", "report.html")}


def test_a_run_tells_once_which_keys_are_unknown_and_what_mends_it(parcels: Project) -> None:
    result = run(parcels)
    result.assert_outcomes(passed=1, failed=3)
    assert result.stdout.str().count(UNREADABLE) == 1
    # each case says its own place
    result.stdout.fnmatch_lines(['*result/trace: unknown key "trace"; expected one of zone, notes, refusal*'])
    folder = parcels.left("parcels")
    for text in texts(folder).values():
        assert text.replace("\\", "").replace("`", "").count(UNREADABLE.replace("`", "")) == 1
    counts = {"results": 3, "passed": 0, "keys": {"/trace": 3, "/more": 2}}
    none = {"results": 0, "passed": 0, "keys": {}}
    assert parcels.report("parcels")["packbench"]["unknown_keys"] == {"unreadable": counts, "ignored": none}
    stated = open_run(folder).stated.unknown_keys
    assert stated is not None
    assert (stated.unreadable.results, stated.ignored.keys) == (3, {})


def test_an_opened_suite_lists_what_it_leaves_unread(parcels: Project, capsys: pytest.CaptureFixture[str]) -> None:
    open_suite(parcels)
    result = run(parcels)
    result.assert_outcomes(passed=4)
    assert result.stdout.str().count(UNREAD) == 1
    notes = {
        name: [term["detail"] for term in record["packbench"]["terms"] if term["name"] == "unknown_key"]
        for name, record in parcels.records("parcels").items()
    }
    assert notes == {"a": [], "b": ["/trace"], "c": ["/more", "/trace"], "d": ["/more", "/trace"]}
    # and whoever looks at the run later
    folder = parcels.left("parcels")
    assert main(["report", "--html", str(parcels.root / "page.html"), str(folder)]) == 0
    assert "keys were left unread" in (parcels.root / "page.html").read_text("utf-8")


def test_a_suite_that_is_opened_meanwhile_has_other_rules(parcels: Project, capsys: pytest.CaptureFixture[str]) -> None:
    root = ("--root", str(parcels.root / "storage/benchmarks"))
    run(parcels, "--packbench-shard=1/2", "--packbench-output=one")
    run(parcels)
    folder = parcels.left("parcels")
    open_suite(parcels)
    run(parcels, "--packbench-shard=2/2", "--packbench-output=two")

    refused = run(parcels, "--packbench-resume=latest")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*can't be resumed: the suite's scoring rules changed*"])

    compared = run(parcels, f"--packbench-baseline={folder}")
    assert compared.ret == pytest.ExitCode.TESTS_FAILED
    compared.stdout.fnmatch_lines(["*scoring rules: * before, * now*"])

    (one,), (two,) = (
        [path for path in (parcels.root / name / "parcels").iterdir() if path.is_dir()] for name in ("one", "two")
    )
    capsys.readouterr()
    assert main(["merge", str(one), str(two), *root, "--out", str(parcels.root / "merged")]) == 2
    assert "the runs do not belong together: suite_sha256" in capsys.readouterr().err

    assert main(["rescore", str(folder), *root]) == 0
    page = capsys.readouterr().out.replace("\\", "")
    assert "scored with the current rules: scoring rules:" in page
    assert UNREAD.replace("`", "") in page.replace("`", "")


def test_a_merged_run_counts_the_keys_of_all_its_parts(parcels: Project, capsys: pytest.CaptureFixture[str]) -> None:
    folders = []
    for number in (1, 2):
        run(parcels, f"--packbench-shard={number}/2", f"--packbench-output=part{number}")
        folders += [path for path in (parcels.root / f"part{number}" / "parcels").iterdir() if path.is_dir()]
    root, out = parcels.root / "storage/benchmarks", parcels.root / "merged"
    main(["merge", *map(str, folders), "--root", str(root), "--out", str(out)])
    (report,) = out.rglob("report.json")
    counted = json.loads(report.read_text("utf-8"))["packbench"]["unknown_keys"]["unreadable"]
    assert counted == {"results": 3, "passed": 0, "keys": {"/trace": 3, "/more": 2}}
    (summary,) = out.rglob("summary.md")
    assert summary.read_text("utf-8").count("3 results can't be read") == 1


def test_a_control_whose_flaw_is_an_unknown_key_deviates_in_an_opened_suite(parcels: Project) -> None:
    control = {
        "id": "hidden",
        "case": "a",
        "description": "a claim in a key of its own",
        "payload": {"zone": "x", "price": 5},
        "expected": {"verdict": "failed", "score": 0.0, "terms": ["unreadable_answer"]},
    }
    parcels.write("storage/benchmarks/parcels/fixtures/controls/hidden.json", json.dumps(control))
    run(parcels).assert_outcomes(passed=2, failed=3)
    open_suite(parcels)
    opened = run(parcels)
    opened.assert_outcomes(passed=4, failed=1)
    opened.stdout.fnmatch_lines(["*the control did not end as written*"])
