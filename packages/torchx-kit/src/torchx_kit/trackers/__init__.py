"""Lineage and checks of arguments, for authors of trackers."""
