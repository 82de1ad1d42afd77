"""Scheduler options, declared in a table (runopts) or as a dataclass (StructuredOpts)."""
