"""Data types of jobs: apps, roles, resources, mounts, macros, handles and statuses."""
