"""Adapters to pipelines (none are shipped)."""
