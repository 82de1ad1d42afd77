"""Submitting an app, and staying with it until it has ended."""
