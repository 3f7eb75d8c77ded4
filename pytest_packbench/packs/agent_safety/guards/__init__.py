"""Guards: what stands between an agent and untrusted text or tools."""
