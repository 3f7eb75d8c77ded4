"""`pytest .` collects the tests, not the scripts that measure."""

collect_ignore = ["benchmarks"]
