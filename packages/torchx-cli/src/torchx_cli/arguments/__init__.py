"""Arguments and options of the sub-commands, and their defaults in ``.torchxconfig``."""
