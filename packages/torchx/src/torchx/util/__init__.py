"""Small helpers that plugins import."""
