"""Helpers for tests of components and plugins; they come with ``torchx-testing``."""
