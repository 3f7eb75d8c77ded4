"""Guards: checks between an agent and untrusted text or tools."""
