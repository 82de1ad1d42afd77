"""Finds, checks and loads components."""
