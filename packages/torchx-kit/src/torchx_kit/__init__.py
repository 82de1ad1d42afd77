"""Building blocks for schedulers, workspace builders and trackers."""
