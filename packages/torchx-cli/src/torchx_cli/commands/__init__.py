"""The sub-commands; the module of a command is imported when the command runs."""
