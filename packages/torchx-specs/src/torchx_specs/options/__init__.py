"""The options of schedulers, as a table or as a dataclass."""
