"""Submits, follows and watches apps, for ``torchx run``, ``rerun``, ``wait`` and ``watch``."""
