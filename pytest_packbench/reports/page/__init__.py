"""The page of a run, one HTML file."""
