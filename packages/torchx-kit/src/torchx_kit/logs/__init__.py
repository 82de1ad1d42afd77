"""Reading and following logs that are files."""
