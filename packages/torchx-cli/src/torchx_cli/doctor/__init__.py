"""Runs the checks of ``torchx doctor``, and defines its own checks of this installation."""
