"""Requests to a cluster, and the labels, names and events of its objects."""
