"""The model gateway: records and replays the calls of a target with a model client of its own."""
