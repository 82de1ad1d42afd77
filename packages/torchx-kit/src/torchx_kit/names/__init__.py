"""Random ids, and names that obey the rules of a service."""
