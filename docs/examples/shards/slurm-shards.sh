#!/bin/bash
#SBATCH --job-name=benchmarks
#SBATCH --array=1-3
#SBATCH --output=benchmarks-%A-%a.log
set -euo pipefail
shards=3
cd "$SLURM_SUBMIT_DIR"
. .venv/bin/activate
# RUN is set to repeat one part of an earlier array
output=reports/shards/${RUN:-$SLURM_ARRAY_JOB_ID}/$SLURM_ARRAY_TASK_ID
# a task that is started again replaces its part, and its answers
rm -rf "$output"
code=0
pytest --packbench-suite=support --packbench-shard="$SLURM_ARRAY_TASK_ID/$shards" --packbench-output="$output" || code=$?
# 1: a case failed; the merge decides
test $code -le 1
