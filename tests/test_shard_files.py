"""The job files in `docs/examples/shards` split a suite as their engines count, and pages show them as they are."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import yaml

from tests.doc_blocks import ROOT, blocks

FOLDER = ROOT / "docs" / "examples" / "shards"
FILES = {path.name: path.read_text("utf-8") for path in sorted(FOLDER.iterdir())}


def shown(page: str) -> dict[str, str]:
    """The blocks of a page that are files, by the name of the file."""
    found = blocks(ROOT / "docs" / page)
    return {block.file.rpartition("/")[2].lstrip("."): block.text for block in found if block.file}


def read(name: str) -> Any:
    return yaml.safe_load(FILES[name])


def test_the_pages_show_the_files() -> None:
    in_ci = shown("ci.md")
    assert (shown("shards.md"), in_ci["sharded.yml"]) == (FILES, FILES["sharded.yml"])
    ours, theirs = read("gitlab-ci.yml"), yaml.safe_load(in_ci["gitlab-ci.yml"])
    # the page has one file for three kinds of pipelines: its jobs have rules and a baseline
    for job, keys in {"shard": ("parallel", "script", "artifacts"), "merge": ("needs", "artifacts")}.items():
        assert {key: ours[job][key] for key in keys} == {key: theirs[job][key] for key in keys}
    assert theirs["merge"]["script"][0].startswith(ours["merge"]["script"][0])


def test_github_and_gitlab_start_a_job_for_each_shard_and_merge_in_any_case() -> None:
    jobs = read("sharded.yml")["jobs"]
    shard, merge = jobs["shard"], jobs["merge"]
    numbers = shard["strategy"]["matrix"]["shard"]
    assert numbers == list(range(1, len(numbers) + 1))
    (command,) = [step["run"] for step in shard["steps"] if step.get("name") == "Run"]
    assert f"--packbench-shard=${{{{ matrix.shard }}}}/{len(numbers)}" in command
    assert (merge["needs"], merge["if"], shard["strategy"]["fail-fast"]) == ("shard", "${{ !cancelled() }}", False)
    jobs = read("gitlab-ci.yml")
    assert {jobs[name]["stage"] for name in ("shard", "merge")} == set(jobs["stages"])
    assert "--packbench-shard=$CI_NODE_INDEX/$CI_NODE_TOTAL" in jobs["shard"]["script"][0]
    assert (jobs["shard"]["artifacts"]["when"], jobs["merge"]["rules"]) == ("always", [{"when": "always"}])


def test_kubernetes_and_slurm_count_shards_by_an_index() -> None:
    jobs = [read(f"kubernetes-{name}.yaml") for name in ("shards", "merge")]
    spec, containers = jobs[0]["spec"], []
    for job in jobs:
        template = job["spec"]["template"]["spec"]
        containers += template["containers"]
        mounts = {mount["name"] for mount in containers[-1]["volumeMounts"]}
        assert (job["kind"], template["restartPolicy"], mounts) == (
            "Job",
            "Never",
            {each["name"] for each in template["volumes"]},
        )
    one, other = ({each["name"]: each["value"] for each in container["env"]} for container in containers)
    assert (spec["completionMode"], str(spec["completions"]), one["RUN"]) == ("Indexed", one["SHARDS"], other["RUN"])
    assert containers[0]["image"] == containers[1]["image"]
    for name in ("slurm-shards.sh", "slurm-merge.sh"):
        assert subprocess.run(["bash", "-n", FOLDER / name], check=False, capture_output=True).stderr == b""
        assert FILES[name].startswith("#!/bin/bash\n#SBATCH ")
    array = re.search(r"^#SBATCH --array=1-(\d+)$", FILES["slurm-shards.sh"], re.MULTILINE)
    assert array is not None
    assert f"\nshards={array[1]}\n" in FILES["slurm-shards.sh"]
