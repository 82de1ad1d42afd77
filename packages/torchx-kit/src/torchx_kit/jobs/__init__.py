"""Submitted jobs: their index on this machine, records, logs, descriptions, and job arrays."""
