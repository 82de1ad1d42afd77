"""Programs that serve models."""
