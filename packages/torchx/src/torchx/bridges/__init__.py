"""Bridges that register older plugins by the hooks."""
