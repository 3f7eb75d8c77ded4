"""Commands on stored runs: which run is meant, history, rescoring, validation and merging."""

from __future__ import annotations

import json
import os
import re
import resource
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.commands import main
from pytest_packbench.runs.journal import Journal
from pytest_packbench.runs.merging import MergeError, merged_run, missing_shards
from pytest_packbench.runs.reading import open_run
from pytest_packbench.testing import case, write_case
from tests.unit.run_builders import any_results, case_result, changed, data, results_of, run
from tests.unit.stored_runs import (
    EMPTY_CASE,
    GATES,
    content,
    error,
    lines_of,
    merge,
    read_jsonl,
    run_of,
    suite,
    write,
    write_jsonl,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_packbench.model.result import Result
    from tests.conftest import ExpectedTexts

    Run = Callable[..., tuple[int, str]]


COMPLETE = "01K00000000000000000000000"
GONE = "01K00000000000000000000001"
TOY = f"toy/{COMPLETE}"


@pytest.fixture
def packbench(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command; returns its exit code and its output."""

    def call(*arguments: str) -> tuple[int, str]:
        code = main([*arguments])
        return code, "".join(capsys.readouterr())

    return call


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one complete run of the suite `toy`; returns the folder of its runs."""
    monkeypatch.chdir(tmp_path)
    root = suite(tmp_path, "a")
    folder = write(tmp_path / "reports" / "benchmarks", run_of(root, run_id=COMPLETE), [case_result("a")], root)
    (folder.parent / "latest").write_text(f"{COMPLETE}\n", encoding="utf-8")
    return folder.parent


LATEST = {"empty": b"", "blank": b"  \n", "a path": b"../../..", "an absolute path": b"/etc", "not UTF-8": b"\xff\xfe"}
LATEST |= {"too short": b"01A\n", "no such run": f"{GONE}\n".encode()}


def test_a_run_is_named_by_suite_and_id_or_by_path_and_one_that_is_not_there_is_one_line(
    toy: Path, packbench: Run, expected: ExpectedTexts
) -> None:
    outputs = {packbench("report", name) for name in (TOY, str(toy / COMPLETE), str(toy / "latest"), "toy/latest")}
    assert [code for code, _ in outputs] == [0]
    code, page = packbench("compare", "--baseline", TOY, "--current", TOY, "--out", "-")
    assert (code, page.startswith("# ")) == (0, True)
    lines = []

    def refuse(title: str, *arguments: str) -> None:
        code, output = packbench(*arguments)
        *before, last = output.splitlines()
        # what can't be rescored is named first
        assert (code, [line for line in before if not line.startswith("packbench: not rescored: ")]) == (2, [])
        lines.append(f"{title}: {last}\n")

    for title, text in LATEST.items():
        (toy / "latest").write_bytes(text)
        refuse(f"latest is {title}", "report", "toy/latest")
    (toy / "latest").unlink()
    refuse("latest is none", "report", "toy/latest")
    for name in ("gate", "rescore", "merge"):
        refuse(f"no latest to {name}", name, "toy/latest", "--root", "storage")
    (toy.parents[2] / "file").touch()
    for out in ("nowhere/x.md", "storage"):
        refuse(f"rescore into {out}", "rescore", TOY, "--root", "storage", "--out", out)
    for out in ("file/x.md", "storage"):
        refuse(f"compare into {out}", "compare", "--baseline", TOY, "--current", TOY, "--out", out)
    records = (toy / COMPLETE / "records.jsonl").rename(toy / "records")
    # a report is not compared with records that are not there
    assert packbench("gate", TOY, "--root", "storage")[0] == 0
    records.rename(toy / COMPLETE / "records.jsonl")
    (toy / COMPLETE / "report.json").unlink()
    refuse("no report", "gate", TOY, "--root", "storage")
    expected.check("".join(lines))
    alone = f"reports/benchmarks/{TOY}/records.jsonl"
    assert "completeness: unknown, because records alone" in packbench("gate", alone, "--root", "storage")[1]


def test_gates_of_runs_that_do_not_fit_are_one_line(toy: Path, packbench: Run) -> None:
    project, reports = toy.parents[2], toy.parent
    root = project / "storage"
    advice = "pass --root, or run packbench in the project's folder"
    (project / "empty").mkdir()
    for arguments, problem in {
        (): "gate: got no RUNS; expected some, or --policy-from without --baseline and --require",
        ("--policy-from", GONE, "--root", "empty"): f"--policy-from: no suite under {project / 'empty'}; {advice}",
    }.items():
        assert packbench("gate", *arguments) == (2, f"packbench: {problem}\n")
    # the same rules under another name
    (root / "other").mkdir()
    (root / "other" / "suite.yaml").write_bytes((root / "toy" / "suite.yaml").read_bytes())
    write(reports, run_of(root, run_id=COMPLETE, suite="other"), [case_result("a", suite="other")], root)
    earlier = write(reports, run_of(root, run_id=GONE), [case_result("a")], root)
    options = ("--root", "storage", "--require", "toy", "--require", "third")
    code, output = packbench("gate", TOY, f"other/{COMPLETE}", "--baseline", str(earlier), *options)
    assert (code, output.count("FAIL\n")) == (1, 1)
    assert "third: no run of this suite is among RUNS: FAIL" in output
    forged = case_result("a", "failed", case_type="x\n  pass_rate (case_type y) 9 / 9 = 100.0 %: PASS\x1b[2K")
    write(reports, run_of(root, run_id="01B"), [forged], root)
    (line,) = [line for line in packbench("gate", "toy/01B", "--root", "storage")[1].splitlines() if "_type" in line]
    assert (line.endswith("FAIL"), r"\x1b[2K" in line) == (True, True)
    # a suite may be named by its folder under the root, and the root by pytest's configuration
    same = {packbench("lint", name, "--root", "storage")[0] for name in ("toy", "../storage/toy")}
    assert len(same) == 1
    code, output = packbench("lint", "bundled/tarif", "--root", "nowhere")
    assert (code, 'unknown suite "bundled/tarif" (did you mean "bundled/tariff"?)' in output) == (2, True)
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\npackbench_root = 'storage'\n", "utf-8")
    assert packbench("gate", TOY)[0] == 0


def test_a_stored_policy_that_does_not_fit_is_one_line(toy: Path, packbench: Run) -> None:
    policy = ("--policy-from", COMPLETE, "--root", "storage")
    for arguments in ((TOY,), ("--rules", "toy")):
        code, output = packbench("gate", *arguments, *policy)
        assert (code, f"run {COMPLETE} stores no acceptance policy" in output) == (1, True)
    nothing = "the suite comes from the installed package: nothing is compared"
    assert nothing in packbench("gate", "--rules", "bundled/tariff", *policy)[1]
    path = toy / COMPLETE / "report.json"
    report = json.loads(path.read_text("utf-8"))
    empty: dict[str, Any] = {name: {} for name in ("files", "recordings", "settings", "code")}
    whole = {"version": 1, "config": {"thresholds": {"by_type": 1}}, **empty, "baseline": None}
    # a part that is not there would hide what was removed
    for name in whole:
        stored = {key: value for key, value in whole.items() if key != name or name == "version"}
        path.write_text(json.dumps({"packbench": {"policy": stored, **report["packbench"]}}), encoding="utf-8")
        problem = f'/packbench/policy/{name}: not a run document: the key "{name}" is missing; add it'
        told = f"changes not allowed since run {COMPLETE}" if name == "version" else problem
        code, output = packbench("gate", "--rules", "toy", *policy)
        assert (code, told in output) == (1, True), name
    path.write_text(json.dumps(report).replace('"suite": "toy"', '"suite": "other"'), encoding="utf-8")
    assert f"run {COMPLETE} is of suite other; expected a run of toy" in packbench("gate", "--rules", "toy", *policy)[1]


def test_a_run_that_can_be_no_baseline_is_refused_and_a_loosened_one_is_shown(toy: Path, packbench: Run) -> None:
    root, reports = toy.parents[2] / "storage", toy.parent

    def set_to(folder: Path) -> tuple[int, str]:
        return packbench("baseline", "set", str(folder), "--reason", "why", "--root", "storage")

    for folder, problem in {
        root / "toy" / "baseline.json": "is a baseline; expected the folder of a run, or SUITE/latest",
        write(reports, run_of(root, suite="tariff", bundled=True), [], root): "is bundled and can't be changed",
        write(reports, run_of(root, suite="storage/toy"), [], root): 'got "storage/toy"; expected a name, no path',
    }.items():
        code, output = set_to(folder)
        assert (code, problem in output, output.count("\n")) == (2, True, 1)
    for number, verdict in enumerate(("passed", "failed")):
        results = [case_result(f"c{each}", verdict, case_sha256=EMPTY_CASE) for each in range(53)]
        code, output = set_to(
            write(reports, run_of(root, run_id=f"{GONE[:-1]}{number}"), results, root) / "report.json"
        )
        assert code == 0
    assert (output.count("53 points looser"), output.count(": passed before, failed now; ")) == (1, 53)
    path = root / "toy" / "baseline.json"
    path.write_text(path.read_text("utf-8").replace('"pack_version": "1"', '"pack_version": "0"'), encoding="utf-8")
    code, output = packbench("baseline", "show", "toy", "--root", "storage")
    assert (code, "the pack has changed since (now generic 1)" in output) == (0, True)


def test_an_interrupted_command_is_one_line(packbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_packbench.commands.validate.run_schema", interrupt)
    assert packbench("schema", "case") == (2, "packbench: interrupted\n")


def test_rescoring_scores_each_stored_result_by_the_current_rules(
    tmp_path: Path, packbench: Run, expected: ExpectedTexts
) -> None:
    texts = []
    for name, row in data("rescored.yaml").items():
        # without the digest of another case
        results = [changed(each, case_sha256=None) for each in results_of(row["results"])]
        root = suite(tmp_path / name)
        for result in results:
            fields: dict[str, Any] = {"input": {"q": 1}, "expected": {"said": result.case.case_id}}
            write_case(root / "toy", case(result.case.case_id, pack_id="generic", **fields))
        stored = write(tmp_path / name / "out", run_of(root), results, root)
        payloads = zip(read_jsonl(stored / "payloads.jsonl"), row["answers"], strict=True)
        lines = [line if answer is None else {**line, "result": {"said": answer}} for line, answer in payloads]
        write_jsonl(stored / "payloads.jsonl", lines)
        for file in row.get("removed", ()):
            (root / "toy" / file).unlink()
        for file, text in row.get("written", {}).items():
            (root / "toy" / file).write_text(text, "utf-8")
        code, output = packbench("rescore", str(stored), "--root", str(root), "--fail-on", "new_failures>0")
        text = re.sub(r"'[0-9a-f]{12}'", "RULES", output.replace(str(tmp_path / name), "TMP"))
        texts.append(f"==== {name}: {code}\n{re.sub(r'[0-9T:.-]{23}Z', 'TIME', text)}")
    expected.check("\n".join(texts), "md")


def content_of(described: dict[str, Any]) -> bytes:
    """Return the content that `data/validated_files.yaml` describes."""
    objects = [error(**changes) for changes in described.get("errors", ())]
    objects += [{**case("a", pack_id="generic"), **changes} for changes in described.get("cases", ())]
    present = [{key: value for key, value in each.items() if value != "MISSING"} for each in objects]
    lines = "".join(f"{json.dumps(each)}\n" for each in present)
    return lines_of(described.get("records", ())) + f"{lines}{described.get('text', '')}".encode()


def journal_of(folder: Path, *case_ids: str, head: bool = False) -> bytes:
    (folder / "written.jsonl").unlink(missing_ok=True)
    with Journal(folder / "written.jsonl", run if head else None) as journal:
        for case_id in case_ids:
            journal.append(case_result(case_id))
    return (folder / "written.jsonl").read_bytes()


def test_each_file_is_named_with_its_kind_or_its_first_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packbench: Run, expected: ExpectedTexts
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = []

    def validate(title: str, path: str) -> None:
        code, output = packbench("validate", path)
        assert ("NOT VALID" in output) is (code == 2)
        texts.append(f"{title}: {code}\n  {output}")

    journal = journal_of(tmp_path, "a", "b")
    journals = {
        "head of a journal": journal_of(tmp_path, head=True),
        "journal": journal_of(tmp_path, "a", head=True),
        "journal of another version": journal_of(tmp_path, head=True).replace(b'l":1', b'l":true'),
        "journal cut short": journal[:-9],
        "journal cut short in the middle": journal[:-9] + b"\n",
    }
    files = {name: (row["file"], content_of(row)) for name, row in data("validated_files.yaml").items()}
    files |= {name: ("journal.jsonl", text) for name, text in journals.items()}
    aliases = "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 150))
    files["rules of 150 aliases"] = ("suite.yaml", f"a0: &a0 [1]\n{aliases}".encode())
    files["not UTF-8"] = ("in.jsonl", b'{"said": "\xed\xa0\x80"}')
    for title, (name, text) in files.items():
        (tmp_path / name).write_bytes(text)
        validate(title, name)
    root = suite(tmp_path / "project")
    trials = [case_result("a", trial=number) for number in range(3)]
    validate("report", str(write(tmp_path, run_of(root), trials, root).relative_to(tmp_path) / "report.json"))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "lost.json").symlink_to(tmp_path / "nowhere")
    validate("link to no file", "links")
    expected.check("".join(texts))


MERGES = data("merges.yaml")


def write_shards(output: Path, root: Path, *shards: list[Result]) -> list[Path]:
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
    tmp_path_factory: pytest.TempPathFactory, results: list[Result], count: int, chance: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    case_ids = sorted({result.case.case_id for result in results})
    root = suite(folder, case_ids)
    shard_of = {case_id: chance.randrange(count) for case_id in case_ids}
    shards = [[result for result in results if shard_of[result.case.case_id] == number] for number in range(count)]
    idle = {
        result.case.case_id for result in results if result.score.verdict == "not_run" and not result.score.quarantined
    }
    partial = f"{len(idle)} of {len(case_ids)} cases did not run" if idle else ""
    whole = write(folder / "whole", run_of(root, partial=partial), results, root)
    folders = write_shards(folder / "out", root, *shards)
    code, merged, output = merge(folder / "out", root, folders)
    assert merged is not None, output
    assert content(merged) == content(whole)
    assert code == (0 if content(whole)["report"]["status"] == "passed" else 1)
    loaded, expected = open_run(merged, checked=False).read(), open_run(whole, checked=False).read()
    assert (loaded.results, loaded.stated.status) == (expected.results, expected.stated.status)
    assert loaded.run.settings["merged_from"] == [path.name for path in folders]
    chance.shuffle(folders)
    other_code, other, _ = merge(folder / "out", root, folders)
    assert other is not None
    assert (other_code, content(other)) == (code, content(merged))


def runs_of(folder: Path, scenario: dict[str, Any], root: Path, **usual: Any) -> list[Path]:
    """Write the runs of a scenario of `merges.yaml`, and return their folders."""
    return [
        write(
            folder / "out",
            run_of(root, **{"run_id": f"01RUN{number}", **each.get("run", {})}),
            results_of({**usual, **row} for row in each["results"]),
            root,
        )
        for number, each in enumerate(scenario["runs"])
    ]


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
        runs = runs_of(folder, scenario, root, case_sha256=None)
        code, merged, output = merge(folder / "out", root, runs, *options)
        assert merged is not None, output
        stored, latest = open_run(merged, checked=False).read(), merged.parent / "latest"
        run_ = {key: getattr(stored.run, key) for key in ("mode", "target", "backend", "model", "settings", "partial")}
        results = [
            f"  {each.case.test_id} {each.attempt.trial} {each.score.verdict} {each.score.kind} {each.case.case_type} {each.case.difficulty} {each.case.nodeid}"
            for each in stored.results
        ]
        errors = merged / "errors.jsonl"
        assert {line["run_id"] for line in read_jsonl(errors)} == {merged.name} if errors.exists() else True
        assert latest.exists() is not bool(stored.run.partial)
        lines = [f"==== {name}: {code}", json.dumps(run_), *results, output.replace(str(folder), "TMP")]
        texts.append("\n".join(lines).replace(merged.name, "MERGED").replace(os.path.relpath(folder), "TMP"))
    expected.check("\n".join(texts))


def test_what_differs_between_runs_of_a_kind_is_joined_and_others_are_named(expected: ExpectedTexts) -> None:
    for title, vector in MERGES["joined"].items():
        runs = [run(**{"settings": {}, "run_id": str(index), **row}) for index, row in enumerate(vector["runs"])]
        for order in (runs, runs[::-1]):
            merged = merged_run(order, "N")
            assert merged.settings.pop("merged_from") == [each.run_id for each in runs]
            assert {name: getattr(merged, name) for name in vector["merged"]} == vector["merged"], title
    messages = []
    for kind, join in (("unlike", partial(merged_run, run_id="NEW")), ("no set of shards", missing_shards)):
        for name, changes in MERGES[kind].items():
            with pytest.raises(MergeError) as caught:
                join([run(**{"run_id": str(number), **each}) for number, each in enumerate(changes)])
            messages.append(f"{name}: {caught.value}\n")
    expected.check("".join(messages))


def test_a_merge_that_is_refused_is_one_line_and_leaves_nothing(tmp_path: Path, expected: ExpectedTexts) -> None:
    messages = []
    (tmp_path / "file").touch()
    for name, scenario in MERGES["refused"].items():
        folder = tmp_path / name.replace(" ", "_")
        root = suite(folder, "ab")
        runs = runs_of(folder, scenario, root, case_sha256=EMPTY_CASE)
        for number in scenario.get("killed", ()):
            (runs[number] / "report.json").rename(runs[number] / "journal.jsonl")
        before = files_below(tmp_path)
        options = [option.replace("TMP", str(tmp_path)) for option in scenario.get("options", ())]
        code, merged, output = merge(folder / "out", root, runs, *options)
        assert (code, merged, output.count("\n"), files_below(tmp_path)) == (2, None, 1, before)
        messages.append(f"{name}: {output.replace(str(tmp_path), 'TMP')}")
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


def test_a_merge_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    root, out = suite(tmp_path, "a"), tmp_path / "out"
    folder = write(out, run_of(root), results_of([{"id": "a", "case_sha256": EMPTY_CASE}]), root)
    _, merged, output = merge(tmp_path / "elsewhere", root, [folder])
    assert merged is not None, output
    before = files_below(out)
    sizes = [size for path in merged.iterdir() if (size := path.stat().st_size)]
    # the page, which is the largest, is not of the same size each time
    for size in (min(sizes) - 1, max(sizes) // 2):
        with full_disk(size):
            code, _, output = merge(out, root, [folder])
        assert (code, output.count("\n")) == (2, 1)
        assert output.startswith(f"packbench: the merged run can't be written to {out / 'toy'}")
        assert files_below(out) == before


DAMAGES: dict[str, dict[str, Any]] = data("damages.yaml")["damages"]


def damaged(content: bytes, row: dict[str, Any]) -> bytes:
    old, new = (row.get(name, "").encode("utf-8", "surrogateescape") for name in ("old", "new"))
    other = content.replace(old, new.replace(b"DEEP", b"[" * 5000 + b"]" * 5000), 1)
    ways = {
        "utf-16": content.decode().encode("utf-16"),
        "cut": b" \n" + content[:-9],
        "twice": content + other,
        "": row.get("content", "").encode() if "content" in row else other,
    }
    return ways[row.get("how", "")]


@pytest.mark.parametrize("name", DAMAGES)
def test_commands_check_what_they_are_given_before_they_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packbench: Run, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    root = suite(tmp_path, "a")
    results, row = [changed(case_result("a"), payload={"points": 1.0})], DAMAGES[name]
    folder, other = (
        write(tmp_path / at / "benchmarks", run_of(root, run_id=run_id), results, root)
        for at, run_id in (("reports", COMPLETE), ("other", GONE))
    )
    (folder / "errors.jsonl").write_text("\n", encoding="utf-8")
    rules = f"--root={root}"
    calls = {
        "gate": ("gate", str(folder), rules),
        "rescore": ("rescore", str(folder), rules),
        "compare": ("compare", "--baseline", str(other), "--current", str(folder), "--out=-", "--force"),
        "merge": ("merge", str(folder), "--out=merged", rules),
    }
    path = folder / row["file"]
    content = path.read_bytes()
    path.unlink()
    if row.get("how") == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(damaged(content, row))
        assert path.read_bytes() != content
    for command in row.get("readers", calls):
        code, output = packbench(*calls[command])
        assert (code, row["message"] in output, str(path) in output) == (2, True, True), (command, output)
        assert not [path for path in (tmp_path / "merged").rglob("*.json*") if path.is_file()]
        assert output.count("\n") == 1
