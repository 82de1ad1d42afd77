"""Ids, and names that fit a service's rules."""
