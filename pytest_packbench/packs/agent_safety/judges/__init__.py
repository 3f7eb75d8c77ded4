"""Judges: who tells whether an answer is harmful, where no program can. Each has a name, and no two are comparable."""
