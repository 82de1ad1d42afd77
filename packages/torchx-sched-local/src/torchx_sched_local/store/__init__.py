"""Stores apps on disk, and reads, finds and deletes stored apps."""
