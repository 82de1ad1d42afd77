"""The commands and files of a cluster."""
