"""A job as data: apps, roles, resources, mounts, macros, handles and statuses."""
