"""Programs that components start."""
