"""What an app keeps on disk: its script, its record, and the index of all apps."""
