"""Job scripts and shell quoting."""
