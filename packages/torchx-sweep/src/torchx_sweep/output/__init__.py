"""The elements of sweeps as tables and data."""
