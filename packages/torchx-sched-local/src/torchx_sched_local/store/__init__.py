"""The records of apps on disk."""
