"""What people and other programs read of a run. Renders what `analysis` has counted."""
