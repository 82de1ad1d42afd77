"""Conversion of command-line arguments to typed values, and the call of a component."""
