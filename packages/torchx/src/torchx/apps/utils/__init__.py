"""Utility programs."""
