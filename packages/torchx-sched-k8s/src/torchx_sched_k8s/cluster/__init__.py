"""The connection to a cluster, its labels, names and events."""
