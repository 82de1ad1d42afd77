"""Reads the logs of several replicas at once."""
