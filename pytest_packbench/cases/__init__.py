"""Finding, loading and linting case files, `suite.yaml` and cassettes."""
