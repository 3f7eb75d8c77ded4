"""Shards and runs joined: the whole comes out, whatever was cut, and nothing else is let in."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.runs.merge import MergeError, merged_run, shards_of
from pytest_packbench.runs.stored import load_run
from tests.unit.run_builders import case_result, run
from tests.unit.stored_runs import any_results, content, merge, run_of, suite, write

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def folders_of(output: Path, root: Path, parts: list[list[CaseResult]], **changes: Any) -> list[Path]:
    """Each part as one shard of a run."""
    found = []
    for number, part in enumerate(parts, start=1):
        shard = {"settings": {"gate": "case", "shard": f"{number}/{len(parts)}"}, "run_id": f"01SHARD{number}"}
        found.append(write(output, run_of(root, **{**shard, **changes}), part, root))
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


@QUICK
@given(
    entries=any_results(trials=True),
    count=st.integers(1, 4),
    chance=st.randoms(use_true_random=False),
)
def test_a_run_cut_at_random_is_merged_to_the_whole_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, entries: list[CaseResult], count: int, chance: random.Random
) -> None:
    place = tmp_path_factory.mktemp("merge")
    case_ids = sorted({each.case_id for each in entries})
    root = suite(place, case_ids)
    shard = {case_id: chance.randrange(count) for case_id in case_ids}
    parts = [[each for each in entries if shard[each.case_id] == number] for number in range(count)]
    idle = {each.case_id for each in entries if each.verdict == "not_run" and not each.quarantined}
    partial = f"{len(idle)} of {len(case_ids)} cases did not run" if idle else ""
    whole = write(place / "whole", run_of(root, partial=partial), entries, root)
    folders = folders_of(place / "out", root, parts)
    code, merged, said = merge(place / "out", root, folders)
    assert merged is not None, said
    assert content(merged) == content(whole)
    assert code == (0 if content(whole)["report"]["status"] == "passed" else 1)
    loaded, expected = load_run(merged), load_run(whole)
    assert (loaded.results, loaded.status) == (expected.results, expected.status)
    assert loaded.run.settings["merged_from"] == [folder.name for folder in folders]
    chance.shuffle(folders)
    again, other, _ = merge(place / "out", root, folders)
    assert other is not None
    assert (again, content(other)) == (code, content(merged))


def results_of(*case_ids: str, verdict: str = "passed", **changes: Any) -> list[CaseResult]:
    return [case_result(case_id, verdict, **changes) for case_id in case_ids]


def refusal_message(place: Path, root: Path, folders: list[Path], *options: str) -> str:
    """The one line of a merge that is refused; nothing is left of it."""
    before = sorted((place / "out").rglob("*"))
    code, merged, said = merge(place / "out", root, folders, *options)
    assert (code, merged) == (2, None)
    assert said.startswith("packbench: ")
    assert said.count("\n") == 1
    assert [path for path in sorted((place / "out").rglob("*")) if path.name != ".gitignore"] == before
    return said


def test_missing_shards_are_named(place: Path) -> None:
    root = suite(place, "abc")
    first, _, third, _ = folders_of(place / "out", root, [results_of("a"), results_of("b"), results_of("c"), []])
    said = refusal_message(place, root, [first, third])
    assert "2 of 4 shards missing: 2/4, 4/4; add them, or pass --allow-missing" in said


def test_missing_shards_that_are_allowed_fail_completeness(place: Path) -> None:
    root = suite(place, "abc")
    first, *_ = folders_of(place / "out", root, [results_of("a"), results_of("b", "c")])
    code, merged, said = merge(place / "out", root, [first], "--allow-missing")
    assert code == 1
    assert merged is not None
    assert "completeness 1 / 3 = 33.3 % < min 100.0 %" in said
    told = load_run(merged)
    assert told.run.partial == (
        "1 of 2 shards not merged (2/2); 2 of 3 cases did not run; 2 of 3 cases are in none of the runs: b, c"
    )
    assert [(each.case_id, each.verdict, each.kind) for each in told.results if each.case_id != "a"] == [
        ("b", "not_run", "shard_missing"),
        ("c", "not_run", "shard_missing"),
    ]
    assert not (merged.parent / "latest").exists()


def test_a_case_of_several_trials_that_did_not_run_is_one_case(place: Path) -> None:
    root = suite(place, "abcd")
    ran = [each for trial in range(3) for each in results_of("a", "b", trial=trial)]
    stopped = [each for trial in range(3) for each in results_of("c", "d", verdict="not_run", trial=trial)]
    code, merged, _ = merge(place / "out", root, folders_of(place / "out", root, [ran, stopped]))
    assert code == 1
    assert merged is not None
    assert load_run(merged).run.partial == "2 of 4 cases did not run"


def test_a_case_that_no_shard_has_counts_against_completeness(place: Path) -> None:
    root = suite(place, "abc")
    code, merged, said = merge(place / "out", root, folders_of(place / "out", root, [results_of("a"), results_of("c")]))
    assert code == 1
    assert merged is not None
    assert "completeness 2 / 3" in said
    errors = [json.loads(line) for line in (merged / "errors.jsonl").read_text("utf-8").splitlines()]
    assert [(line["test_id"].rpartition(":")[2], line["kind"], line["run_id"]) for line in errors] == [
        ("b", "in_no_shard", merged.name)
    ]


def test_cases_in_a_file_of_many_are_known_too(place: Path) -> None:
    root = suite(place)
    cases = [
        {"id": name, "pack_id": "generic", "case_type": "odd", "difficulty": "hard", "input": {}, "expected": {}}
        for name in "ab"
    ]
    many = root / "toy" / "cases" / "many.jsonl"
    many.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    code, merged, _ = merge(place / "out", root, folders_of(place / "out", root, [results_of("a"), []]))
    assert code == 1
    assert merged is not None
    (lost,) = [each for each in load_run(merged).results if each.verdict == "not_run"]
    assert (lost.case_id, lost.case_type, lost.difficulty, lost.kind) == ("b", "odd", "hard", "in_no_shard")
    assert lost.file.endswith("cases/many.jsonl:2")
    assert lost.nodeid.endswith("cases/many.jsonl::b")


def test_an_empty_shard_is_complete(place: Path) -> None:
    root = suite(place, "a")
    code, merged, _ = merge(place / "out", root, folders_of(place / "out", root, [[], results_of("a"), []]))
    assert code == 0
    assert merged is not None
    assert (merged.parent / "latest").read_text("utf-8") == f"{merged.name}\n"


def test_a_case_in_two_shards_is_named_with_both(place: Path) -> None:
    root = suite(place, "ab")
    folders = folders_of(place / "out", root, [results_of("a"), results_of("a", "b", verdict="not_run")])
    said = refusal_message(place, root, folders)
    assert "toy:plain:a is in run 01SHARD1 (shard 1/2) and in run 01SHARD2 (shard 2/2)" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mode": "live"}, 'mode is "fixture" in run A and 1 more, "live" in run Z'),
        ({"target": "mine:act"}, "target is"),
        ({"suite_sha256": "cd" * 32}, "suite_sha256 is"),
        ({"pack_version": "9"}, "pack_version is"),
        ({"model": "m-2"}, 'model is null in run A and 1 more, "m-2" in run Z'),
        ({"settings": {"gate": "suite"}}, 'settings.gate is "case"'),
        ({"settings": {"gate": "case", "trials": 3}}, "settings.trials is null"),
        ({"run_id": "A"}, "run A is passed twice"),
        ({"run_id": "A", "suite": "b"}, 'suite is "b" in run A, "toy" in run A and 1 more'),
    ],
)
def test_runs_of_different_kinds_do_not_belong_together(changes: dict[str, Any], said: str) -> None:
    others = [run(run_id="A"), run(run_id="B")]
    with pytest.raises(MergeError) as caught:
        merged_run([*others, run(**{"run_id": "Z", **changes})], "NEW")
    assert said in str(caught.value)


def joined_target(*targets: str) -> str:
    return merged_run([run(run_id=str(number), target=target) for number, target in enumerate(targets)], "N").target


def test_tests_of_the_users_own_are_joined() -> None:
    assert joined_target("test:t.py::b", "test:t.py::a, test:t.py::b") == "test:t.py::a, test:t.py::b"
    assert joined_target("mine:act, test:b", "mine:act, test:a", "mine:act") == "mine:act, test:a, test:b"
    assert joined_target("cmd:run a, b", "cmd:run a, b") == "cmd:run a, b"
    with pytest.raises(MergeError, match='target is "test:a" in run 0, "mine:act, test:a" in run 1'):
        joined_target("test:a", "mine:act, test:a")


@pytest.mark.parametrize(
    ("shards", "said"),
    [
        (["1/2", None], "run 0 is shard 1/2, but run 1 is not a shard"),
        ([None, "1/2"], "run 1 is shard 1/2, but run 0 is not a shard"),
        (["1/2", "2/3"], "shard counts differ: 1/2 (run 0), 2/3 (run 1)"),
        (["2/2", "2/2"], "shard 2/2 is passed twice: run 0, run 1"),
        (["3/2"], "settings.shard: got '3/2'; expected I/N"),
        (["0/2"], "got '0/2'"),
        ([1], "got 1"),
        (["1/2x"], "got '1/2x'"),
    ],
)
def test_what_is_no_set_of_shards(shards: list[Any], said: str) -> None:
    runs = [
        run(run_id=str(number), settings={} if shard is None else {"shard": shard})
        for number, shard in enumerate(shards)
    ]
    with pytest.raises(MergeError) as caught:
        shards_of(runs)
    assert said in str(caught.value)


def test_versions_that_differ_are_all_told() -> None:
    merged = merged_run(
        [run(run_id="B", versions={"python": "3.12"}), run(run_id="A", versions={"python": "3.11"})], "N"
    )
    assert merged.versions == {"python": "3.11, 3.12"}


def spending(calls: int, cost: float | None, currency: str = "USD") -> dict[str, Any]:
    return {"calls": calls, "tokens": 10 * calls, "uncounted": 0, "cost": cost, "currency": currency}


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ([spending(1, 0.5), spending(2, 0.25)], spending(3, 0.75)),
        ([spending(1, 0.5), spending(2, None)], spending(3, None)),
        ([spending(1, 0.5), spending(2, 0.5, "EUR")], {**spending(3, None), "currency": None}),
        ([spending(1, 0.5), {**spending(2, 0.5), "currency": ["odd"]}], {**spending(3, None), "currency": None}),
        ([spending(1, 0.5), {**spending(2, 0.5), "cached": 4}], {**spending(3, 1.0), "cached": 4}),
        (
            [spending(1, 0.5), {key: value for key, value in spending(2, 0.5).items() if key != "cost"}],
            spending(3, None),
        ),
    ],
)
def test_what_was_spent_is_added_up(parts: list[dict[str, Any]], total: dict[str, Any]) -> None:
    runs = [run(run_id=str(number), settings={"spent": part}) for number, part in enumerate(parts)]
    for order in (runs, runs[::-1]):
        assert merged_run(order, "N").settings == {"spent": total, "merged_from": ["0", "1"]}


def test_how_runs_were_driven_may_differ() -> None:
    runs = [run(run_id=str(number), settings={"concurrency": number, "max_tokens": 9}) for number in range(2)]
    assert merged_run(runs, "N").settings == {"max_tokens": 9, "merged_from": ["0", "1"]}


def test_a_shard_without_a_case_is_not_asked_who_answered(place: Path) -> None:
    root = suite(place, "a")
    live: dict[str, Any] = {"mode": "live", "backend": "openai", "model": "m-1", "target": "mine:act"}
    told = run_of(root, **live, run_id="Z", settings={"shard": "2/2", "temperature": 0.5})
    bare = run_of(root, mode="live", target="unknown", run_id="A", settings={"shard": "1/2"})
    folders = [write(place / "out", bare, [], root), write(place / "out", told, results_of("a"), root)]
    code, merged, _ = merge(place / "out", root, folders)
    assert code == 0
    assert merged is not None
    found = load_run(merged).run
    assert {name: getattr(found, name) for name in live} == live
    assert found.settings == {"temperature": 0.5, "merged_from": ["A", "Z"]}


def test_an_attempt_that_ran_counts_where_another_run_did_not_get_to_it(place: Path) -> None:
    root = suite(place, "ab")
    stopped = write(
        place / "out", run_of(root, run_id="A"), [*results_of("a"), *results_of("b", verdict="not_run")], root
    )
    rest = write(place / "out", run_of(root, run_id="B"), results_of("b"), root)
    code, merged, _ = merge(place / "out", root, [stopped, rest])
    assert code == 0
    assert merged is not None
    assert [each.verdict for each in load_run(merged).results] == ["passed", "passed"]


def test_cases_that_no_run_has_make_a_merge_partial(place: Path) -> None:
    root = suite(place, "abcdefgh")
    one = write(place / "out", run_of(root), results_of("a"), root)
    code, merged, said = merge(place / "out", root, [one])
    assert code == 1
    assert "7 of 8 cases are in none of the runs: b, c, d, e, f ..." in said
    assert merged is not None


def replace_in_file(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "records.jsonl",
            '"test_id":"toy:plain:a"',
            '"test_id":"toy:plain:x"',
            "the record of toy:plain:a is missing or out of order",
        ),
        ("records.jsonl", '"trial":0', '"trial":"0"', "records.jsonl:1: packbench.trial: got '0'"),
        ("records.jsonl", '{"schema', "{schema", "records.jsonl:1: not JSON"),
        (
            "payloads.jsonl",
            '"test_id":"toy:plain:b"',
            '"test_id":"toy:plain:y"',
            "payloads.jsonl:2: toy:plain:y is out of order",
        ),
        ("payloads.jsonl", '"trial":0', '"trial":-1', "payloads.jsonl:1: trial: got -1"),
        ("report.json", '"score": 1.0', '"score": "1"', "/packbench/cases/0/score: not a run document: got '1'"),
        ("report.json", '"case_id": "a"', '"case_id": "z"', "follows"),
        ("report.json", '"version": 1', '"version": true', "/packbench/version: got True"),
        ("report.json", '"python": "3.11.0"', '"python": 3.11', "/packbench/run/versions/python: not a run document"),
    ],
)
def test_a_damaged_run_is_refused_and_leaves_nothing(place: Path, name: str, old: str, new: str, said: str) -> None:
    root = suite(place, "ab")
    folder = write(place / "out", run_of(root), results_of("a", "b"), root)
    replace_in_file(folder / name, old, new)
    assert said in refusal_message(place, root, [folder])


def test_a_run_that_did_not_end_says_so(place: Path) -> None:
    root = suite(place, "a")
    folder = place / "out" / "toy" / "KILLED"
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").touch()
    assert "contains no report.json: the run did not end" in refusal_message(place, root, [folder])


@pytest.mark.parametrize("most", [min, max], ids=["smallest", "largest"])
def test_a_merge_on_a_full_disk_leaves_nothing(place: Path, most: Callable[[Iterable[int]], int]) -> None:
    root = suite(place, "a")
    folder = write(place / "out", run_of(root), results_of("a"), root)
    _, merged, said = merge(place / "elsewhere", root, [folder])
    assert merged is not None, said
    # a disk on which one file of the merged run is a byte too long, whatever the files hold
    room = most(size for path in merged.iterdir() if (size := path.stat().st_size)) - 1
    before = sorted((place / "out").rglob("*"))
    # the system refuses to let a file grow, as where the disk is full
    code = (
        "import resource, sys; from pytest_packbench.cli import main;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["merge", str(folder), "--root", str(root), "--output", str(place / "out")]
    # -B: byte code cut at the limit would break whoever imports it next
    command = [sys.executable, "-B", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"packbench: the merged run can't be written to {place / 'out' / 'toy'}")
    assert done.stderr.count("\n") == 1
    assert [path for path in sorted((place / "out").rglob("*")) if path.name != ".gitignore"] == before


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_file_is_no_folder_for_reports(place: Path, below: str) -> None:
    root = suite(place, "a")
    folder = write(place / "out", run_of(root), results_of("a"), root)
    (place / "file").touch()
    code, _, said = merge(place / "file" / below, root, [folder])
    assert code == 2
    assert said == f"packbench: --output: {place / 'file'} is not a folder; expected a folder, or a new name\n"


def test_gates_may_ask_for_a_baseline(place: Path) -> None:
    root = suite(place, "ab")
    rules = root / "toy" / "suite.yaml"
    rules.write_text(
        rules.read_text("utf-8") + "  - {metric: over_refusal_rate, max_ratio_to_baseline: 0.5}\n", "utf-8"
    )
    same = {"case_sha256": "ab" * 32}
    before = write(place / "out", run_of(root, run_id="A"), results_of("a", "b", refused=True, **same), root)
    folders = folders_of(place / "out", root, [results_of("a", **same), results_of("b", refused=True, **same)])
    code, _, said = merge(place / "out", root, folders)
    assert code == 1
    assert "no baseline" in said
    code, _, said = merge(place / "out", root, folders, "--baseline", str(before))
    assert "0.50 x the baseline's" in said
    assert "in both runs" not in said
    assert code == 0
    changed = folders_of(
        place / "out", root, [results_of("a", case_sha256="cd" * 32), results_of("b", refused=True, **same)]
    )
    _, _, said = merge(place / "out", root, changed, "--baseline", str(before))
    # a case that has changed since is not compared
    assert "over the 1 case in both runs" in said


def test_more_cases_than_a_page_shows_keep_their_figures(place: Path) -> None:
    names = [f"c{number:03}" for number in range(2 * MAX_ROWS + 20)]
    root = suite(place, names)
    term = ({"name": "points", "effect": "add", "value": 0.25, "detail": "why"},)
    found = [
        case_result(name, "failed" if number % 2 else "error", message=f"m{number}", terms=term if number % 2 else ())
        for number, name in enumerate(names)
    ]
    whole = write(place / "whole", run_of(root), found, root)
    _, merged, _ = merge(place / "out", root, folders_of(place / "out", root, [found[:9], found[9:]]))
    assert merged is not None
    assert content(merged) == content(whole)
    assert f"{MAX_ROWS} of {len(found)} shown" in content(merged)["page"]
    assert [replace(each, timestamp="") for each in load_run(merged).results] == list(load_run(whole).results)
