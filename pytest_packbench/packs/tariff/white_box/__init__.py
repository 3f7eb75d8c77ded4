"""The import of suites of the original harness, white-box (`packbench import white-box`)."""
