"""Runs that are killed, that meet faults, and that are long: `python -m benchmarks.stress`."""
