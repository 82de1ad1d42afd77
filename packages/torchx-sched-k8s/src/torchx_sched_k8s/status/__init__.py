"""The status of apps, computed from the cluster's objects."""
