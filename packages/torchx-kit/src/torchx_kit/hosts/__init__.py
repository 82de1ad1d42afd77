"""Access to the machine that has a batch system's commands: run commands, read and write files."""
