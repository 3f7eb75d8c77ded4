"""Keys that the answer model of a pack does not have: what a run says of them, and what becomes of an opened suite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main
from pytest_packbench.runs.reading import open_run
from pytest_packbench.testing import case, write_case
from tests.integration.conftest import ended

if TYPE_CHECKING:
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


def test_a_run_tells_once_which_keys_are_unknown_and_what_mends_it(parcels: Project) -> None:
    # each case says its own place
    place = '*result/trace: unknown key "trace"; expected one of zone, notes, refusal*'
    result = ended(run(parcels), 1, place, passed=1, failed=3)
    assert result.stdout.str().count(UNREADABLE) == 1
    folder = parcels.left("parcels")
    for name in ("summary.md", "report.html"):
        text = (folder / name).read_text("utf-8").replace("&#x27;", "'")
        assert text.replace("\\", "").replace("`", "").count(UNREADABLE.replace("`", "")) == 1
    counts = {"results": 3, "passed": 0, "keys": {"/trace": 3, "/more": 2}}
    none = {"results": 0, "passed": 0, "keys": {}}
    assert parcels.document("parcels")["unknown_keys"] == {"unreadable": counts, "ignored": none}
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
    control = {
        "id": "hidden",
        "case": "a",
        "description": "a claim in a key of its own",
        "payload": {"zone": "x", "price": 5},
        "expected": {"verdict": "failed", "score": 0.0, "terms": ["unreadable_answer"]},
    }
    parcels.write("storage/benchmarks/parcels/fixtures/controls/hidden.json", json.dumps(control))
    for number in (1, 2):
        run(parcels, f"--packbench-shard={number}/2", "--packbench-output=shards")
    shards = sorted((parcels.root / "shards" / "parcels").glob("0*"))
    merge = ["merge", *map(str, shards), *root, "--out"]
    main([*merge, str(parcels.root / "merged")])
    # a merged run counts the keys of all its parts
    (summary,) = (parcels.root / "merged").rglob("summary.md")
    assert summary.read_text("utf-8").count("3 results can't be read") == 1
    ended(run(parcels), 1, passed=2, failed=3)
    folder = parcels.left("parcels")
    open_suite(parcels)
    changed = "*scoring rules: * before, * now*"
    ended(
        run(parcels, f"--packbench-baseline={folder}"),
        1,
        changed,
        "*the control did not end as written*",
        failed=1,
        passed=4,
    )
    refused = run(parcels, f"--packbench-resume={folder.name}")
    ended(refused, 4, "*can't be resumed: the suite's scoring rules changed*")
    run(parcels, "--packbench-shard=2/2", "--packbench-output=shards")
    opened = max((parcels.root / "shards" / "parcels").glob("0*"))
    capsys.readouterr()
    assert main(["merge", str(shards[0]), str(opened), *root, "--out", str(parcels.root / "other")]) == 2
    assert "the runs do not belong together: suite_sha256" in capsys.readouterr().err
    assert main(["rescore", str(folder), *root]) == 0
    page = capsys.readouterr().out.replace("\\", "")
    assert "scored with the current rules: scoring rules:" in page
    assert UNREAD.replace("`", "") in page.replace("`", "")
