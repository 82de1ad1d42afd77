"""Text that people and programs read: YAML, aligned tables."""
