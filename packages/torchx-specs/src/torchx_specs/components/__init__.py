"""Component arguments: from the command line to typed values, and the call of a component."""
