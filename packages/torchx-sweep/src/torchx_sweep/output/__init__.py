"""The elements of sweeps as tables and data, with the metrics of trackers."""
