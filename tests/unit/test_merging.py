"""Merging shards and runs: the whole comes out however it was cut, and nothing else is let in."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.runs.merge import MergeError, merged_run, shards_of
from pytest_packbench.runs.stored import load_run
from pytest_packbench.testing import case
from tests.unit.run_builders import any_results, case_result, data, run
from tests.unit.stored_runs import GATES, content, merge, read_jsonl, run_of, suite, write, write_jsonl

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.runs.stored import StoredRun
    from tests.conftest import ExpectedTexts


MERGES = data("merges.yaml")


def write_shards(output: Path, root: Path, *shards: list[CaseResult]) -> list[Path]:
    return [
        write(
            output,
            run_of(root, run_id=f"01SHARD{number}", settings={"gate": "case", "shard": f"{number}/{len(shards)}"}),
            results,
            root,
        )
        for number, results in enumerate(shards, start=1)
    ]


def results_of(*case_ids: str, verdict: str = "passed", **changes: Any) -> list[CaseResult]:
    return [case_result(case_id, verdict, **changes) for case_id in case_ids]


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name != ".gitignore")


def merged_of(folder: Path, root: Path, runs: list[Path], *options: str) -> tuple[int, StoredRun, str]:
    code, merged, output = merge(folder / "out", root, runs, *options)
    assert merged is not None, output
    return code, load_run(merged), output


@settings(max_examples=10)
@given(results=any_results(trials=True), count=st.integers(1, 4), chance=st.randoms(use_true_random=False))
def test_a_run_cut_at_random_is_merged_to_the_whole_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, results: list[CaseResult], count: int, chance: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    case_ids = sorted({result.case_id for result in results})
    root = suite(folder, case_ids)
    shard_of = {case_id: chance.randrange(count) for case_id in case_ids}
    shards = [[result for result in results if shard_of[result.case_id] == number] for number in range(count)]
    idle = {result.case_id for result in results if result.verdict == "not_run" and not result.quarantined}
    partial = f"{len(idle)} of {len(case_ids)} cases did not run" if idle else ""
    whole = write(folder / "whole", run_of(root, partial=partial), results, root)
    folders = write_shards(folder / "out", root, *shards)
    code, merged, output = merge(folder / "out", root, folders)
    assert merged is not None, output
    assert content(merged) == content(whole)
    assert code == (0 if content(whole)["report"]["status"] == "passed" else 1)
    loaded, expected = load_run(merged), load_run(whole)
    assert (loaded.results, loaded.status) == (expected.results, expected.status)
    assert loaded.run.settings["merged_from"] == [path.name for path in folders]
    chance.shuffle(folders)
    other_code, other, _ = merge(folder / "out", root, folders)
    assert other is not None
    assert (other_code, content(other)) == (code, content(merged))


def test_shards_that_are_missing_on_purpose_fail_completeness(tmp_path: Path) -> None:
    root = suite(tmp_path, "abc")
    first, _ = write_shards(tmp_path / "out", root, results_of("a"), results_of("b", "c"))
    code, merged, output = merged_of(tmp_path, root, [first], "--allow-missing")
    assert (code, (tmp_path / "out" / "toy" / "latest").exists()) == (1, False)
    assert "completeness 1 / 3 = 33.3 % < min 100.0 %" in output
    assert merged.run.partial == (
        "1 of 2 shards not merged (2/2); 2 of 3 cases did not run; 2 of 3 cases are in none of the runs: b, c"
    )
    assert [(result.case_id, result.verdict, result.kind) for result in merged.results if result.case_id != "a"] == [
        ("b", "not_run", "shard_missing"),
        ("c", "not_run", "shard_missing"),
    ]


def test_trials_of_a_case_that_did_not_run_are_one_case(tmp_path: Path) -> None:
    root = suite(tmp_path, "abcd")
    ran = [result for trial in range(3) for result in results_of("a", "b", trial=trial)]
    stopped = [result for trial in range(3) for result in results_of("c", "d", verdict="not_run", trial=trial)]
    code, merged, _ = merged_of(tmp_path, root, write_shards(tmp_path / "out", root, ran, stopped))
    assert (code, merged.run.partial) == (1, "2 of 4 cases did not run")


@pytest.mark.parametrize(("trials", "listed"), [(1, ["a", "b"]), (2, ["b", "a"])])
def test_cases_are_listed_in_order_of_their_ids_and_with_trials_of_their_tests(
    tmp_path: Path, trials: int, listed: list[str]
) -> None:
    root = suite(tmp_path, "ab")
    results = [
        case_result(name, "failed", test_id=test_id, trial=trial)
        for name, test_id in (("a", "toy:z:a"), ("b", "toy:plain:b"))
        for trial in range(trials)
    ]
    run_ = write(tmp_path / "out", run_of(root, settings={"gate": "case", "trials": trials}), results, root)
    _, _, output = merged_of(tmp_path, root, [run_])
    lines = output.partition("\nfailed:\n")[2].splitlines()
    assert [line.split()[0] for line in lines[:2]] == listed


def test_a_case_in_no_shard_did_not_run_and_an_empty_shard_misses_nothing(tmp_path: Path) -> None:
    root = suite(tmp_path, "a")
    code, merged, _ = merged_of(tmp_path, root, write_shards(tmp_path / "out", root, [], results_of("a"), []))
    assert code == 0
    assert (tmp_path / "out" / "toy" / "latest").read_text("utf-8") == f"{merged.run.run_id}\n"
    (root / "toy" / "cases" / "b.json").write_text("{}", encoding="utf-8")
    many = root / "toy" / "cases" / "many.jsonl"
    write_jsonl(many, [case("c", pack_id="generic", case_type="odd", difficulty="hard")])
    shards = write_shards(tmp_path / "out", root, results_of("a"), results_of("d"))
    code, merged, output = merged_of(tmp_path, root, shards)
    assert code == 1
    assert "completeness 2 / 4" in output
    b, c = [result for result in merged.results if result.verdict == "not_run"]
    assert (b.case_id, b.kind, c.case_id, c.kind) == ("b", "in_no_shard", "c", "in_no_shard")
    assert (c.case_type, c.difficulty) == ("odd", "hard")
    assert c.file.endswith("cases/many.jsonl:1")
    assert c.nodeid.endswith("cases/many.jsonl::c")
    errors = read_jsonl(tmp_path / "out" / "toy" / merged.run.run_id / "errors.jsonl")
    assert [(line["test_id"].rpartition(":")[2], line["run_id"]) for line in errors] == [
        ("b", merged.run.run_id),
        ("c", merged.run.run_id),
    ]


def test_a_shard_without_cases_need_not_know_the_model(tmp_path: Path) -> None:
    root = suite(tmp_path, "a")
    live: dict[str, Any] = {"mode": "live", "backend": "openai", "model": "m-1", "target": "mine:act"}
    full = run_of(root, **live, run_id="Z", settings={"shard": "2/2", "temperature": 0.5})
    bare = run_of(root, mode="live", target="unknown", run_id="A", settings={"shard": "1/2"})
    folders = [write(tmp_path / "out", bare, [], root), write(tmp_path / "out", full, results_of("a"), root)]
    code, merged, _ = merged_of(tmp_path, root, folders)
    assert code == 0
    assert {name: getattr(merged.run, name) for name in live} == live
    assert merged.run.settings == {"temperature": 0.5, "merged_from": ["A", "Z"]}


def test_an_attempt_that_ran_replaces_one_that_did_not(tmp_path: Path) -> None:
    root = suite(tmp_path, "abc")
    idle = results_of("c", verdict="not_run")
    first = [*results_of("a"), *results_of("b", verdict="not_run"), *idle]
    runs = [
        write(tmp_path / "out", run_of(root, run_id="A"), first, root),
        write(tmp_path / "out", run_of(root, run_id="B"), [*results_of("b"), *idle], root),
    ]
    code, merged, _ = merged_of(tmp_path, root, runs)
    assert (code, [result.verdict for result in merged.results]) == (1, ["passed", "passed", "not_run"])


def test_cases_that_no_run_contains_make_a_merge_partial(tmp_path: Path) -> None:
    root = suite(tmp_path, "abcdefgh")
    code, _, output = merged_of(tmp_path, root, [write(tmp_path / "out", run_of(root), results_of("a"), root)])
    assert code == 1
    assert "7 of 8 cases are in none of the runs: b, c, d, e, f ..." in output


@pytest.mark.parametrize("vector", MERGES["joined"].values(), ids=MERGES["joined"])
def test_what_differs_between_runs_of_a_kind_is_joined(vector: dict[str, Any]) -> None:
    runs = [run(**{"settings": {}, "run_id": str(number), **changes}) for number, changes in enumerate(vector["runs"])]
    for order in (runs, runs[::-1]):
        merged = merged_run(order, "N")
        assert merged.settings.pop("merged_from") == [each.run_id for each in runs]
        for name, value in vector["merged"].items():
            assert getattr(merged, name) == value


def test_runs_that_do_not_belong_together_are_named(expected: ExpectedTexts) -> None:
    messages = []
    for kind, join in (("unlike", partial(merged_run, run_id="NEW")), ("no set of shards", shards_of)):
        for name, changes in MERGES[kind].items():
            runs = [run(**{"run_id": str(number), **each}) for number, each in enumerate(changes)]
            with pytest.raises(MergeError) as error:
                join(runs)
            messages.append(f"{name}: {error.value}\n")
    expected.check("".join(messages))


def test_a_merge_that_is_refused_is_one_line_and_leaves_nothing(tmp_path: Path, expected: ExpectedTexts) -> None:
    root = suite(tmp_path, "ab")
    out = tmp_path / "out"
    messages = []

    def refuse(name: str, folders: list[Path], *options: str) -> None:
        before = files_below(out)
        code, merged, output = merge(out, root, folders, *options)
        assert (code, merged, output.count("\n")) == (2, None, 1)
        assert files_below(out) == before
        messages.append(f"{name}: {output.replace(str(tmp_path), 'TMP')}")

    whole = write(out, run_of(root), results_of("a", "b"), root)
    for name, (file, old, new) in data("damaged_runs.yaml")["merged"].items():
        text = (whole / file).read_text("utf-8")
        assert old in text
        (whole / file).write_text(text.replace(old, new, 1), encoding="utf-8")
        refuse(name, [whole])
        (whole / file).write_text(text, encoding="utf-8")
    killed = out / "toy" / "KILLED"
    killed.mkdir()
    (killed / "journal.jsonl").touch()
    refuse("a run that did not end", [killed])
    cut = write_shards(out, root, results_of("a"), [], results_of("b"), [])
    refuse("missing shards", [cut[0], cut[2]])
    refuse("a case in two shards", write_shards(out, root, results_of("a"), results_of("a", "b", verdict="not_run")))
    (tmp_path / "file").touch()
    for name, folder in (("a file for reports", "file"), ("a folder in a file", "file/deep/er")):
        refuse(name, [whole], "--output", str(tmp_path / folder))
    expected.check("".join(messages))


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond a size in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("most", [min, max], ids=["smallest file", "largest file"])
def test_a_merge_on_a_full_disk_leaves_nothing(tmp_path: Path, most: Callable[[Iterable[int]], int]) -> None:
    root = suite(tmp_path, "a")
    folder = write(tmp_path / "out", run_of(root), results_of("a"), root)
    _, merged, output = merge(tmp_path / "elsewhere", root, [folder])
    assert merged is not None, output
    before = files_below(tmp_path / "out")
    with full_disk(most(size for path in merged.iterdir() if (size := path.stat().st_size)) - 1):
        code, _, output = merge(tmp_path / "out", root, [folder])
    assert (code, output.count("\n")) == (2, 1)
    assert output.startswith(f"packbench: the merged run can't be written to {tmp_path / 'out' / 'toy'}")
    assert files_below(tmp_path / "out") == before


def test_gates_of_a_merge_may_compare_with_a_baseline(tmp_path: Path) -> None:
    ratio = {"metric": "over_refusal_rate", "max_ratio_to_baseline": 0.5}
    root = suite(tmp_path, "ab", gates=[*GATES, ratio])
    out, same = tmp_path / "out", {"case_sha256": "ab" * 32}
    before = write(out, run_of(root, run_id="A"), results_of("a", "b", refused=True, **same), root)
    second = results_of("b", refused=True, **same)
    folders = write_shards(out, root, results_of("a", **same), second)
    code, _, output = merge(out, root, folders)
    assert (code, "no baseline" in output) == (1, True)
    code, _, output = merge(out, root, folders, "--baseline", str(before))
    assert (code, "0.50 x the baseline's" in output, "in both runs" in output) == (0, True, False)
    changed = write_shards(out, root, results_of("a", case_sha256="cd" * 32), second)
    # a case that has changed since is not compared
    assert "over the 1 case in both runs" in merge(out, root, changed, "--baseline", str(before))[2]


def test_more_cases_than_a_page_shows_are_all_merged(tmp_path: Path) -> None:
    names = [f"c{number:03}" for number in range(MAX_ROWS + 20)]
    root = suite(tmp_path, names)
    terms = ({"name": "points", "effect": "add", "value": 0.25, "detail": "why"},)
    results = [case_result(name, "failed", message=f"about {name}", terms=terms) for name in names]
    whole = write(tmp_path / "whole", run_of(root), results, root)
    _, merged, _ = merge(tmp_path / "out", root, write_shards(tmp_path / "out", root, results[:9], results[9:]))
    assert merged is not None
    assert content(merged) == content(whole)
    assert f"{MAX_ROWS} of {len(results)} shown" in content(merged)["page"]
    assert [replace(result, timestamp="") for result in load_run(merged).results] == list(load_run(whole).results)
