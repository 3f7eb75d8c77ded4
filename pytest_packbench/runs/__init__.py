"""The folders of runs: writing, reading, resuming and merging them."""
