"""The older path of the command-line tool."""
