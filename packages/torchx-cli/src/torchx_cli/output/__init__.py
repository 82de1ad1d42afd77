"""Formats the output of commands: text, JSON, YAML, colours and times."""
