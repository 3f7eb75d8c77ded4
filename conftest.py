"""The tests drive pytest by its own fixture."""

pytest_plugins = ["pytester"]
