"""The elements of sweeps as tables, data and plots, with the metrics of trackers."""
