"""Trackers for several kinds of storage."""
