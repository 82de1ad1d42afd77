"""The scheduler ``aws_batch``."""
