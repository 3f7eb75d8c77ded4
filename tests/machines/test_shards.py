"""The job files in `docs/examples/shards`: what their engines start is started here, several processes at once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.testing import SuiteResults, run_folders
from tests.doc_blocks import ROOT
from tests.integration.conftest import without_times

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = ROOT / "docs" / "examples" / "shards"
PROJECT = ROOT / "docs" / "examples" / "support"
COUNT = 3


@dataclass
class Job:
    """One process that an engine starts: its script, its folder, and what the engine sets in its environment."""

    script: str
    folder: Path
    variables: dict[str, str]
    shell: tuple[str, ...] = ("bash", "-ec")

    def start(self) -> subprocess.Popen[str]:
        names = ("PACKBENCH_", "GITHUB_", "CI", "SLURM_", "PYTEST_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        lines = [line for line in self.script.splitlines() if not line.startswith("pip ")]
        return subprocess.Popen(
            [*self.shell, "\n".join(lines)],
            cwd=self.folder,
            env={**kept, "PATH": path, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def finish(*jobs: Job) -> list[tuple[int, str]]:
    """Run jobs at once; return the exit code and the output of each."""
    started = [job.start() for job in jobs]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]


def checkout(folder: Path) -> Path:
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__", "reports"))
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return folder


def read(name: str) -> Any:
    return yaml.safe_load((FILES / name).read_text("utf-8"))


def steps_of(job: dict[str, Any], shard: int = 0) -> str:
    lines = [step["run"] for step in job["steps"] if "run" in step]
    return "\n".join(lines).replace("${{ matrix.shard }}", str(shard))


def github(folder: Path) -> tuple[list[Job], Callable[[], Job]]:
    jobs = read("sharded.yml")["jobs"]
    numbers = jobs["shard"]["strategy"]["matrix"]["shard"]
    folders = [checkout(folder / f"checkout-{number}") for number in numbers]
    shards = [Job(steps_of(jobs["shard"], number), each, {}) for number, each in zip(numbers, folders, strict=True)]

    def merge() -> Job:
        last = checkout(folder / "checkout-merge")
        (upload,) = [step for step in jobs["shard"]["steps"] if "upload-artifact" in step.get("uses", "")]
        (download,) = [step for step in jobs["merge"]["steps"] if "download-artifact" in step.get("uses", "")]
        for number, each in zip(numbers, folders, strict=True):
            name = upload["with"]["name"].replace("${{ matrix.shard }}", str(number))
            assert re.fullmatch(download["with"]["pattern"].replace("*", ".*"), name)
            shutil.copytree(each / upload["with"]["path"], last / download["with"]["path"] / name)
        summary = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
        # a baseline is the project's own
        script = re.sub(r" --baseline \S+\s+--fail-on \"[^\"]+\"", "", steps_of(jobs["merge"]))
        return Job(script, last, summary)

    return shards, merge


def gitlab(folder: Path) -> tuple[list[Job], Callable[[], Job]]:
    jobs = read("gitlab-ci.yml")
    total = jobs["shard"]["parallel"]
    folders = [checkout(folder / f"job-{number}") for number in range(1, total + 1)]
    shards = [
        Job("\n".join(jobs["shard"]["script"]), each, {"CI_NODE_INDEX": str(number), "CI_NODE_TOTAL": str(total)})
        for number, each in enumerate(folders, start=1)
    ]

    def merge() -> Job:
        assert jobs["merge"]["needs"] == ["shard"]
        last = checkout(folder / "job-merge")
        for each in folders:
            for path in jobs["shard"]["artifacts"]["paths"]:
                shutil.copytree(each / path, last / path, dirs_exist_ok=True)
        return Job("\n".join(jobs["merge"]["script"]), last, {})

    return shards, merge


def kubernetes(folder: Path) -> tuple[list[Job], Callable[[], Job]]:
    project = checkout(folder / "image")

    def pod(name: str, **variables: str) -> Job:
        (container,) = read(name)["spec"]["template"]["spec"]["containers"]
        (mount,) = container["volumeMounts"]
        (text,) = container["args"]
        known = {each["name"]: each["value"] for each in container["env"]}
        script = text.replace(f"{mount['mountPath']}/", f"{folder}/volume/")
        return Job(script, project, {**known, **variables}, tuple(container["command"]))

    completions = read("kubernetes-shards.yaml")["spec"]["completions"]
    shards = [pod("kubernetes-shards.yaml", JOB_COMPLETION_INDEX=str(index)) for index in range(completions)]
    return shards, lambda: pod("kubernetes-merge.yaml")


def slurm(folder: Path) -> tuple[list[Job], Callable[[], Job]]:
    project = checkout(folder / "submitted")
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "activate").write_text("", encoding="utf-8")
    script = (FILES / "slurm-shards.sh").read_text("utf-8")
    array = re.search(r"^#SBATCH --array=(\d+)-(\d+)$", script, re.MULTILINE)
    assert array is not None
    common = {"SLURM_SUBMIT_DIR": str(project), "SLURM_ARRAY_JOB_ID": "4711"}
    shards = [
        Job(script, folder, {**common, "SLURM_ARRAY_TASK_ID": str(number)})
        for number in range(int(array[1]), int(array[2]) + 1)
    ]
    merge = Job((FILES / "slurm-merge.sh").read_text("utf-8"), folder, {**common, "RUN": "4711"})
    return shards, lambda: merge


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SuiteResults:
    """A run of the whole suite in one process."""
    folder = checkout(tmp_path_factory.mktemp("whole") / "project")
    ((code, output),) = finish(Job("pytest -p no:cacheprovider --packbench-suite=support", folder, {}))
    # two of its cases fail
    assert code == 1, output
    return SuiteResults(folder=run_folders(folder, "support")[-1])


def results_of(output: str, job: Job) -> SuiteResults:
    folder = re.findall(r"^reports: (.+)$", output, re.MULTILINE)[-1]
    return SuiteResults(folder=job.folder / folder)


@pytest.mark.parametrize("engine", [github, gitlab, kubernetes, slurm])
def test_the_jobs_of_an_engine_make_the_whole_run(
    tmp_path: Path, whole: SuiteResults, engine: Callable[[Path], tuple[list[Job], Callable[[], Job]]]
) -> None:
    shards, merge_of = engine(tmp_path)
    assert len(shards) == COUNT
    # where a failed job would be repeated, only a part that did not run fails
    allowed = {0, 1} if engine in {github, gitlab} else {0}
    assert {code for code, _ in finish(*shards)} == allowed
    merge = merge_of()
    ((code, output),) = finish(merge)
    assert code == 1, output
    merge.folder = Path(merge.variables.get("SLURM_SUBMIT_DIR", merge.folder))
    merged = results_of(output, merge)
    assert without_times(merged.records) == without_times(whole.records)
    names = ("totals", "overall", "groups", "gates", "controls")
    both = [without_times({name: each.report["packbench"][name] for name in names}) for each in (merged, whole)]
    assert both[0] == both[1]
    assert len(merged.report["packbench"]["run"]["settings"]["merged_from"]) == COUNT


def test_parts_that_do_not_belong_together_are_not_merged(tmp_path: Path) -> None:
    shards, merge_of = slurm(tmp_path)
    project = tmp_path / "submitted"
    case_file = project / "storage" / "benchmarks" / "support" / "cases" / "messages.jsonl"
    original = case_file.read_text("utf-8")
    # the second part runs on another commit, in which a case expects less; and the third one does not run
    first, second, third = shards
    assert [code for code, _ in finish(first)] == [0]
    ((code, output),) = finish(merge_of())
    assert (code, "2 of 3 shards missing: 2/3, 3/3" in output) == (2, True), output
    case_file.write_text(original.replace('"difficulty": "easy"', '"difficulty": "hard"'), encoding="utf-8")
    assert [code for code, _ in finish(second, third)] == [0, 0]
    case_file.write_text(original, encoding="utf-8")
    ((code, output),) = finish(merge_of())
    assert code == 2, output
    assert re.search(r"run 01\w+: case \w+ is not the one of the suite here; merge the runs of one commit", output)
    # each of them runs again on the right commit, but one of the third part's runs is kept
    kept = project / "reports" / "shards" / "4711"
    shutil.copytree(kept / "3", kept / "old")
    assert [code for code, _ in finish(second, third)] == [0, 0]
    ((code, output),) = finish(merge_of())
    assert (code, "the runs are not the shards of one run, each passed once: run 01" in output) == (2, True), output
    shutil.rmtree(kept / "old")
    assert finish(merge_of())[0][0] == 1
