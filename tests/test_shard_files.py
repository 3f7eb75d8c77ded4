"""The job files in `docs/examples/shards`: they have the keys of their engines, and pages show them as they are."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.doc_blocks import ROOT, blocks

FOLDER = ROOT / "docs" / "examples" / "shards"
FILES = {path.name: path.read_text("utf-8") for path in sorted(FOLDER.iterdir())}
SHARDS = ROOT / "docs" / "shards.md"
CI = ROOT / "docs" / "ci.md"


def shown(page: Any) -> dict[str, str]:
    """The blocks of a page that are files, by the name of the file."""
    return {block.file.rpartition("/")[2].lstrip("."): block.text for block in blocks(page) if block.file}


def test_the_pages_show_the_files() -> None:
    assert shown(SHARDS) == FILES
    assert shown(CI)["sharded.yml"] == FILES["sharded.yml"]
    ours, theirs = (yaml.safe_load(text) for text in (FILES["gitlab-ci.yml"], shown(CI)["gitlab-ci.yml"]))
    # the page has one file for three kinds of pipelines: its jobs have rules and a baseline
    for job, keys in {"shard": ("parallel", "script", "artifacts"), "merge": ("needs", "artifacts")}.items():
        assert {key: ours[job][key] for key in keys} == {key: theirs[job][key] for key in keys}
    assert theirs["merge"]["script"][0].startswith(ours["merge"]["script"][0])


def test_github_splits_by_its_matrix() -> None:
    workflow = yaml.safe_load(FILES["sharded.yml"])
    # YAML 1.1 reads the key `on` as true
    assert workflow.keys() == {"name", True, "permissions", "jobs"}
    shard, merge = workflow["jobs"]["shard"], workflow["jobs"]["merge"]
    numbers = shard["strategy"]["matrix"]["shard"]
    assert numbers == list(range(1, len(numbers) + 1))
    (command,) = [step["run"] for step in shard["steps"] if step.get("name") == "Run"]
    assert f"--packbench-shard=${{{{ matrix.shard }}}}/{len(numbers)}" in command
    assert (merge["needs"], merge["if"], shard["strategy"]["fail-fast"]) == ("shard", "${{ !cancelled() }}", False)


def test_gitlab_splits_by_parallel() -> None:
    jobs = yaml.safe_load(FILES["gitlab-ci.yml"])
    assert jobs.keys() == {"stages", "default", "shard", "merge"}
    assert {jobs[name]["stage"] for name in ("shard", "merge")} == set(jobs["stages"])
    assert "--packbench-shard=$CI_NODE_INDEX/$CI_NODE_TOTAL" in jobs["shard"]["script"][0]
    assert (jobs["shard"]["artifacts"]["when"], jobs["merge"]["rules"]) == ("always", [{"when": "always"}])


def test_kubernetes_splits_by_the_index_of_a_job() -> None:
    shards, merge = (yaml.safe_load(FILES[f"kubernetes-{name}.yaml"]) for name in ("shards", "merge"))
    for job in (shards, merge):
        assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
        assert re.fullmatch(r"[a-z0-9-]+", job["metadata"]["name"])
        template = job["spec"]["template"]["spec"]
        assert template["restartPolicy"] == "Never"
        (container,) = template["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {each["name"] for each in template["volumes"]}
    spec = shards["spec"]
    values = [
        {each["name"]: each["value"] for each in job["spec"]["template"]["spec"]["containers"][0]["env"]}
        for job in (shards, merge)
    ]
    assert spec["completionMode"] == "Indexed"
    assert str(spec["completions"]) == values[0]["SHARDS"]
    assert values[0]["RUN"] == values[1]["RUN"]
    texts = [job["spec"]["template"]["spec"]["containers"][0]["image"] for job in (shards, merge)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["slurm-shards.sh", "slurm-merge.sh"])
def test_slurm_scripts_are_bash(name: str) -> None:
    assert subprocess.run(["bash", "-n", FOLDER / name], check=False, capture_output=True).stderr == b""
    assert FILES[name].startswith("#!/bin/bash\n#SBATCH ")


def test_slurm_splits_by_its_array() -> None:
    text = FILES["slurm-shards.sh"]
    array = re.search(r"^#SBATCH --array=1-(\d+)$", text, re.MULTILINE)
    assert array is not None
    assert f"\nshards={array[1]}\n" in text
