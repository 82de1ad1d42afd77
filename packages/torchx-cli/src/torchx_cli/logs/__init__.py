"""Finding, merging and writing the logs of an app."""
