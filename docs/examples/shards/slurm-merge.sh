#!/bin/bash
#SBATCH --job-name=benchmarks-merge
#SBATCH --output=benchmarks-merge-%j.log
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
. .venv/bin/activate
packbench merge reports/shards/"$RUN"/*/support/01*
