"""One module for each sub-command, imported when the sub-command runs."""
