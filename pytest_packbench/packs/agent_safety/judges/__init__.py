"""Judges decide whether an answer is harmful, where no program can. Rates of different judges are not comparable."""
