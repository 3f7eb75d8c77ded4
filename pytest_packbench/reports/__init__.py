"""What people and other programs read of a run: statistics, gates and the files that hold them."""
