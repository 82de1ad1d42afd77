"""Log files: reading, following and merging them."""
