"""The interface of trackers, and the look-up of their factories and configurations."""
