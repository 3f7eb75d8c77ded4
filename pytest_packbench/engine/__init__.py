"""Making attempts: targets, recordings, clients, caps, and the guard against the network. Knows no pytest."""
