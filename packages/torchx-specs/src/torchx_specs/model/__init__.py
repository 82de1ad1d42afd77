"""What a job is: apps, roles, resources, mounts, macros, handles and statuses."""
