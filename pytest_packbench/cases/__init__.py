"""Cases and suites: their models, loading, validation and hashes. Knows no other room."""
