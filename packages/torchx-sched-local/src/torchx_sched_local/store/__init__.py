"""Apps on disk: their state, and finding and deleting them."""
