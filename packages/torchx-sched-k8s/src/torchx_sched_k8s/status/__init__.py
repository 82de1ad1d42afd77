"""The status of apps, as the cluster reports it."""
