"""Compute the status of apps from the cluster's objects."""
