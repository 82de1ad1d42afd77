"""The interface of trackers."""
