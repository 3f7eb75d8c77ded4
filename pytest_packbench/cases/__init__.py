"""Case files, `suite.yaml` and cassettes: found, read, checked and linted."""
