"""The ``torchx`` command."""
