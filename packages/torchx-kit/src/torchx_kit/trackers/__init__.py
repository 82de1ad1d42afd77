"""Lineage, inlined configurations and checks of arguments, for authors of trackers."""
