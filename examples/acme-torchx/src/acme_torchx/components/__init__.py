"""The components of the group ``acme``."""
