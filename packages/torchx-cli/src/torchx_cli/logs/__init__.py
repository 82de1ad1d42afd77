"""Finds the replicas of an app, and merges and writes their logs."""
