"""``.torchxconfig`` files."""
