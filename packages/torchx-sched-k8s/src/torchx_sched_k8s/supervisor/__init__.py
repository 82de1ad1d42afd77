"""Restarts of a whole app that consists of plain Jobs."""
