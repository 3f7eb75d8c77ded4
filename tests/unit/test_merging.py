"""Merging shards and runs: the whole comes out however it was cut, and nothing else is let in."""

from __future__ import annotations

import json
import os
import resource
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.runs.merge import MergeError, merged_run, shards_of
from pytest_packbench.runs.stored import load_run
from pytest_packbench.testing import case
from tests.unit.run_builders import any_results, data, results_of, run
from tests.unit.stored_runs import GATES, content, merge, read_jsonl, run_of, suite, write, write_jsonl

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult
    from tests.conftest import ExpectedTexts


MERGES = data("merges.yaml")


def write_shards(output: Path, root: Path, *shards: list[CaseResult]) -> list[Path]:
    folders = []
    for number, results in enumerate(shards, start=1):
        settings = {"gate": "case", "shard": f"{number}/{len(shards)}"}
        folders.append(write(output, run_of(root, run_id=f"01SHARD{number}", settings=settings), results, root))
    return folders


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name != ".gitignore")


@settings(max_examples=8)
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


def test_merges_count_what_is_missing_and_apply_the_gates(tmp_path: Path, expected: ExpectedTexts) -> None:
    texts = []
    for name, scenario in MERGES["merges"].items():
        folder = tmp_path / name.replace(" ", "_")
        root = suite(folder, scenario["suite"], gates=scenario.get("gates", GATES))
        if "many" in scenario:
            write_jsonl(root / "toy" / "cases" / "many.jsonl", [case(**scenario["many"], pack_id="generic")])
        options = scenario.get("options", [])
        if "baseline" in scenario:
            baseline = write(folder / "out", run_of(root, run_id="01BASE"), results_of(scenario["baseline"]), root)
            options = ["--baseline", str(baseline)]
        runs = []
        for number, each in enumerate(scenario["runs"]):
            metadata = run_of(root, **{"run_id": f"01RUN{number}", **each.get("run", {})})
            runs.append(write(folder / "out", metadata, results_of(each["results"]), root))
        code, merged, output = merge(folder / "out", root, runs, *options)
        assert merged is not None, output
        stored, latest = load_run(merged), merged.parent / "latest"
        run_ = {key: getattr(stored.run, key) for key in ("mode", "target", "backend", "model", "settings", "partial")}
        results = [
            f"  {each.test_id} {each.trial} {each.verdict} {each.kind} {each.case_type} {each.difficulty} {each.nodeid}"
            for each in stored.results
        ]
        errors = merged / "errors.jsonl"
        assert {line["run_id"] for line in read_jsonl(errors)} == {merged.name} if errors.exists() else True
        assert latest.exists() is not bool(stored.run.partial)
        lines = [f"==== {name}: {code}", json.dumps(run_), *results, output.replace(str(folder), "TMP")]
        texts.append("\n".join(lines).replace(merged.name, "MERGED").replace(os.path.relpath(folder), "TMP"))
    expected.check("\n".join(texts))


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

    whole = write(out, run_of(root), results_of([{"id": "a"}, {"id": "b"}]), root)
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
    cut = write_shards(out, root, results_of([{"id": "a"}]), [], results_of([{"id": "b"}]), [])
    refuse("missing shards", [cut[0], cut[2]])
    idle = results_of([{"id": name, "verdict": "not_run"} for name in "ab"])
    refuse("a case in two shards", write_shards(out, root, results_of([{"id": "a"}]), idle))
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
    folder = write(tmp_path / "out", run_of(root), results_of([{"id": "a"}]), root)
    _, merged, output = merge(tmp_path / "elsewhere", root, [folder])
    assert merged is not None, output
    before = files_below(tmp_path / "out")
    with full_disk(most(size for path in merged.iterdir() if (size := path.stat().st_size)) - 1):
        code, _, output = merge(tmp_path / "out", root, [folder])
    assert (code, output.count("\n")) == (2, 1)
    assert output.startswith(f"packbench: the merged run can't be written to {tmp_path / 'out' / 'toy'}")
    assert files_below(tmp_path / "out") == before
