"""The runner's events and their handlers."""
