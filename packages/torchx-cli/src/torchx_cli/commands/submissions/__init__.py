"""The commands that use the journal of this user's submissions."""
