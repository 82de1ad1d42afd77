"""One module a sub-command, imported when that sub-command is called."""
