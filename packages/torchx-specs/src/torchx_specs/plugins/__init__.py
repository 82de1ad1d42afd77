"""Plugins: the records that they yield, and the manager that collects these records."""
