"""Tables that people have, turned into generic cases."""
