"""The engine: targets, cassettes, the offline guard, and one case's way from request to record."""
