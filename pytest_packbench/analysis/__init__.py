"""The numbers of runs: rates, intervals, gates, comparisons."""
