"""Batches: groups of apps that share a folder and differ only in name, arguments and variables."""
