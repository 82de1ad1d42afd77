"""Bridges from older plugins to the hooks."""
