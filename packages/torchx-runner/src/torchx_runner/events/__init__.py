"""The events of the runner, and their handlers."""
