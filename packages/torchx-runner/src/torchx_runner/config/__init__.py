"""Configuration files named ``.torchxconfig``."""
