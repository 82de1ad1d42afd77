"""Drivers, which submit the elements of a sweep and record how they end, and their process."""
