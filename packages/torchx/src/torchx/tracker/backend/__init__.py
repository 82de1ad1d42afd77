"""Trackers' back ends."""
