"""Backends: what answers a target's model calls. Knows no other room; clients are imported inside."""
