"""A run's folder: written, read, resumed and merged here and nowhere else."""
